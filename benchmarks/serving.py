"""Requests a second at a p99 of 100 ms: our server beside infinity-emb and a plain FastAPI server, in one run.

    python benchmarks/serving.py [--infinity VENV/bin/infinity_emb] [--rounds 5] [--minutes 8] [--data ../shared/data]
        [--out FILE] [--smoke]

The same model (all-MiniLM-L6-v2), the same texts (3 to 180 words), one text a request, the same OpenAI request and JSON
answer. Every server is tried in several settings (precision, threads, batch) with 1 to 16 clients that ask one after
the other; its best setting answers most with a p99 below 100 ms, and stays loaded. Then rounds: each server in turn
gets open-loop load (open_loop.py) at the rate that bisection gives it, while the others are paused. It has held the
rate if every request was answered and p99 stayed below 100 ms, counted from the intended time of sending, without the
first second; a rate that was not held is tried twice. At last the highest rate held is confirmed in three longer
rounds; where their median p99 is too high, the rate falls by a tenth and they repeat. `requests_per_second` of a server
is null until a rate is confirmed, and so is the ratio to the rivals until all are. --minutes bounds the run: rounds and
confirmations that would not end in time do not begin. The result is written after every server and every round. Nothing
else should run.

infinity-emb needs an environment of its own (`pip install infinity-emb[server,torch]`); without --infinity it is left
out. It runs with its engine torch, which that command installs. Its engine optimum reads an ONNX file, which the model
folder does not have, and was not tried: the result says nothing about it. Client and server share the machine's cores.
The result has each server's settings, every trial, and the vectors' largest difference from ours.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import common
from open_loop import Client, Load, closed_loop, open_loop, raise_file_limit, shown
from server_process import Process, bertworks_command, free_port, mixed_texts, started

P99 = 0.100  # seconds
CLIENTS = (1, 2, 4, 8, 16)  # that ask one after the other, to choose a setting
SETTLE = 1.0  # seconds of a trial that do not count
CONFIRMATIONS = 3
FALL = 0.9
ENGINE = "torch"  # of infinity-emb
INFINITY = f"engine {ENGINE}; its engine optimum was not tried: the model folder has no ONNX file, which that reads"
SMOKE = {"rounds": 2, "trial": 1.0, "confirm": 1.0, "probe": 0.5, "texts": 20, "minutes": 2.0, "infinity": None}


@dataclass(frozen=True)
class Setting:
    """One way to start a server."""

    server: str  # whose it is
    name: str  # precision, threads, batch, for people
    command: Sequence[str]  # {port} is replaced
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = "/v1/embeddings"


@dataclass
class Side:
    """A server in its best setting, and what it has held."""

    setting: Setting
    process: Process
    capacity: float
    low: float = 0.0  # highest rate held
    high: float = 0.0  # lowest rate not held; 0: none yet
    doubted: float = 0.0  # a rate that was not held once; 0: none
    trials: list[dict[str, Any]] = field(default_factory=list)
    confirmed: dict[str, Any] = field(default_factory=dict)

    @property
    def next_rate(self) -> float:
        """The middle of the bracket; seven tenths of the capacity at first. A rate that was not held is tried again."""
        if self.doubted:
            return self.doubted
        if not self.high:
            return self.low * 1.3 if self.low else self.capacity * 0.7
        return (self.low + self.high) / 2

    def add(self, rate: float, held: bool) -> None:
        """A rate was tried."""
        again, self.doubted = self.doubted, 0.0
        if held:
            self.low = max(self.low, rate)
        elif again:
            self.high = min(self.high or rate, rate)
        else:
            self.doubted = rate
        if self.high and self.low >= self.high:  # noise: an earlier failure was none
            self.high = self.low * 1.1


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "serving.json")
    made.add_argument("--infinity", type=Path, help="the program infinity_emb of its environment; left out without")
    made.add_argument("--rounds", type=int, default=5, help="of bisection")
    made.add_argument("--trial", type=float, default=5.0, help="seconds of a trial")
    made.add_argument("--confirm", type=float, default=8.0, help="seconds of a confirmation")
    made.add_argument("--probe", type=float, default=4.0, help="seconds in which a setting is probed")
    made.add_argument("--minutes", type=float, default=8.0, help="that the run may take")
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


def settings_of(options: Any) -> dict[str, list[Setting]]:
    """Every server's settings."""
    found = {"bertworks": ours(options), "FastAPI + sentence-transformers": plain(options)}
    if options.infinity:
        found["infinity-emb"] = infinity(options)
    return {name: some[:1] for name, some in found.items()} if options.smoke else found


