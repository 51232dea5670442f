"""Our server under more load than it can take: what becomes of every request, latencies, memory, faults, its end.

    python benchmarks/serving_load.py [--seconds 60] [--hour] [--data ../shared/data] [--out FILE] [--smoke]

all-MiniLM-L6-v2 behind `bertworks serve`, one text a request, from 3 to 180 words. First the capacity: requests a
second that 32 clients get who ask one after the other. Then open-loop load (open_loop.py) at 0.5, 1 and 2 times the
capacity, `--seconds` each; with `--hour` an hour at 2 times alone. A request is accepted (200), refused (429, 503), or
something is wrong. Latencies count from the intended time of sending, so that a queue cannot hide. Then load at 0.5
times while other clients misbehave: they leave before the answer, send their bodies slowly, send what is no JSON. At
last SIGTERM under load at 2 times: whatever was sent before it is answered. The client shares the machine's cores with
the server. Load is made on 127.0.0.1 alone.

It fails if a request is lost or answered otherwise than documented, if p99 of the accepted ones exceeds 15 seconds, or
if memory grows over the second half of a level of ten minutes or more (so with `--hour`): by more than 1 MB an hour, at
the lower bound of the slope's 95 % interval.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from open_loop import REFUSALS, Answer, Client, Load, Memory, closed_loop, open_loop, raise_file_limit, shown
from server_process import Process, bertworks_command, embedding_requests, free_port, mixed_texts, started

LEVELS = (0.5, 1.0, 2.0)
SHORTEST = 600.0  # seconds of a level whose memory is judged: in a shorter one the allocator still settles
MOST_GROWTH = 1.0  # MB an hour: the lower bound of the 95 % interval over a level's second half
MOST_P99 = 15_000.0  # ms; --max-requests bounds the queue
CLIENTS = 32  # that measure the capacity
MARGIN = 0.25  # seconds before SIGTERM in which a request may still be on its way to the server
WRONG = {  # bodies that are refused: the documented status, and the body
    "half of a JSON object": (400, b'{"input": "a'),
    "malformed UTF-8": (400, b'{"input": "\xff\xfe"}'),
    "half of a character": (400, b'{"input": "\\ud800"}'),
    "deep nesting": (400, b"[" * 100_000),
    "another form": (422, b'{"input": {"a": 1}}'),
    "no text": (400, b'{"input": ""}'),
    "ids beyond the vocabulary": (422, b'{"input": [[99999999]]}'),
    "too many tokens": (413, b'{"input": [' + b'"a",' * 110_000 + b'"a"]}'),
    "a body that is too large": (413, b'{"input": "' + b" " * 5_000_000 + b'"}'),
}
SMOKE = {"seconds": 1.0, "texts": 20}


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "serving-load.json")
    made.add_argument("--seconds", type=float, default=60.0, help="of each level")
    made.add_argument("--hour", action="store_true", help="an hour at 2 times the capacity, without the other levels")
    made.add_argument("--texts", type=int, default=1000, help="different texts")
    made.add_argument("--model", type=Path, default=common.minilm(), help="model folder to serve")
    with common.parsed(made, argv, SMOKE) as options:
        common.need(options.data / common.TEXT, options.model)
        if options.hour and options.out == common.RESULTS / "serving-load.json":
            options.out = common.RESULTS / "serving-load-hour.json"
        raise_file_limit()
        with tempfile.TemporaryDirectory() as folder:
            result = asyncio.run(measure(options, Path(folder)))
        common.finish(options, result)
        wrong = problems(result)
        if wrong and not options.smoke:  # beside other benchmarks a request may miss the margin before SIGTERM
            raise SystemExit("\n".join(wrong))


async def measure(options: Any, folder: Path) -> dict[str, Any]:
    """All parts, each on a fresh server."""
    texts = mixed_texts(options.data, options.texts)
    result: dict[str, Any] = {"machine": common.machine_facts(), "model": options.model.name, "texts": len(texts)}
    port = free_port()
    with started(bertworks_command(options.model, port), port, folder / "log") as server:
        capacity = await measure_capacity(server, texts, 2.0 if options.smoke else 15.0)
        result["capacity_per_second"] = round(capacity, 2)
        times = (2.0,) if options.hour else LEVELS
        seconds = 3600.0 if options.hour else options.seconds
        result["levels"] = [await level(server, texts, capacity, factor, seconds) for factor in times]
        result["faults"] = await under_faults(server, texts, capacity, 3.0 if options.smoke else 20.0)
    port = free_port()
    with started(bertworks_command(options.model, port), port, folder / "log") as server:
        result["sigterm"] = await ended(server, texts, 2 * capacity, 2.0 if options.smoke else 6.0)
    return result


async def measure_capacity(server: Process, texts: Sequence[str], seconds: float) -> float:
    """Requests a second, after a warm-up."""
    client, requests = Client(server.address), embedding_requests(server.address, texts)
    await closed_loop(client, requests, CLIENTS, seconds / 3)
    found = (await closed_loop(client, requests, CLIENTS, seconds)).answered
    client.close()
    if not found:
        raise SystemExit(f"the server answers no request: {server.tail}")
    return found


async def level(
    server: Process, texts: Sequence[str], capacity: float, factor: float, seconds: float
) -> dict[str, Any]:
    """Load at so many times the capacity, and the server's memory meanwhile."""
    client, memory = Client(server.address), Memory(server.process.pid, min(1.0, seconds / 20))
    async with memory.watched():
        load = await open_loop(client, embedding_requests(server.address, texts), factor * capacity, seconds)
    client.close()
    found = {"times_capacity": factor, **load.result, "memory": memory.result}
    print(shown(found), file=sys.stderr, flush=True)
    return found


# ---- faults


