"""What building a corpus store costs as the corpus grows: time, processor time, and memory of parent and workers.

    python benchmarks/corpus_growth.py [--data ../shared/data] [--gigabytes 0.2 0.6 2] [--workers 2] [--out FILE]

The text is Wikipedia again and again, each time with other words replaced, so that no document is an exact duplicate.
Each store is built by the local pool, by a dask scheduler of its own with as many worker processes, and with
near-duplicates looked for. Each runs in a fresh process; memory is resident memory, sampled ten times a second. The
result is written after every size.
"""

import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.tokenizer import Tokenizer

SIDES: dict[str, dict[str, Any]] = {  # by name: what differs
    "pool": {},
    "scheduler": {"scheduler": "local"},
    "near-duplicates": {"near_duplicates": 0.8},
}
EVERY = 12  # words, of which one is replaced
SMOKE = {"gigabytes": [2e-5], "workers": 1, "sides": ["pool"], "work": None}


def one_build(side: str, text: str, vocabulary: str, work: str, workers: int) -> common.Result:
    """Build a store in this process and its workers; seconds, processor time and memory."""
    given = SIDES[side]
    config = BuildConfig(InputOptions("text", "blank-line"), workers=workers, allow_unknown=True, **given)
    tokenizer = Tokenizer.load(Path(vocabulary), lowercase=True)
    with tempfile.TemporaryDirectory(dir=work) as folder, common.TreeMemory(os.getpid()) as peaks:
        begun = time.perf_counter()
        manifest = build([text], tokenizer, Path(folder) / "store", config, progress=False)
        seconds = time.perf_counter() - begun
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
        "parent_mb": round(peaks.own),
        "worker_mb": round(peaks.largest),
        "tokens": sum(manifest["counts"][split]["tokens"] for split in ("train", "validation")),
        "shards": sum(map(len, manifest["shards"].values())),
        "dropped": manifest["counts"]["dropped"],
    }


def write_text(source: Path, size: int, target: Path) -> None:
    """Write `size` bytes of documents, the source's text again and again with other words replaced."""
    draw, written, copy = random.Random(1), 0, 0
    with open(target, "w", encoding="utf-8") as file:
        while written < size:
            for document in read_documents([source]):
                words = document.text.replace("\n", " \n ").split(" ")
                places = range(copy % EVERY, len(words), EVERY)
                for place, word in zip(places, draw.choices(words, k=len(places)), strict=True):
                    words[place] = words[place] if copy == 0 or "\n" in (word, words[place]) else word
                written += file.write(" ".join(words) + "\n\n")
                if written >= size:
                    return
            copy += 1


def measure(options: Any) -> None:
    """Build with every size and side, and write what is known after each."""
    result: common.Result = {
        "what": "cost of building a corpus store as the corpus grows: Wikipedia text, repeated with replaced words",
        "workers": options.workers,
        "sizes": [],
        "machine": common.machine_facts(),
    }
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        text = Path(work) / "text.txt"
        for gigabytes in options.gigabytes:
            write_text(options.data / common.TEXT, round(gigabytes * 1e9), text)
            entry: common.Result = {"gigabytes": gigabytes}
            result["sizes"].append(entry)
            for side in options.sides:
                given = {"side": side, "text": text, "vocabulary": options.data / common.VOCAB, "work": work}
                found = common.fresh(one_build, {**given, "workers": options.workers}, options.smoke)
                entry[side] = {key: value for key, value in found.items() if key != "tree_mb"}
                common.keep(options, result)
    common.finish(options, result)


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    if common.answer(one_build, argv):
        return
    parser = common.parser(__doc__, "corpus-growth.json")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.2, 0.6, 2.0], help="sizes of the text")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=[*SIDES])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=Path, default=None, help="folder for temporary files (default: the system's)")
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        measure(options)


if __name__ == "__main__":
    main(sys.argv[1:])
