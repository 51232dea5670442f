"""Our server under more load than it can take: what becomes of every request, latencies, and memory.

    python benchmarks/serving_load.py [--seconds 60] [--hour] [--data ../shared/data] [--out FILE] [--smoke]

all-MiniLM-L6-v2 behind `bertworks serve`, one text per request, 3 to 180 words. First the capacity: requests per second
of 32 clients, each of which waits for its answer before it sends the next request. Then open-loop load (open_loop.py)
at 0.5, 1 and 2 times the capacity, `--seconds` each; with `--hour` an hour at 2 times the capacity only. A request is
accepted (200), refused (429, 503), or lost. Latencies count from the intended time of sending, so that a queue is not
hidden. The client shares the machine's cores with the server and connects to 127.0.0.1 only.

The benchmark fails if a request is lost or answered otherwise than documented, if the p99 of the accepted ones exceeds
15 seconds, or if memory grows over the second half of a level of ten minutes or more (so with `--hour`): by more than
1 MB per hour, at the lower bound of the slope's 95 % interval.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from open_loop import Client, Memory, closed_loop, open_loop, raise_file_limit, shown
from server_process import Process, bertworks_command, embedding_requests, free_port, mixed_texts, started

LEVELS = (0.5, 1.0, 2.0)
SHORTEST = 600.0  # seconds of a level whose memory is judged: in a shorter one the allocator still settles
MOST_GROWTH = 1.0  # MB per hour: the lower bound of the 95 % interval over a level's second half
MOST_P99 = 15_000.0  # ms; --max-requests bounds the queue
CLIENTS = 32  # that measure the capacity
SMOKE = {"seconds": 0.4, "texts": 20}


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
        if wrong and not options.smoke:  # beside other benchmarks the latencies mean nothing
            raise SystemExit("\n".join(wrong))


async def measure(options: Any, folder: Path) -> dict[str, Any]:
    """The capacity, then each level of load on the same server."""
    texts = mixed_texts(options.data, options.texts)
    result: dict[str, Any] = {"machine": common.machine_facts(), "model": options.model.name, "texts": len(texts)}
    port = free_port()
    with started(bertworks_command(options.model, port), port, folder / "log") as server:
        capacity = await measure_capacity(server, texts, 0.5 if options.smoke else 15.0)
        result["capacity_per_second"] = round(capacity, 2)
        times = (2.0,) if options.hour else LEVELS
        seconds = 3600.0 if options.hour else options.seconds
        result["levels"] = [await level(server, texts, capacity, factor, seconds) for factor in times]
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


def problems(result: dict[str, Any]) -> list[str]:
    """Returns what is not as documented; empty if all is well."""
    return [f"{one['times_capacity']:g} times capacity: {what}" for one in result["levels"] for what in _wrong(one)]


def _wrong(level: dict[str, Any]) -> list[str]:
    found, p99 = [], level["p99_ms"]
    if level["lost"] or level["other"] or level["unsent"]:
        found.append(f"lost {level['lost']}, other statuses {level['other']}, unsent {level['unsent']}")
    if p99 is None or p99 > MOST_P99:
        found.append(f"p99 {p99} ms; expected at most {MOST_P99:g} ms")
    if level["seconds"] >= SHORTEST:
        bounds = level["memory"].get("mb_per_hour_interval")
        if bounds is None or bounds[0] > MOST_GROWTH:
            found.append(f"memory grows by {bounds} MB per hour; expected a lower bound of at most {MOST_GROWTH:g}")
    return found


if __name__ == "__main__":
    main()
