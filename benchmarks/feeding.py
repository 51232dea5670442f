"""How fast batches are made: by the training process itself, and ahead of it by worker processes.

    python benchmarks/feeding.py [--data ../shared/data] [--megabytes 80] [--seconds 10]

A dry consumer, whose step costs nothing, draws updates of 256 instances of the Wikipedia text with the paper's
masking, single tokens or whole words, at both lengths. `tokens_per_second` counts real tokens. `consumer` is the share
of its time in which the consumer itself computes: what is taken from a training step. `first` is the time to the first
batch, the start of the processes included.

`parts` is one process alone, in nanoseconds of processor time a token: planning the instances, choosing an update's,
gathering and padding, drawing random numbers, masking.
"""

import functools
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from bertworks.data import batches, masking
from bertworks.data.ahead import Asked, BatchesAhead
from bertworks.data.batches import PretrainingData, Vocabulary
from bertworks.data.instances import InstanceConfig, Position
from bertworks.data.masking import MaskingConfig
from bertworks.data.store import Store

SIZE = 256  # instances of an update
SMOKE = {"megabytes": 0.01, "seconds": 0.1, "lengths": [24], "workers": [0, 1]}


def main(argv: list[str] | None = None) -> None:
    """Measure every case, each in a fresh process."""
    if common.answer(side, argv):
        return
    parser = common.parser(__doc__, "feeding.json")
    parser.add_argument(
        "--megabytes", type=float, default=80.0, help="of text: several block groups of a million tokens"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of drawing, for every case")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        store = common.make_store(options.data, options.megabytes, Path(work))
        result: common.Result = {"machine": common.machine_facts(), "instances": SIZE, "cases": []}
        cases = itertools.product(options.lengths, (False, True), options.workers)
        for length, whole_word, workers in cases:
            case = {"length": length, "whole_word": whole_word, "workers": workers}
            given = {"store": store, "seconds": options.seconds, **case}
            result["cases"].append({**case, **common.fresh(side, given, here=options.smoke)})
            common.keep(options, result)
        common.finish(options, result)


def data_of(store: Path, length: int, whole_word: bool) -> PretrainingData:
    """The training split as a recipe of the paper reads it."""
    opened = Store.open(store, verify=False)
    vocabulary, masking = Vocabulary.of(opened.load_tokenizer()), MaskingConfig(whole_word=whole_word)
    return PretrainingData(opened, "train", vocabulary, length, InstanceConfig(), masking, 1)


def side(store: str, length: int, whole_word: bool, workers: int, seconds: float) -> common.Result:
    """Draw for some seconds, after the start and half as much time to settle."""
    data, begun = data_of(Path(store), length, whole_word), time.perf_counter()
    source = BatchesAhead([data], workers)
    draw = drawer(source)
    draw()
    first = time.perf_counter() - begun
    draw_for(draw, seconds / 2)
    computing, start = time.process_time(), time.perf_counter()
    tokens = draw_for(draw, seconds)
    spent, computed = time.perf_counter() - start, time.process_time() - computing
    source.close()
    result: common.Result = {
        "tokens_per_second": round(tokens / spent),
        "consumer": round(computed / spent, 3),
        "first": round(first, 2),
    }
    return result if workers else {**result, "parts": parts(data_of(Path(store), length, whole_word), seconds)}


def drawer(source: BatchesAhead) -> Callable[[], int]:
    """A function that draws the next update and returns its number of real tokens."""
    position = Position()

    def draw() -> int:
        nonlocal position
        made, position = source.take(Asked(0, position, SIZE, (range(SIZE),)))
        return int(made[0]["attention_mask"].sum())

    return draw


def draw_for(draw: Callable[[], int], seconds: float) -> int:
    """Real tokens drawn in so many seconds."""
    deadline, tokens = time.perf_counter() + seconds, 0
    while time.perf_counter() < deadline:
        tokens += draw()
    return tokens


def parts(data: PretrainingData, seconds: float) -> dict[str, float]:
    """Nanoseconds of processor time a real token, by part of the work; what is drawn is planned as a whole first."""
    clock: dict[str, float] = {}
    plan, _, _ = timed(clock, "planning", data.stream.group)(0)
    planned = int((plan[:, 2] - plan[:, 1] + plan[:, 4] - plan[:, 3]).sum()) + 3 * len(plan)
    chosen, made = timed(clock, "choosing", batches.choose), timed(clock, "all", data.make)
    data._gather = timed(clock, "gathering", data._gather)  # type: ignore[method-assign]
    data._draws = timed(clock, "drawing", data._draws)  # type: ignore[method-assign]
    original = masking.mask
    batches.mask = timed(clock, "masking", original)  # type: ignore[attr-defined]
    position, tokens, deadline = Position(), 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < deadline and position.group == 0:
            (one,), position = chosen(data.stream, position, SIZE, [range(SIZE)])
            tokens += int(made(one)["attention_mask"].sum())
    finally:
        batches.mask = original  # type: ignore[attr-defined]
    clock["padding"] = clock.pop("all") - sum(clock[name] for name in ("gathering", "drawing", "masking"))
    divisors = {name: planned if name == "planning" else tokens for name in clock}
    return {name: round(1e9 * spent / divisors[name], 2) for name, spent in clock.items()}


def timed(clock: dict[str, float], name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, whose processor time is added to the clock."""

    @functools.wraps(work)
    def measured(*arguments: Any) -> Any:
        begun = time.process_time()
        result = work(*arguments)
        clock[name] = clock.get(name, 0.0) + time.process_time() - begun
        return result

    return measured


if __name__ == "__main__":
    main()
