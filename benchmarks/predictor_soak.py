"""One Predictor in one process for an hour, without a pause: memory, and whether every text has its own answer.

    OMP_NUM_THREADS=1 python benchmarks/predictor_soak.py [--minutes 60] [--data ../shared/data] [--out FILE] [--smoke]

Labels and tags by two small models with random weights, in turn, and every tenth time vectors by all-MiniLM-L6-v2, of
texts from 3 to 180 words, and now and then of one of 20,000 words. Calls have 1 to 64 texts, drawn by a seed. The first
answer for a text is kept: later ones must be the same, within rounding, which depends on the batch.

Memory grows while batches have numbers of rows that are new: oneDNN keeps half a megabyte for each product of each
number, 1,024 products at most. Rare numbers keep turning up for hours, so calls before the clock starts give each model
single texts and batches of all sizes (`meet_sizes`). What grows afterwards is something else.

It fails if a call returns fewer or more answers than texts, if an answer changes, or if memory grows over the second
half of ten minutes or more: by more than 1 MB an hour, at the lower bound of the slope's 95 % interval.
"""

import os
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import common
from bertworks import Predictor
from bertworks.checkpoint.folder import load_tokenizer, save_folder
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from open_loop import growth
from server_process import mixed_texts
from serving_load import MOST_GROWTH, SHORTEST

SEED = 1
MOST_TEXTS = 64  # of a call
BETWEEN = 10  # calls from one of the large model to the next
LONG = 0.01  # share of the calls that have a long text as well
LONG_WORDS = 20_000
WORDS = 200  # of the longest other text, about
FILLED = (1_800, 7_000, 7_000)  # words in the largest batch of each model, about
EXACT = 1e-4  # what scores and numbers of vectors may differ by
SMOKE, SMOKE_TEXTS = {"minutes": 0.03, "texts": 20}, 2
Call = Callable[[Sequence[str]], Sequence[Any]]


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "predictor-soak.json")
    made.add_argument("--minutes", type=float, default=60.0, help="how long to call")
    made.add_argument("--texts", type=int, default=1000, help="different texts")
    made.add_argument("--model", type=Path, default=common.minilm(), help="model folder that gives vectors")
    with common.parsed(made, argv, SMOKE) as options:
        common.need(options.data / common.TEXT, options.model)
        with tempfile.TemporaryDirectory() as folder:
            result = soak(options, calls(options.model, Path(folder)))
        common.finish(options, result)
        if wrong := problems(result):
            raise SystemExit("\n".join(wrong))


def calls(model: Path, folder: Path) -> dict[str, Call]:
    """What is called, by name, the large model first: each takes texts and returns numbers for each of them."""
    tokenizer = load_tokenizer(model)
    shape = ModelConfig(tokenizer.vocab_size, 64, 2, 2, 128, max_position_embeddings=128)
    for head in ("classifier", "tagger"):
        save_folder(folder / head, build_model(shape, (head,), 3, seed=SEED), tokenizer, labels=["O", "B-A", "B-B"])
    embedder, classifier, tagger = Predictor(model), Predictor(folder / "classifier"), Predictor(folder / "tagger")

    def classified(texts: Sequence[str]) -> list[Any]:
        return [[*one["scores"].values()] for one in classifier.classify(texts, all_scores=True)]

    def tagged(texts: Sequence[str]) -> list[Any]:
        found = tagger.tag_words(texts)
        return [[score for unit in units for score in unit["scores"].values()] for units in found]

    return {"embed": lambda texts: [*embedder.embed(texts)], "classify": classified, "tag": tagged}


def meet_sizes(named: dict[str, Call], texts: Sequence[str], most: int) -> None:
    """Call every model with single texts, and with 2 to `most` equal texts, so that hardly a size is new later."""
    words = " ".join(texts).split()
    for call, filled in zip(named.values(), FILLED, strict=True):
        for count in range(1, WORDS * most // MOST_TEXTS, 2):
            call([" ".join(words[:count])])
        for count in (3, 9, 17, 29, 50, 110):
            for copies in range(2, min(most, filled // count) + 1):
                call([" ".join(words[:count])] * copies)


def soak(options: Any, named: dict[str, Call]) -> common.Result:
    """Call until the time is over; counts, and the memory of this process each second."""
    texts = mixed_texts(options.data, options.texts)
    long = " ".join(texts[i % len(texts)] for i in range(LONG_WORDS // 30))
    meet_sizes(named, texts, SMOKE_TEXTS if options.smoke else MOST_TEXTS)
    rng, first = random.Random(SEED), dict[tuple[str, str], Any]()
    counts = dict.fromkeys(("calls", "texts", "lost", "changed"), 0)
    times, megabytes = array("d"), array("d")
    begun, process = time.perf_counter(), psutil.Process(os.getpid())
    while (now := time.perf_counter() - begun) < 60 * options.minutes:
        if not times or now - times[-1] >= min(1.0, options.minutes):
            times.append(now)
            megabytes.append(own_memory(process) / 1e6)
        large, *small = named
        name = small[counts["calls"] % len(small)] if counts["calls"] % BETWEEN else large
        given = rng.sample(texts, rng.randint(1, min(MOST_TEXTS, len(texts)))) + [long] * (rng.random() < LONG)
        found = named[name](given)
        counts["calls"] += 1
        counts["texts"] += len(given)
        counts["lost"] += abs(len(given) - len(found))
        for text, answer in zip(given, found, strict=False):
            before = first.setdefault((name, text), answer)
            counts["changed"] += np.shape(before) != np.shape(answer) or not np.allclose(before, answer, atol=EXACT)
    sizes = {"first_mb": megabytes[0], "middle_mb": megabytes[len(megabytes) // 2], "last_mb": megabytes[-1]}
    memory = {name: round(size, 1) for name, size in sizes.items()} | growth(times, megabytes)
    seconds = round(time.perf_counter() - begun, 1)
    machine = common.machine_facts()
    result = {"machine": machine, "model": options.model.name, "seconds": seconds, **counts, "memory": memory}
    print({name: result[name] for name in ("seconds", *counts, "memory")}, file=sys.stderr)
    return result


def own_memory(process: psutil.Process) -> int:
    """Bytes of a process that belong to no file: pages of libraries come and go as the system needs memory."""
    found = process.memory_info()
    return int(found.rss - getattr(found, "shared", 0))


def problems(result: common.Result) -> list[str]:
    """What is not as it should be; empty if all is well."""
    counted = {"lost": "answers that are missing or too many", "changed": "answers that changed"}
    found = [f"{result[key]} {what}; expected none" for key, what in counted.items() if result[key]]
    bounds = result["memory"].get("mb_per_hour_interval")
    if result["seconds"] >= SHORTEST and bounds is None:
        found.append("too few samples of memory; expected one each second")
    elif result["seconds"] >= SHORTEST and bounds[0] > MOST_GROWTH:
        found.append(f"memory grows by {bounds} MB an hour; expected a lower bound of at most {MOST_GROWTH:g}")
    return found


if __name__ == "__main__":
    main()
