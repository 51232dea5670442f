"""Vectors of texts by every engine, side by side: throughput, the time of a single text, distance from float32.

    python benchmarks/inference.py [--data ../shared/data] [--minutes 8] [--rounds 5] [--texts 200] [--sentences N]
        [--base] [--engines NAME ...] [--smoke]

all-MiniLM-L6-v2 (6 layers of width 384) on a CPU, or with --base BERT-BASE with random weights, from raw texts to
vectors of length 1, with as many threads as OMP_NUM_THREADS allows. Texts are 1, 1, 2, 4 or 8 consecutive sentences of
the English Wikipedia text, or N. Every engine has a process, which is warmed up before the first round. In each round
every engine embeds all texts at once, then single texts of 24 tokens. No round begins after --minutes, but for the
first. With --base the result's name ends in -base. Cosines are with bertworks' own vectors in float32, the correlation
with human judgements is that of STS-B's development pairs; both on a seventh of the texts and pairs.

The engines: bertworks in both precisions; sentence-transformers in float32 and with the whole model in bfloat16; ONNX
Runtime and OpenVINO on the graph that torch.onnx makes of the model, texts sorted by length; these in the fastest of
five batch sizes; folders of `bertworks export` in float32 and int8, opened by Predictor. All read at most the model's
longest input. Needs `pip install -e '.[test,bench,export]'`.
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
from features import sentences
from inference_engines import EXACT, EXPORTED, OURS, SIDES, THEIRS, Embed, Vectors, build, limit_of, write_exports

GROUPS = (1, 1, 2, 4, 8)  # sentences of a text
WARM, SINGLE, COMPARED = 64, 24, 7  # vectors are compared on every seventh text and pair
SMOKE = {"rounds": 1, "texts": 8, "singles": 2, "engines": [*OURS[:2], EXPORTED[0], THEIRS[0], THEIRS[2]]}


# ---- texts


def mixed_texts(data: Path, count: int, groups: Sequence[int] = GROUPS) -> list[str]:
    """Consecutive sentences, in groups of these sizes in turn."""
    numbers = [groups[i % len(groups)] for i in range(count)]
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


@functools.cache
def engine(side: str, folder: Path, work: Path) -> Embed:
    """The function from texts to vectors of a side, loaded once per process."""
    return build(side, folder, work)


def answer(side: str, folder: Path, work: Path, what: str, texts: list[str]) -> Any:
    """What a side's process does for a request."""
    embed = engine(side, folder, work)
    if what == "vectors":
        return embed(texts)
    if what == "batch":
        return getattr(embed, "batch", None)
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


def started(options: Any, work: Path, warm: Sequence[str], single: Sequence[str]) -> Iterator[tuple[str, Side]]:
    """Each engine with its side, warmed up."""
    write_exports(options.model, work, options.engines)
    for name in options.engines:
        side = Side(name, options.model, work, options.smoke)
        for _ in range(2):
            side.ask("all", warm)
            side.ask("single", single[:5])
        print(f"{name}: ready", file=sys.stderr, flush=True)
        yield name, side


def measure(options: Any, work: Path) -> common.Result:
    """How far the engines' vectors are apart, then rounds of all engines in turns; the result is kept after each."""
    begun = time.perf_counter()
    texts = mixed_texts(options.data, options.texts, [options.sentences] if options.sentences else GROUPS)
    single = single_texts(options.model, texts, options.singles)
    sides = dict(started(options, work, texts[:: max(1, len(texts) // WARM)], single))
    quality = compared(options, sides, texts)
    passes, singles = ({name: list[float]() for name in sides} for _ in range(2))
    result = facts = facts_of(options, texts)
    for number in range(options.rounds):
        if number and time.perf_counter() - begun > 60 * options.minutes:
            break
        for name, side in sides.items():
            passes[name].append(side.ask("all", texts))
            singles[name] += side.ask("single", single)
            print(f"{name}: {passes[name][-1]:.2f} seconds", file=sys.stderr, flush=True)
        engines = {
            name: {**times(passes[name], singles[name], len(texts)), **quality[name], "batch": side.ask("batch")}
            for name, side in sides.items()
        }
        result = {**facts, "rounds": number + 1, "engines": engines}
        common.keep(options, result)
    for side in sides.values():
        side.end()
    return result


def facts_of(options: Any, texts: Sequence[str]) -> common.Result:
    """What was measured, and on what."""
    tokenizer = Tokenizer.load(options.model)
    return {
        "what": (__doc__ or "").splitlines()[0],
        "threads": torch.get_num_threads(),
        "model": "BERT-BASE, random weights" if options.base else str(options.model),
        "texts": len(texts),
        "tokens": sum(min(len(one.ids), limit_of(options.model)) for one in tokenizer.encode_batch(texts)),
        "machine": common.machine_facts(),
    }


def times(passes: Sequence[float], singles: Sequence[float], texts: int) -> common.Result:
    """Medians over the rounds, and percentiles of single texts."""
    return {
        "seconds": list(passes),
        "texts_a_second": texts / statistics.median(passes),
        "single_ms": {f"p{q}": 1e3 * float(np.percentile(singles, q)) for q in (50, 99)},
    }


def compared(options: Any, sides: dict[str, Side], texts: Sequence[str]) -> dict[str, common.Result]:
    """Each side's vectors against the exact ones, and against human judgements."""
    pairs = read_rows(TASKS["stsb"], options.data / "glue" / "STS-B" / "dev.tsv")[::COMPARED]
    vectors = {name: side.ask("vectors", texts[::COMPARED]) for name, side in sides.items()}
    return {
        name: {
            "cosine": cosines(vectors[EXACT], vectors[name]),
            "stsb_spearman": judged(side, pairs),
            "pairs": len(pairs),
        }
        for name, side in sides.items()
    }


def cosines(exact: Vectors, found: Vectors) -> common.Result:
    """Mean and smallest cosine of vectors with the exact ones. With bfloat16 their lengths are not quite 1."""
    values = (exact * found).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
    return {"mean": float(values.mean()), "smallest": float(values.min())}


def judged(side: Side, pairs: Sequence[Any]) -> float:
    """Spearman's correlation of the cosines with the labels."""
    first, second = (side.ask("vectors", texts) for texts in ([row.text for row in pairs], [row.pair for row in pairs]))
    return spearman(np.array([float(row.label) for row in pairs]), (first * second).sum(1))


def write_base(vocabulary: Path, folder: Path) -> Path:
    """BERT-BASE with random weights and the vocabulary of all-MiniLM-L6-v2."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(vocabulary, model_max_length=512)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    return folder


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "inference.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the encoder")
    parser.add_argument("--engines", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME", help=str(SIDES))
    parser.add_argument("--base", action="store_true", help="BERT-BASE with random weights instead of the model")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--sentences", type=int, help="of each text")
    parser.add_argument("--minutes", type=float, default=8.0, help="that the run may take")
    parser.add_argument("--singles", type=int, default=50, help="single texts a round")
    parser.add_argument("--rounds", type=int, default=5)
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as folder:
        common.need(options.model, options.data / common.TEXT, options.data / "glue" / "STS-B")
        options.engines = list(dict.fromkeys([EXACT, *options.engines]))
        if options.base:
            options.model = write_base(options.model, Path(folder) / "base")
            options.out = options.out.with_stem(options.out.stem + "-base")
        result = measure(options, Path(folder))
        common.finish(options, result)


if __name__ == "__main__":
    main(sys.argv[1:])
