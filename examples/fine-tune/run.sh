#!/usr/bin/env bash
# run.sh LOCKSTEP [FOLDER]: a model learns texts, then to answer questions about them.
set -euo pipefail
lockstep=$(realpath "$1" 2>/dev/null || command -v "$1") out=${2:-runs/fine-tune} here=$(realpath "$(dirname "$0")")
mkdir -p "$out"

cd "$out"
"$here/make_world" .
cp "$here"/*.toml .

# Text, a tokenizer with the signs of conversations, tokens, a model.
"$lockstep" train-tokenizer text --vocabulary 768 --out tokenizer \
  --special "<|endoftext|>" --special "<|system|>" --special "<|user|>" --special "<|assistant|>"
"$lockstep" tokenize text --tokenizer tokenizer --out text.tokens
"$lockstep" train pretrain.toml --out pretrained --overwrite
"$lockstep" generate pretrained --prompt "Mara lives" --max-tokens 16 --temperature 0
rm -rf model
"$lockstep" export pretrained --out model

# Conversations, as the model's folder writes them; half of the run on one rank, half on four.
cp "$here/chat_template.jinja" model/
"$lockstep" tokenize talks.jsonl --conversations --tokenizer model --out talks.tokens
"$lockstep" data inspect talks.tokens --tokenizer model --seq 40 --sample 0
"$lockstep" train fine-tune.toml --set train.steps=30 --out tuned --overwrite
"$lockstep" train --resume tuned --layout dp=2,tp=2 --set train.steps=60
rm -rf answers
"$lockstep" export tuned --out answers
"$lockstep" generate answers --chat --prompt "Where does Mara live?" --temperature 0
