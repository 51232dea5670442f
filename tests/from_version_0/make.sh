#!/usr/bin/env bash
# Makes all that is kept here, in the working directory, which should be empty: bash .../from_version_0/make.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OMP_NUM_THREADS=1
[ "$here" = "$PWD" ] || cp "$here"/*.toml "$here"/texts.py "$here"/make.sh "$here"/README.md .
say() { python -m bertworks.cli "$@"; }

python texts.py
say tokenizer train text.txt --input.documents blank-line --vocab-size 225 --limit-alphabet 84 --out vocab
say corpus build text.txt --input.documents blank-line --tokenizer vocab --shard-tokens 2000 --workers 1 \
    --min-validation-documents 8 --out store
say pretrain pretrain.toml --corpus store --out pretrain
say distill distill.toml --teacher pretrain --corpus store --out distill
say static --corpus store --width 8 --epochs 2 --min-count 2 --out static

# stopped once its log has a record
python -m bertworks.cli pretrain unfinished.toml --corpus store --out pretrain-unfinished &
until [ -s pretrain-unfinished/log.jsonl ]; do sleep 0.02; done
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 3 ] || { echo "the run to be stopped ended with status $status"; exit 1; }

tables="--train rows/train.csv --dev rows/dev.csv"
say finetune --recipe finetune.toml $tables --model pretrain --epochs 16 --out finetune
say finetune --recipe finetune.toml $tables --model static --top.bilstm-layers 1 --top.bilstm-width 8 --epochs 12 \
    --out finetune-static
say finetune --recipe finetune.toml $tables --model distill --teacher finetune --epochs 24 --out finetune-taught
say finetune --recipe finetune.toml --train rows/train-tags.jsonl --dev rows/dev-tags.jsonl --kind tagging \
    --text words --label tags --model pretrain --epochs 10 --out finetune-tagging
say finetune --recipe finetune.toml --train rows/train-questions.jsonl --dev rows/dev-questions.jsonl --kind span \
    --text question,context --label answer --model pretrain --epochs 30 --out finetune-span
say finetune --recipe finetune.toml $tables --model finetune --sweep glue --seeds 1 2 --out sweep
say finetune --recipe finetune.toml --epochs 20 --suite paper --data glue --model finetune --seeds 1 --out suite
say study study.toml --corpus store --data glue --out study

# pictures are drawn anew at will
find . -name "curves.*" -delete
rm -f study/study.png study/study.svg
# a finished run does not read its state again
rm -r pretrain/state distill/state
find . -name "*.lock" -delete
