"""Requests per second at a p99 of 100 ms: our server beside plain FastAPI servers, in one run.

    python benchmarks/serving.py [--rounds 5] [--minutes 12] [--data ../shared/data] [--out FILE] [--smoke]

The same model (all-MiniLM-L6-v2), the same texts (3 to 180 words), one text a request, the same OpenAI request and JSON
answer. Ours has its default settings, with the model folder and with its export in int8. Rivals are tried in several
settings (precision, threads, requests at a time) with 1 to 16 clients that ask one after the other, and stay loaded in
that with the largest `capacity`: the most answered with a p99 below 100 ms. Then rounds: at each of RATES every server
in its turn gets open-loop load (open_loop.py), while the others are paused; a server whose p99 was beyond three times
the limit gets no higher rate in this round. Latencies count from the intended time of sending, without the first
second. A rate is held if every request of every round was answered and the median p99 of the rounds is within the
limit. `requests_per_second` is where that median crosses the limit, between the highest rate held and the next one, in
the logarithm of p99; null if no rate was held, or none was not. Machines that are shared have bursts, which the median
leaves out. --minutes bounds the run: a round that would not end in time does not begin. The result is written after
every server and every round. Nothing else should run.

Client and server share the machine's cores. The result has each server's settings, every trial, and the vectors'
largest difference from ours.
"""

import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import common
from inference_engines import write_exports
from open_loop import Client, Load, closed_loop, open_loop, raise_file_limit, shown
from server_process import Process, bertworks_command, embedding_requests, free_port, mixed_texts, started

OURS, OURS_INT8 = "bertworks", "bertworks, int8 export"
RIVALS = {  # engines, requests at a time (40: FastAPI's default), threads; None: as many as cores
    "FastAPI + sentence-transformers": [
        ("sentence-transformers, bfloat16", 40, None),
        ("sentence-transformers, bfloat16", None, 1),
        ("sentence-transformers, bfloat16", 1, None),
        ("sentence-transformers, float32", 1, None),
    ],
    "FastAPI + ONNX Runtime, float32": [("onnxruntime, float32", None, 1), ("onnxruntime, float32", 1, None)],
    "FastAPI + ONNX Runtime, int8": [("onnxruntime, int8", None, 1), ("onnxruntime, int8", 1, None)],
}
P99 = 0.100  # seconds
CLIENTS = (1, 2, 4, 8, 16)  # that ask one after the other, to choose a setting
SETTLE = 1.0  # seconds of a trial that do not count
RATES = (47, 58, 72, 90, 110, 135, 165, 200, 245, 300, 365)  # requests a second
HOPELESS = 3 * P99
SMOKE = {"rounds": 1, "rates": (25, 90, 245), "trial": 0.3, "probe": 0.5, "texts": 20, "minutes": 2.0}


@dataclass(frozen=True)
class Setting:
    """One way to start a server."""

    server: str  # whose it is
    name: str  # precision, threads, batch, for people
    command: Sequence[str]  # {port} is replaced
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Side:
    """A server in its setting, and what it was seen to do."""

    setting: Setting
    process: Process
    trials: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # by rate

    @property
    def steps(self) -> list[tuple[int, float, bool]]:
        """Of each rate that was tried: the median p99 in seconds, and whether it was held."""
        rounds = max((len(tried) for tried in self.trials.values()), default=0)
        found = []
        for rate, tried in self.trials.items():
            p99 = [inf if trial["p99_ms"] is None else trial["p99_ms"] / 1000 for trial in tried]
            median = statistics.median(p99 + [inf] * (rounds - len(p99)))  # a round that stopped below: too slow
            held = median <= P99 and all(trial["accepted"] == trial["sent"] for trial in tried)
            found.append((rate, median, held))
        return found

    @property
    def requests_per_second(self) -> float | None:
        """Where the median p99 crosses the limit."""
        steps = self.steps
        fails = next((i for i, (_, _, held) in enumerate(steps) if not held), 0)
        if not fails:
            return None
        (low, below, _), (high, above, _) = steps[fails - 1 : fails + 1]
        above = min(above, HOPELESS)
        share = math.log(P99 / below) / math.log(above / below) if above > P99 else 0.0
        return round(low * (high / low) ** share, 1)


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "serving.json")
    made.set_defaults(rates=RATES)
    made.add_argument("--rounds", type=int, default=5, help="of all rates and servers")
    made.add_argument("--trial", type=float, default=4.0, help="seconds of a trial")
    made.add_argument("--probe", type=float, default=4.0, help="seconds in which a setting is probed")
    made.add_argument("--minutes", type=float, default=12.0, help="that the run may take")
    made.add_argument("--texts", type=int, default=1000, help="different texts")
    made.add_argument("--model", type=Path, default=common.minilm(), help="model folder to serve")
    with common.parsed(made, argv, SMOKE) as options:
        common.need(options.data / common.TEXT, options.model)
        raise_file_limit()
        texts = mixed_texts(options.data, options.texts)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
            result = asyncio.run(measure(options, texts, Path(folder), running))
        common.finish(options, result)


