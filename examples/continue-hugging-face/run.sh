#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: trains from a Hugging Face folder and writes the result as another one.
set -euo pipefail
lockstep=$1 out=${2:-runs/continue-hugging-face} here=$(dirname "$0")

"$lockstep" train "$here/run.toml" --out "$out" --overwrite
rm -rf "$out-hf"
"$lockstep" export "$out" --out "$out-hf"
"$lockstep" inspect "$out-hf"
