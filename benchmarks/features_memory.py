"""The memory that `bertworks features` takes for a little text and for a gigabyte: both are streamed.

    python benchmarks/features_memory.py [--data ../shared/data] [--megabytes 20 1000] [--out FILE]

The command runs on files of as many megabytes of English Wikipedia, repeated as often as it takes, a paragraph a line,
with an encoder of one layer of width 32 and random weights, so that nearly all of the time goes into everything else,
and writes a vector a text. Peak memory is the process's own, as the system counts it. Runs of other sizes that FILE has
already stay in it.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bertworks.checkpoint.folder import save_folder
from bertworks.data.corpus import read_documents
from bertworks.files import read_json, write_json
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.tokenizer import Tokenizer
from bertworks.training import parallel

TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}


def write_lines(source: Path, megabytes: float, target: Path) -> int:
    """As many megabytes of the source's paragraphs, a line each; returns their number."""
    size = lines = 0
    with open(target, "wb") as file:
        while True:
            for document in read_documents([source]):
                for paragraph in filter(str.strip, document.text.splitlines()):
                    size += file.write(f"{paragraph}\n".encode())
                    lines += 1
                    if size >= megabytes * 1e6:
                        return lines


def measure(model: Path, text: Path, out: Path) -> dict[str, Any]:
    """The command in a process of its own: its seconds and peak memory."""
    command = [sys.executable, "-m", "bertworks.cli", "features", str(model), str(text), "--pool", "mean"]
    begun = os.times().elapsed
    process = os.posix_spawn(sys.executable, [*command, "--out", str(out)], os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed with status {os.waitstatus_to_exitcode(status)}")
    seconds = os.times().elapsed - begun
    peak, written = usage.ru_maxrss * 1024, out.stat().st_size
    return {"seconds": round(seconds, 1), "peak_mb": round(peak / 1e6), "written_mb": round(written / 1e6)}


def main() -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="has text/ and vocab/")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[20, 1000])
    parser.add_argument("--work", type=Path, help="folder for temporary files (the system's)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "features_memory.json")
    options = parser.parse_args()
    runs = {}
    if options.out.exists():
        runs = {run["megabytes"]: run for run in read_json(options.out)["runs"]}
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        model, text, out = (Path(folder) / name for name in ("model", "text.txt", "vectors.npz"))
        tokenizer = Tokenizer.load(options.data / "vocab" / "bert-base-uncased.txt", lowercase=True)
        shape = ModelConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=128, **TINY)
        save_folder(model, build_model(shape, (), seed=1), tokenizer)
        for megabytes in options.megabytes:
            lines = write_lines(options.data / "text" / "enwiki.tar.zst", megabytes, text)
            run = {"megabytes": megabytes, "lines": lines, **measure(model, text, out), "machine": parallel.facts()}
            runs[megabytes] = run
            print(run, file=sys.stderr, flush=True)
    order = [runs[megabytes] for megabytes in sorted(runs)]
    result = {"what": __doc__.splitlines()[0], "model": TINY, "runs": order}
    write_json(options.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