# ---- settings


def settings_of(options: Any, graphs: Path) -> dict[str, list[Setting]]:
    """Every server's settings; with --smoke one of ours and of one rival."""
    found = {OURS: [ours(OURS, options.model)]}
    if options.smoke:
        return found | {(name := next(iter(RIVALS))): plain(options, name, graphs)[:1]}
    write_exports(options.model, graphs, ("export, int8", "onnxruntime, int8"))
    found[OURS_INT8] = [ours(OURS_INT8, graphs / "export-int8")]
    return found | {name: plain(options, name, graphs) for name in RIVALS}


def ours(name: str, model: Path) -> Setting:
    """A model folder with the default settings."""
    return Setting(name, "default", [word if word != "0" else "{port}" for word in bertworks_command(model, 0)])


def plain(options: Any, name: str, graphs: Path) -> list[Setting]:
    """A rival's settings."""
    command = [sys.executable, "-m", "uvicorn", "serving_plain:app", "--port", "{port}", "--log-level", "warning"]
    found = []
    for engine, *numbers in RIVALS[name]:
        tokens, threads = (str(number or os.cpu_count()) for number in numbers)
        environment = {"MODEL": str(options.model), "ENGINE": engine, "GRAPHS": str(graphs)}
        shown_as = f"{engine.split(', ')[1]}, requests at a time: {tokens}, threads: {threads}"
        found.append(Setting(name, shown_as, command, environment | {"TOKENS": tokens, "THREADS": threads}))
    return found


# ---- the run


@dataclass
class Run:
    """What is known by now, and where it is written."""

    options: Any
    texts: Sequence[str]
    begun: float = field(default_factory=time.perf_counter)
    probes: list[dict[str, Any]] = field(default_factory=list)
    sides: list[Side] = field(default_factory=list)
    vectors: list[Any] = field(default_factory=list)

    def time_for(self, seconds: float) -> bool:
        """Whether so many seconds are left."""
        return time.perf_counter() - self.begun + seconds <= 60 * self.options.minutes

    def keep(self) -> None:
        """Write the result as it is."""
        common.keep(self.options, self.result)

    @property
    def result(self) -> dict[str, Any]:
        """Rates that were held, settings, and all that was measured."""
        return {
            "machine": common.machine_facts(),
            "p99_limit_ms": 1000 * P99,
            "minutes": round((time.perf_counter() - self.begun) / 60, 1),
            "texts": len(self.texts),
            "words": round(statistics.fmean(len(text.split()) for text in self.texts), 1),
            **compared(self.sides),
            "settings": {side.setting.server: side.setting.name for side in self.sides},
            "probes": self.probes,
            "rates": {side.setting.server: rates_of(side) for side in self.sides},
            "largest_difference_from_ours": {
                side.setting.server: float(np.abs(found - self.vectors[0]).max())
                for side, found in zip(self.sides, self.vectors, strict=False)
            },
        }


def rates_of(side: Side) -> dict[str, Any]:
    """Of each rate: the p99 of all rounds and their median, in milliseconds, and whether it was held."""
    return {
        str(rate): {
            "p99_ms": [trial["p99_ms"] for trial in side.trials[rate]],
            "median_p99_ms": None if median == inf else round(1000 * median, 1),
            "held": held,
        }
        for rate, median, held in side.steps
    }


def compared(sides: Sequence[Side]) -> dict[str, Any]:
    """Each server's rate, or None; and ours by the best rival's, or None unless all are known."""
    rates = {side.setting.server: side.requests_per_second for side in sides}
    ours, rivals = rates.get(OURS), [rate for name, rate in rates.items() if name in RIVALS]
    known = [rate for rate in rivals if rate]
    ratio = round(ours / max(known), 2) if ours and known and len(known) == len(rivals) else None
    return {"requests_per_second": rates, "times_the_best_rival": ratio}


