"""Idle and busy cores: our default settings beside other settings of OpenMP's threads, in turns.

    python benchmarks/busy.py [--data ../shared/data] [--rounds 5] [--neighbours 0 3] [--parts NAME ...] [--smoke]

A neighbour is a process that computes for up to 20 ms, then sleeps for up to 5 ms, and so on. The parts: `one request`
(median latency of an embedding request, one at a time) and `32 requests` (time until 32 concurrent requests are
answered) to a server with all-MiniLM-L6-v2, `fine-tuning` (seconds per step of MRPC with it) and `pre-training`
(seconds per step of L4 H256, length 128, batch 32). A server is paused while another one is measured; training takes a
fresh process per round. The settings: `default`; `fixed`, the library's own spinning whatever other programs do (3 ms);
`spin 1000`; `passive`; `one thread`. Reported are medians, and the ratios of the default to the best setting and to
`fixed`. Needs `pip install -e '.[test]'`.
"""

import contextlib
import dataclasses
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import common
import finetuning_scores
import pretraining
import server_process
from bertworks.data.store import Store
from finetuning_settings import TASKS

SETTINGS = {
    "default": {},
    "fixed": {"GOMP_SPINCOUNT": "300000"},
    "spin 1000": {"GOMP_SPINCOUNT": "1000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
PARTS = ("one request", "32 requests", "fine-tuning", "pre-training")
SERVED, SINGLES, BURSTS = PARTS[:2], 30, 3  # a round of a server
WARM = 40  # texts
NEIGHBOUR = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.perf_counter() + 0.02 * random.random()
    while time.perf_counter() < end:
        pass
    time.sleep(0.005 * random.random())
"""
SMOKE = {
    "rounds": 1,
    "neighbours": [0, 1],
    "steps": 1,
    "settings": ["default", "passive"],
    "settle": 0.0,
    "megabytes": 0.05,
}


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that compute in bursts, until the block ends."""
    running = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# ---- training, a process per round


def train(part: str, store: str, data: str, model: str, steps: int, small: bool) -> common.Result:
    """Seconds per step of fine-tuning or pre-training in this process."""
    if part == "fine-tuning":
        settings = dataclasses.replace(
            TASKS["mrpc"], epochs=1, rows=32 * steps, padding=False, data=Path(data), model=Path(model)
        )
        result = finetuning_scores.ours("mrpc", 1, settings)
        return {"seconds": result["seconds"] / result["steps"]}
    sizes = pretraining.Sizes(store, "cpu", steps, skip=1, small=small)
    opened, clock = Store.open(store, verify=False), pretraining.Clock(sizes.skip, torch.device("cpu"))
    pretraining.ours(opened, sizes.recipe(opened.vocab_size, "ours"), torch.device("cpu"), clock)
    return {"seconds": (clock.end - clock.start) / steps}


# ---- a server per setting


def ask(port: int, text: str) -> float:
    """Seconds until a request for the vector of a text is answered."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.closing(connection):
        body = json.dumps({"model": "model", "input": text})
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    if answer.status != 200:
        raise SystemExit(f"the server answered {answer.status}; expected 200")
    return time.perf_counter() - start


def burst(port: int, texts: list[str]) -> float:
    """Seconds until all of these requests, sent at once, are answered."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(lambda text: ask(port, text), texts))
    return time.perf_counter() - start


def served(server: server_process.Process, texts: list[str], settle: float) -> dict[str, float]:
    """The median latencies of a server in one round, after `settle` seconds of requests."""
    port = server.address.port
    settled = time.perf_counter() + settle
    while time.perf_counter() < settled:
        ask(port, texts[0])
    return {
        "one request": statistics.median(ask(port, text) for text in texts[:SINGLES]),
        "32 requests": statistics.median(burst(port, texts[i : i + 32]) for i in range(BURSTS)),
    }


@contextlib.contextmanager
def servers(options: Any, work: Path) -> Iterator[dict[str, server_process.Process]]:
    """A paused server for each setting."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name in options.settings if {*SERVED} & {*options.parts} else ():
            port = server_process.free_port()
            command = server_process.bertworks_command(options.model, port)
            log = work / f"{name}.log"
            running[name] = stack.enter_context(server_process.started(command, port, log, SETTINGS[name]))
            burst(port, server_process.mixed_texts(options.data, WARM))
            running[name].pause()
        yield running


# ---- all together


def measure(options: Any, work: Path) -> Iterator[tuple[str, int, str, float]]:
    """(part, neighbours, setting, seconds), round by round, with the settings in turns."""
    store = common.make_store(options.data, options.megabytes, work) if "pre-training" in options.parts else ""
    texts = server_process.mixed_texts(options.data, 32 + BURSTS)
    given = {"store": store, "data": options.data, "model": options.model, "steps": options.steps}
    with servers(options, work) as running:
        for number in range(options.rounds):
            order = (
                options.settings[number % len(options.settings) :] + options.settings[: number % len(options.settings)]
            )
            for count in options.neighbours:
                for name in order:
                    with neighbours(count):
                        if name in running:
                            running[name].resume()
                            yield from (
                                (part, count, name, found)
                                for part, found in served(running[name], texts, options.settle).items()
                            )
                            running[name].pause()
                        for part in [part for part in options.parts if part not in SERVED]:
                            side = {"part": part, **given, "small": options.smoke}
                            yield part, count, name, common.fresh(train, side, options.smoke, SETTINGS[name])["seconds"]


def summary(found: dict[tuple[str, int, str], list[float]]) -> list[common.Result]:
    """A row per part and number of neighbours: medians by setting, ratios of the default to the best and to `fixed`."""
    rows = []
    for part, count in dict.fromkeys((part, count) for part, count, _ in found):
        every = {name: values for (*key, name), values in found.items() if key == [part, count]}
        medians = {name: statistics.median(values) for name, values in every.items()}
        row = {"part": part, "neighbours": count, "seconds": medians, "every_round": every}
        row["default_to_best"] = medians["default"] / min(medians.values())
        if "fixed" in every:
            pairs = zip(every["default"], every["fixed"], strict=True)
            row["default_to_fixed"] = statistics.median(one / other for one, other in pairs)
        rows.append(row)
    return rows


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    if common.answer(train, argv):
        return
    parser = common.parser(__doc__, "busy.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="a model folder that embeds and is tuned")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 3], help="processes beside ours")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--steps", type=int, default=10, help="of training, per round")
    parser.add_argument("--settle", type=float, default=2.5, help="seconds of requests before those that count")
    parser.add_argument("--megabytes", type=float, default=3, help="of text")
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        found: dict[tuple[str, int, str], list[float]] = {}
        result: common.Result = {"what": (__doc__ or "").splitlines()[0], "machine": common.machine_facts()}
        combinations = len({*options.parts}) * len({*options.neighbours}) * len({*options.settings})
        for part, count, name, seconds in measure(options, Path(work)):
            found.setdefault((part, count, name), []).append(seconds)
            print(f"{part}, {count} neighbours, {name}: {seconds:.4f} s", file=sys.stderr, flush=True)
            if len(found) == combinations and len({len(values) for values in found.values()}) == 1:  # a round is over
                result["rows"] = summary(found)
                common.keep(options, result)
        common.finish(options, result)


if __name__ == "__main__":
    main(sys.argv[1:])
