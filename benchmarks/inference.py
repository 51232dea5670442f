"""Vectors of texts by every engine, side by side: throughput, the time of a single text, memory, distance from float32.

    python benchmarks/inference.py [--data ../shared/data] [--minutes 8] [--rounds 5] [--texts 200] [--engines NAME ...]
        [--smoke]

all-MiniLM-L6-v2 (6 layers of width 384) on a CPU, from raw texts to vectors of length 1, with as many threads as
OMP_NUM_THREADS allows. The texts are 1, 1, 2, 4 or 8 consecutive sentences of the English Wikipedia text. Every engine
has a process of its own, which is loaded and warmed up before the first round; loading and compiling are not in the
times. In each round every engine in its turn embeds all texts at once, then single texts of 24 tokens one by one.
--minutes bounds the run: after six tenths of it only the two that others are compared with are still loaded, and the
result names those that are left out; after the first round none begins that would not end in time. The result is
written after every round.
Memory is the peak of the whole process. Cosines are with bertworks' own vectors in float32; the correlation with human
judgements is that of the cosines of STS-B's development pairs (Spearman); both on a fifth of the texts and pairs.

The engines: bertworks in both precisions; sentence-transformers as it comes, in float32 and with the whole model in
bfloat16; ONNX Runtime and OpenVINO on the graph that torch.onnx makes of the model, texts sorted by length, 32 a batch;
folders of `bertworks export` in float32 and int8, opened by Predictor. An engine whose package is missing is left out,
and the result names it. Needs `pip install -e '.[test,bench,export]'`.
"""

import functools
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import read_rows
from bertworks.tasks.metrics import spearman
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine
from features import sentences
from inference_engines import EXACT, EXPORTED, OURS, PEER, SIDES, THEIRS, Embed, Vectors, build, missing, write_exports

GROUPS = (1, 1, 2, 4, 8)  # sentences of a text
WARM, SINGLE = 64, 24
SMOKE = {"rounds": 1, "texts": 8, "singles": 2, "engines": [*OURS[:2], EXPORTED[0], THEIRS[0], THEIRS[2]]}


# ---- texts


def mixed_texts(data: Path, count: int) -> list[str]:
    """Consecutive sentences, in groups of GROUPS in turn."""
    numbers = [GROUPS[i % len(GROUPS)] for i in range(count)]
    found = iter(sentences(data, sum(numbers)))
    return [" ".join(next(found) for _ in range(number)) for number in numbers]


def single_texts(model: Path, texts: Sequence[str], count: int) -> list[str]:
    """Texts of SINGLE tokens, special ones included: the beginnings of longer texts."""
    tokenizer, found = Tokenizer.load(model), []
    for text in texts:
        encoding = tokenizer.encode(text)
        if len(encoding.ids) >= SINGLE:
            found.append(text[: encoding.offsets[SINGLE - 2][1]])
    return [found[i % len(found)] for i in range(count)] if found else list(texts[:count])


# ---- a process a side


def peak_memory() -> int:
    """The most memory in bytes that this process has used; the usual counter begins with that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return machine.peak_memory(torch.device("cpu"))
    return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))


@functools.cache
def engine(side: str, folder: Path, work: Path) -> Embed:
    """The function from texts to vectors of a side, loaded once per process."""
    return build(side, folder, work)


def answer(side: str, folder: Path, work: Path, what: str, texts: list[str]) -> Any:
    """What a side's process does for a request."""
    embed = engine(side, folder, work)
    if what == "vectors":
        return embed(texts)
    if what == "memory":
        return peak_memory()
    seconds = []
    for batch in [texts] if what == "all" else [[text] for text in texts]:
        start = time.perf_counter()
        embed(batch)
        seconds.append(time.perf_counter() - start)
    return seconds[0] if what == "all" else seconds


class Side:
    """A side in a process of its own, or with `here` in this one."""

    def __init__(self, name: str, folder: Path, work: Path, here: bool):
        self.given = (name, folder, work)
        self.pool = None if here else ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def ask(self, what: str, texts: Sequence[str] = ()) -> Any:
        """What the side answers. Raises BrokenProcessPool if its process has ended."""
        request = (*self.given, what, list(texts))
        return self.pool.submit(answer, *request).result() if self.pool else answer(*request)

    def end(self) -> None:
        """Let the process end."""
        if self.pool:
            self.pool.shutdown()


# ---- the measurement