def ours(options: Any) -> list[Setting]:
    """As it comes, in float32, and in smaller batches."""
    flags: list[list[str]] = [[], ["--precision", "float32"], ["--batch-tokens", "512"]]
    command = bertworks_command(options.model, 0)
    return [Setting("bertworks", " ".join(more) or "as it comes", [*command[:-1], "{port}", *more]) for more in flags]


def plain(options: Any) -> list[Setting]:
    """Both precisions; requests at a time: FastAPI's 40, one for each core, or one on all cores."""
    command = [sys.executable, "-m", "uvicorn", "serving_plain:app", "--port", "{port}", "--log-level", "warning"]
    cores = str(os.cpu_count())
    found = []
    tried = ("bfloat16", "40", cores), ("bfloat16", cores, "1"), ("bfloat16", "1", cores), ("float32", "1", cores)
    for kind, tokens, threads in tried:
        environment = {"MODEL": str(options.model), "DTYPE": kind, "TOKENS": tokens, "THREADS": threads}
        name = f"{kind}, requests at a time: {tokens}, threads of torch: {threads}"
        found.append(Setting("FastAPI + sentence-transformers", name, command, environment))
    return found


def infinity(options: Any) -> list[Setting]:
    """Both precisions, and two sizes of batches."""
    base = [str(options.infinity), "v2", "--model-id", str(options.model), "--served-model-name", "model"]
    base += ["--device", "cpu", "--engine", ENGINE, "--host", "127.0.0.1", "--port", "{port}"]
    base += ["--no-bettertransformer", "--log-level", "warning"]
    environment = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    return [
        Setting(
            "infinity-emb",
            f"{kind}, batches of {size}",
            [*base, "--dtype", kind, "--batch-size", size],
            environment,
            "/embeddings",
        )
        for kind, size in (("bfloat16", "32"), ("bfloat16", "8"), ("float32", "32"))
    ]


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
            **rates_of(self.sides),
            "settings": {side.setting.server: side.setting.name for side in self.sides},
            "infinity": INFINITY if self.options.infinity else "left out; name its program with --infinity",
            "probes": self.probes,
            "trials": {side.setting.server: side.trials for side in self.sides},
            "confirmed": {side.setting.server: side.confirmed for side in self.sides},
            "largest_difference_from_ours": {
                side.setting.server: float(np.abs(found - self.vectors[0]).max())
                for side, found in zip(self.sides, self.vectors, strict=False)
            },
        }


def rates_of(sides: Sequence[Side]) -> dict[str, Any]:
    """Each server's confirmed rate, or None; and ours by the best rival's, or None unless all are confirmed."""
    rates = {side.setting.server: side.confirmed["rate"] if side.confirmed.get("held") else None for side in sides}
    ours, rivals = rates.get("bertworks"), [rate for name, rate in rates.items() if name != "bertworks"]
    held = [rate for rate in rivals if rate]
    ratio = round(ours / max(held), 2) if ours and held and len(held) == len(rivals) else None
    return {"requests_per_second": rates, "times_the_best_rival": ratio}


async def measure(options: Any, texts: Sequence[str], folder: Path, running: ExitStack) -> dict[str, Any]:
    """Choose settings, bisect in rounds, confirm."""
    run = Run(options, texts)
    for name, settings in settings_of(options).items():
        found = [await probe(setting, texts, folder, options.probe) for setting in settings]
        run.probes += found
        working = [one for one in found if "capacity" in one]
        if working:
            best = max(working, key=lambda one: float(one["capacity"]))
            setting = settings[found.index(best)]
            run.sides.append(Side(setting, running.enter_context(start(setting, folder)), best["capacity"]))
        else:
            print(f"{name} is left out: {found[0]['error']}", file=sys.stderr, flush=True)
        run.keep()
    run.vectors = [await vectors_of(side, texts[:20]) for side in run.sides]
    for side in run.sides:
        side.process.pause()
    last = len(run.sides) * CONFIRMATIONS * (options.confirm + SETTLE)  # seconds that one confirmation takes
    for number in range(options.rounds):
        if run.time_for(last + len(run.sides) * (options.trial + SETTLE)):
            for side in run.sides:
                await trial(side, texts, side.next_rate, options.trial, number)
            run.keep()
    await confirm(run)
    return run.result


