"""The memory that `bertworks features` takes for a little text and for a gigabyte: both are streamed.

    python benchmarks/features_memory.py [--data ../shared/data] [--megabytes 20 1000] [--out FILE] [--smoke]

The command runs on files of as many megabytes of English Wikipedia, repeated as often as needed, a paragraph a line. It
writes one vector a text. The encoder has one layer of width 32 and random weights, so that nearly all of the time goes
into everything else. Peak memory is the command's own. Runs of other sizes that FILE already has stay in it.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import common
from bertworks.checkpoint.folder import save_folder
from bertworks.cli import main as bertworks
from bertworks.data.corpus import read_documents
from bertworks.files import read_json
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine

TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}
SMOKE = {"megabytes": [0.01, 0.02], "work": None}


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


def one_side(model: str, text: str, out: str) -> common.Result:
    """The command in this process: its seconds and this process's peak memory."""
    begun = time.perf_counter()
    bertworks(["features", str(model), str(text), "--pool", "mean", "--out", str(out)])
    seconds, peak = time.perf_counter() - begun, machine.peak_memory(torch.device("cpu"))
    return {"seconds": round(seconds, 1), "peak_mb": round(peak / 1e6)}


def measure(options: Any, folder: Path) -> list[common.Result]:
    """A run of each size."""
    model, text = folder / "model", folder / "text.txt"
    tokenizer = Tokenizer.load(options.data / common.VOCAB, lowercase=True)
    shape = ModelConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=128, **TINY)
    save_folder(model, build_model(shape, (), seed=1), tokenizer)
    runs = []
    for number, megabytes in enumerate(options.megabytes):
        lines, out = write_lines(options.data / common.TEXT, megabytes, text), folder / f"vectors-{number}.npz"
        done = common.fresh(one_side, {"model": model, "text": text, "out": out}, options.smoke)
        done = {key: done[key] for key in ("seconds", "peak_mb")} | {"written_mb": round(out.stat().st_size / 1e6)}
        runs.append({"megabytes": megabytes, "lines": lines, **done, "machine": common.machine_facts()})
        out.unlink()
    return runs


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    if common.answer(one_side, argv):
        return
    parser = common.parser(__doc__, "features_memory.json")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[20, 1000])
    parser.add_argument("--work", type=Path, help="folder for temporary files (default: the system's)")
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory(dir=options.work) as folder:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        runs = {run["megabytes"]: run for run in read_json(options.out)["runs"]} if options.out.exists() else {}
        runs |= {run["megabytes"]: run for run in measure(options, Path(folder))}
        order = [runs[megabytes] for megabytes in sorted(runs)]
        common.finish(options, {"what": (__doc__ or "").splitlines()[0], "model": TINY, "runs": order})


if __name__ == "__main__":
    main(sys.argv[1:])
