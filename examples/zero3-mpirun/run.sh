#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: ZeRO-3 over four processes under mpirun, then the same run on one rank.
set -euo pipefail
lockstep=$1 out=${2:-runs/zero3-mpirun} here=$(dirname "$0")

# --oversubscribe: this machine may have fewer cores; --allow-run-as-root: as in a container.
mpirun -n 4 --oversubscribe --allow-run-as-root --bind-to none \
  "$lockstep" train "$here/run.toml" --out "$out" --overwrite
"$lockstep" train "$here/run.toml" --layout dp=1 --out "$out-one-rank" --overwrite
