#!/usr/bin/env bash
# Measures a GPU: `benchmarks/gpu.sh day` runs every stage, `benchmarks/gpu.sh --help` describes them.
# PYTHON names the interpreter (python3). It needs torch and bertworks's dependencies; bertworks is used from src/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" "$here/gpu.py" "$@"
