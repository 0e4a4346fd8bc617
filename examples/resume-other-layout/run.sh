#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: six steps under ZeRO-3, six more as a pipeline with tensor parallelism, and all twelve on one
# rank beside them.
set -euo pipefail
lockstep=$1 out=${2:-runs/resume-other-layout} here=$(dirname "$0")

"$lockstep" train "$here/run.toml" --layout dp=4,zero=3 --set train.steps=6 --out "$out" --overwrite
"$lockstep" train --resume "$out" --layout pp=2,tp=2,micro=4 --set train.steps=12
"$lockstep" train "$here/run.toml" --out "$out-one-rank" --overwrite