async def measure(options: Any, texts: Sequence[str], folder: Path, running: ExitStack) -> dict[str, Any]:
    """Choose settings, then all rates in rounds."""
    run = Run(options, texts)
    for name, settings in settings_of(options, folder).items():
        found: list[dict[str, Any]] = [{"capacity": 0.0}]  # with --smoke the rival, which starts slowly, is not probed
        if name == OURS or not options.smoke:
            found = [await probe(setting, texts, folder, options.probe) for setting in settings]
        run.probes += found
        if any("capacity" in one for one in found):
            best = max(range(len(found)), key=lambda i: found[i].get("capacity", 0.0))
            run.sides.append(Side(settings[best], running.enter_context(start(settings[best], folder))))
        else:
            print(f"{name} is left out: {found[0]['error']}", file=sys.stderr, flush=True)
        run.keep()
    run.vectors = [await vectors_of(side, texts) for side in run.sides]
    for side in run.sides:
        side.process.pause()
    longest = 0.0  # seconds of a round
    for number in range(options.rounds):
        if not run.time_for(longest):
            break
        begun = time.perf_counter()
        await one_round(run, number)
        longest = max(longest, time.perf_counter() - begun)
        run.keep()
    return run.result


async def one_round(run: Run, number: int) -> None:
    """All rates, each with every server that has hope."""
    hopeful = list(run.sides)
    for rate in run.options.rates:
        for side in list(hopeful):
            load = await trial(side, run.texts, rate, run.options.trial, number)
            side.trials.setdefault(rate, []).append(load.result)
            shown_p99 = shown(load.result)["p99_ms"]
            print(f"round {number + 1}", side.setting.server, rate, shown_p99, file=sys.stderr, flush=True)
            if not load.latencies or load.quantile(0.99) > HOPELESS or load.statuses[200] < load.sent:
                hopeful.remove(side)


def start(setting: Setting, folder: Path) -> Any:
    """The server in this setting, as a block."""
    port = free_port()
    command = [word.replace("{port}", str(port)) for word in setting.command]
    return started(command, port, folder / f"{port}.log", {**os.environ, **setting.environment})


async def probe(setting: Setting, texts: Sequence[str], folder: Path, seconds: float) -> dict[str, Any]:
    """How much a setting answers with a p99 within the limit (`capacity`); or why it does not start.

    `clients`: for each number of clients the requests a second, and p99 in milliseconds.
    """
    facts = {"server": setting.server, "setting": setting.name}
    try:
        with start(setting, folder) as process:
            client, requests = Client(process.address), embedding_requests(process.address, texts)
            await closed_loop(client, requests, 8, seconds / 3)
            loads = [await closed_loop(client, requests, many, seconds / len(CLIENTS)) for many in CLIENTS]
            client.close()
    except RuntimeError as error:
        return {**facts, "error": str(error)[-300:]}
    if not any(load.latencies for load in loads):
        return {**facts, "error": "it answered no request"}
    held = [load.answered for load in loads if load.quantile(0.99) <= P99]
    # ranks settings that are too slow even for one client
    slow = min(load.quantile(0.99) for load in loads if load.latencies)
    found = {**facts, "capacity": round(max(held, default=P99 / slow), 2)}
    found["clients"] = {
        str(n): [round(load.answered, 1), load.result["p99_ms"]] for n, load in zip(CLIENTS, loads, strict=True)
    }
    print(found, file=sys.stderr, flush=True)
    return found


async def trial(side: Side, texts: Sequence[str], rate: float, seconds: float, seed: int) -> Load:
    """One rate for some seconds, after a first second that does not count."""
    client, requests = Client(side.process.address), embedding_requests(side.process.address, texts)
    side.process.resume()
    await open_loop(client, requests, rate, min(SETTLE, seconds), seed)
    load = await open_loop(client, requests, rate, seconds, seed + 1000)
    client.close()
    side.process.pause()
    return load


async def vectors_of(side: Side, texts: Sequence[str]) -> Any:
    """Its vectors of some texts, to compare; this warms it up too."""
    client = Client(side.process.address)
    requests = embedding_requests(client.address, texts)
    answers = [await client.ask(request) for request in requests]
    client.close()
    return np.array([json.loads(answer.body)["data"][0]["embedding"] for answer in answers], np.float32)


if __name__ == "__main__":
    main()