def started(options: Any, work: Path, warm: Sequence[str], single: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each engine with its side, warmed up, or with the reason why it is left out."""
    first = time.perf_counter()
    write_exports(options.model, work, options.engines)
    for name in options.engines:
        begun = time.perf_counter()
        late = begun - first > 36 * options.minutes and name not in (EXACT, PEER)  # which the others are compared with
        if reason := missing(name) or ("no time was left" if late else ""):
            print(f"{name}: left out, {reason}", file=sys.stderr)
            yield name, reason
            continue
        side = Side(name, options.model, work, options.smoke)
        for _ in range(2):
            side.ask("all", warm)
            side.ask("single", single[:5])
        print(f"{name}: ready in {time.perf_counter() - begun:.1f} seconds", file=sys.stderr, flush=True)
        yield name, side


def measure(options: Any, work: Path) -> common.Result:
    """How far the engines' vectors are apart, then rounds of all engines in turns; the result is kept after each."""
    begun = time.perf_counter()
    texts = mixed_texts(options.data, options.texts)
    single = single_texts(options.model, texts, options.singles)
    ready = dict(started(options, work, texts[:: max(1, len(texts) // WARM)], single))
    sides = {name: side for name, side in ready.items() if isinstance(side, Side)}
    quality = compared(options, sides, texts)
    passes: dict[str, list[float]] = {name: [] for name in sides}
    singles: dict[str, list[float]] = {name: [] for name in sides}
    facts = facts_of(options, texts, {name: reason for name, reason in ready.items() if isinstance(reason, str)})
    result, longest = facts, 0.0
    for number in range(options.rounds):
        now = time.perf_counter()
        if number and now - begun + longest > 60 * options.minutes:
            break
        for name, side in sides.items():
            passes[name].append(side.ask("all", texts))
            singles[name] += side.ask("single", single)
            print(f"{name}: {passes[name][-1]:.2f} seconds", file=sys.stderr, flush=True)
        longest = max(longest, time.perf_counter() - now)
        memory = {name: side.ask("memory") for name, side in sides.items()}
        engines = {
            name: {**times(passes[name], singles[name], len(texts)), **quality[name], "memory": memory[name]}
            for name in sides
        }
        result = {**facts, "rounds": number + 1, "engines": with_ratios(engines)}
        common.keep(options, result)
    for side in sides.values():
        side.end()
    return result


def facts_of(options: Any, texts: Sequence[str], left_out: dict[str, str]) -> common.Result:
    """What was measured, and on what."""
    return {
        "what": (__doc__ or "").splitlines()[0],
        "threads": torch.get_num_threads(),
        "texts": len(texts),
        "tokens": sum(len(encoding.ids) for encoding in Tokenizer.load(options.model).encode_batch(texts)),
        "left_out": left_out,
        "machine": common.machine_facts(),
    }


def times(passes: Sequence[float], singles: Sequence[float], texts: int) -> common.Result:
    """Medians over the rounds, and percentiles of single texts."""
    return {
        "seconds": list(passes),
        "texts_a_second": texts / statistics.median(passes),
        "single_ms": {f"p{q}": 1e3 * float(np.percentile(singles, q)) for q in (50, 99)},
    }


def with_ratios(engines: dict[str, common.Result]) -> dict[str, common.Result]:
    """Each engine with its throughput and its median single text as multiples of sentence-transformers in float32.

    Above 1 an engine is faster. Without sentence-transformers there are none.
    """
    if PEER not in engines:
        return engines
    rate, single = engines[PEER]["texts_a_second"], engines[PEER]["single_ms"]["p50"]
    return {
        name: {**one, "times_peer": one["texts_a_second"] / rate, "single_times_peer": single / one["single_ms"]["p50"]}
        for name, one in engines.items()
    }


def compared(options: Any, sides: dict[str, Side], texts: Sequence[str]) -> dict[str, common.Result]:
    """Each side's vectors against the exact ones, and against human judgements."""
    pairs = read_rows(TASKS["stsb"], options.data / "glue" / "STS-B" / "dev.tsv")[:: options.compared]
    vectors = {name: side.ask("vectors", texts[:: options.compared]) for name, side in sides.items()}
    return {
        name: {
            "cosine": cosines(vectors[EXACT], vectors[name]),
            "stsb_spearman": judged(side, pairs),
            "pairs": len(pairs),
        }
        for name, side in sides.items()
    }


def cosines(exact: Vectors, found: Vectors) -> common.Result:
    """Mean and smallest cosine of vectors of length 1 with the exact ones."""
    values = (exact * found).sum(1)
    return {"mean": float(values.mean()), "smallest": float(values.min())}


def judged(side: Side, pairs: Sequence[Any]) -> float:
    """Spearman's correlation of the cosines with the labels."""
    first, second = (side.ask("vectors", texts) for texts in ([row.text for row in pairs], [row.pair for row in pairs]))
    return spearman(np.array([float(row.label) for row in pairs]), (first * second).sum(1))


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "inference.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the encoder")
    parser.add_argument("--engines", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME", help=str(SIDES))
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=8.0, help="that the run may take")
    parser.add_argument("--singles", type=int, default=50, help="single texts a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--compared", type=int, default=5, help="vectors are compared on every so-many-th text and pair"
    )
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as folder:
        common.need(options.model, options.data / common.TEXT, options.data / "glue" / "STS-B")
        options.engines = list(dict.fromkeys([EXACT, *options.engines]))
        result = measure(options, Path(folder))
        common.finish(options, result)


if __name__ == "__main__":
    main(sys.argv[1:])