async def under_faults(server: Process, texts: Sequence[str], capacity: float, seconds: float) -> dict[str, Any]:
    """Load at half the capacity while others misbehave, and what these get."""
    client = Client(server.address)
    requests = embedding_requests(server.address, texts)
    load, left, slow, wrong = await asyncio.gather(
        open_loop(client, requests, capacity / 2, seconds),
        leavers(server, requests, seconds),
        slow_bodies(server, seconds),
        malformed(server, seconds),
    )
    client.close()
    after = await Client(server.address).ask(server.address.get("/health"))
    return {"load": load.result, "left_early": left, "slow_bodies": slow, "malformed": wrong, "health": after.status}


async def leavers(server: Process, requests: Sequence[bytes], seconds: float) -> int:
    """Clients that close their connection before the answer; returns how many."""
    end, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection(*server.address)
        writer.write(requests[number % len(requests)])
        await writer.drain()
        await asyncio.sleep(0.002)
        writer.transport.abort() if number % 2 else writer.close()
        number += 1
        await asyncio.sleep(0.03)
    return number


async def slow_bodies(server: Process, seconds: float) -> dict[str, int]:
    """Clients whose bodies arrive a byte at a time; returns their statuses, 408 expected."""
    found: Counter[str] = Counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(server.address.post("/v1/embeddings", b" " * 1000)[:-1000])
        answer = asyncio.create_task(reader.read(100))
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.1)
        found[(await answer)[9:12].decode()] += 1
        writer.close()

    await asyncio.gather(*(one() for _ in range(20)))
    return dict(found)


async def malformed(server: Process, seconds: float) -> dict[str, dict[str, int]]:
    """Every body of WRONG again and again; returns the statuses of each."""
    found: dict[str, Counter[str]] = {name: Counter() for name in WRONG}
    client, end = Client(server.address), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, (_, body) in WRONG.items():
            answer: Answer = await client.ask(server.address.post("/v1/embeddings", body))
            found[name][str(answer.status)] += 1
            await asyncio.sleep(0.02)
    client.close()
    return {name: dict(statuses) for name, statuses in found.items()}


# ---- the end


async def ended(server: Process, texts: Sequence[str], rate: float, seconds: float) -> dict[str, Any]:
    """SIGTERM in the middle of a load: what was sent before is answered, what comes after is refused."""
    client, requests = Client(server.address), embedding_requests(server.address, texts)
    before, after = Load(rate, seconds / 2), Counter[str]()
    signalled = 0.0

    async def one(number: int) -> None:
        sent = time.perf_counter()
        answer = await client.ask(requests[number % len(requests)])
        if signalled and not 0 < answer.written <= signalled - MARGIN:
            after[str(answer.status or ("closed" if answer.written else "not connected"))] += 1
        else:
            before.sent += 1
            before.add(answer.status, time.perf_counter() - sent)

    tasks, begun, number = [], time.perf_counter(), 0
    while (now := time.perf_counter() - begun) < seconds:
        if not signalled and now > seconds / 2:
            os.kill(server.process.pid, signal.SIGTERM)
            signalled = time.perf_counter()
        tasks.append(asyncio.create_task(one(number)))
        number += 1
        await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
    await asyncio.gather(*tasks)
    before.finished = signalled - begun
    status = await asyncio.to_thread(server.process.wait, 60)
    return {
        "before": before.result,
        "after": dict(after),
        "exit_status": status,
        "seconds_to_exit": round(time.perf_counter() - signalled, 2),
    }


def level_problems(level: dict[str, Any]) -> list[str]:
    """What is wrong with a level's latencies and memory."""
    found, name = [], f"{level['times_capacity']:g} times capacity"
    p99 = level["p99_ms"]
    if p99 is None:
        found.append(f"{name}: no request was accepted, so there is no p99")
    elif p99 > MOST_P99:
        found.append(f"{name}: p99 {p99} ms; expected at most {MOST_P99:g} ms")
    if level["seconds"] >= SHORTEST:
        bounds = level["memory"].get("mb_per_hour_interval")
        if bounds is None:
            found.append(f"{name}: too few samples of memory; expected one each second")
        elif bounds[0] > MOST_GROWTH:
            found.append(
                f"{name}: memory grows by {bounds} MB an hour; expected a lower bound of at most {MOST_GROWTH:g}"
            )
    return found


def problems(result: dict[str, Any]) -> list[str]:
    """What is not as documented; empty if all is well."""
    found = [problem for one in result["levels"] for problem in level_problems(one)]
    loads = {f"{one['times_capacity']:g} times capacity": one for one in result["levels"]}
    loads |= {"faults": result["faults"]["load"], "before SIGTERM": result["sigterm"]["before"]}
    for name, load in loads.items():
        if load["lost"] or load["other"] or load["unsent"]:
            found.append(f"{name}: lost {load['lost']}, other statuses {load['other']}, unsent {load['unsent']}")
    faults = result["faults"]
    expected = {name: {str(status)} for name, (status, _) in WRONG.items()}
    found += [
        f"{name}: statuses {statuses}; expected {expected[name]}"
        for name, statuses in faults["malformed"].items()
        if not {*statuses} <= expected[name] | {str(status) for status in REFUSALS}
    ]
    if {*faults["slow_bodies"]} != {"408"} or faults["health"] != 200:
        found.append(f"slow bodies: {faults['slow_bodies']}, health {faults['health']}; expected 408 and 200")
    after = {*result["sigterm"]["after"]}
    if result["sigterm"]["exit_status"] or not after <= {"200", "429", "503", "closed", "not connected"}:
        found.append(f"SIGTERM: exit status {result['sigterm']['exit_status']}, then {sorted(after)}")
    return found


if __name__ == "__main__":
    main()
