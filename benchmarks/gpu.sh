#!/usr/bin/env bash
# Measure a GPU, one stage a command, each below ten minutes. The stages, in this order:
#
#     tests        the tests that need a GPU
#     steps        speed and memory of a training step, by model, length, dropout and engine
#     traces       profiles of the fastest and the slowest of those steps
#     pretraining  a whole pre-training in two commands of eight minutes; the second is the same command again
#     finetuning   the effect of that pre-training on five tasks
#
#     benchmarks/gpu.sh STAGE [--out FOLDER] [--smoke] [other options; --help lists them]
#
# PYTHON names the interpreter (python3). It needs torch and bertworks's dependencies; bertworks itself is used from
# src/. Results are FOLDER/STAGE.json; `tests` prints pytest's report and takes pytest's options.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
stages="tests steps traces pretraining finetuning"
stage=${1:-}
if [[ $stage == --help || $stage == -h ]]; then
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
    exit
fi
if [[ -z $stage || " $stages " != *" $stage "* ]]; then
    echo "found ${stage:-no stage}; expected one of: $stages; give it as the first argument" >&2
    exit 2
fi
shift
python=${PYTHON:-python3}
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
before=""
for argument in "$@"; do
    case "$before $argument" in
        # training takes a GPU wherever it sees one
        *" --smoke" | *" --device=cpu" | "--device cpu") export CUDA_VISIBLE_DEVICES="" ;;
    esac
    before=$argument
done
if [[ $stage == tests ]]; then exec "$python" -m pytest -m gpu -p no:cacheprovider "$here/../tests/test_gpu.py" "$@"; fi
exec "$python" "$here/gpu_$stage.py" "$@"
