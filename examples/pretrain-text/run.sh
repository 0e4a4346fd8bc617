#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: trains on the text that run.toml names, then lets the model write.
set -euo pipefail
lockstep=$1 out=${2:-runs/pretrain-text} here=$(dirname "$0")

"$lockstep" plan "$here/run.toml"
"$lockstep" train "$here/run.toml" --out "$out" --overwrite
"$lockstep" generate "$out" --prompt "The " --max-tokens 60
