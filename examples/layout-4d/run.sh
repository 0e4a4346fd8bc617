#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: one run under all axes at once on 16 ranks, then on one.
set -euo pipefail
lockstep=$1 out=${2:-runs/layout-4d} here=$(dirname "$0")

"$lockstep" train "$here/run.toml" --out "$out" --overwrite
"$lockstep" train "$here/run.toml" --layout dp=1 --out "$out-one-rank" --overwrite