def start(setting: Setting, folder: Path) -> Any:
    """The server in this setting, as a block."""
    port = free_port()
    command = [word.replace("{port}", str(port)) for word in setting.command]
    return started(command, port, folder / f"{port}.log", {**os.environ, **setting.environment})


def requests_for(side: Process, path: str, texts: Sequence[str]) -> list[bytes]:
    """A request for each text."""
    bodies = (json.dumps({"model": "model", "input": text}).encode() for text in texts)
    return [side.address.post(path, body) for body in bodies]


async def probe(setting: Setting, texts: Sequence[str], folder: Path, seconds: float) -> dict[str, Any]:
    """How much a setting answers with a p99 within the limit (`capacity`); or why it does not start.

    `clients`: for each number of clients the requests a second, and p99 in milliseconds.
    """
    facts = {"server": setting.server, "setting": setting.name}
    try:
        with start(setting, folder) as process:
            client, requests = Client(process.address), requests_for(process, setting.path, texts)
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


async def trial(side: Side, texts: Sequence[str], rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """One rate for some seconds; moves the bracket."""
    client, requests = Client(side.process.address), requests_for(side.process, side.setting.path, texts)
    side.process.resume()
    await open_loop(client, requests, rate, SETTLE if seconds > 2 else 0.2, seed)
    load = await open_loop(client, requests, rate, seconds, seed + 1000)
    client.close()
    side.process.pause()
    held = holds(load)
    side.add(rate, held)
    side.trials.append({**load.result, "held": held})
    print(side.setting.server, f"{rate:.1f}", shown(load.result)["p99_ms"], held, file=sys.stderr, flush=True)
    return side.trials[-1]


def holds(load: Load) -> bool:
    """Whether every request was answered, and p99 is within the limit."""
    return load.statuses[200] == load.sent and not load.unsent and load.quantile(0.99) <= P99


async def confirm(run: Run) -> None:
    """The highest rate held, in longer rounds; it falls where the median p99 is too high, while there is time."""
    seconds, sides = run.options.confirm, list(run.sides)
    rates = {side.setting.server: side.low or side.capacity / 10 for side in sides}
    attempt = 0
    while sides and run.time_for(len(sides) * CONFIRMATIONS * (seconds + SETTLE)):
        attempt += 1
        found: list[list[dict[str, Any]]] = [[] for _ in sides]
        for number in range(CONFIRMATIONS):
            for side, runs in zip(sides, found, strict=True):
                rate = rates[side.setting.server]
                runs.append(await trial(side, run.texts, rate, seconds, 100 * attempt + number))
        for side, runs in zip(sides, found, strict=True):
            side.confirmed = confirmed(rates[side.setting.server], runs)
            rates[side.setting.server] *= FALL
        sides = [side for side in sides if not side.confirmed["held"]]
        run.keep()


def confirmed(rate: float, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Whether a rate was held: every request answered, and the median p99 of its runs within the limit."""
    p99 = [run["p99_ms"] for run in runs]
    held = None not in p99 and all(run["accepted"] == run["sent"] for run in runs)
    held = held and statistics.median(p99) <= 1000 * P99
    return {"rate": round(rate, 1), "p99_ms": p99, "held": held}


async def vectors_of(side: Side, texts: Sequence[str]) -> Any:
    """Its vectors of some texts, to compare."""
    client = Client(side.process.address)
    answers = [await client.ask(request) for request in requests_for(side.process, side.setting.path, texts)]
    client.close()
    return np.array([json.loads(answer.body)["data"][0]["embedding"] for answer in answers], np.float32)


if __name__ == "__main__":
    main()
