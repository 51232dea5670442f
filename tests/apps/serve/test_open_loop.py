"""The load that benchmarks/ makes: it counts every request, from its intended time, and stays on this machine."""

import asyncio
import contextlib
import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy"


@pytest.fixture
def loop(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("open_loop")


async def load_on(loop, answer, rate=400.0, seconds=0.5):
    """The load on a server that calls `answer(number)` for each request: bytes, or None to hang up."""
    count = 0

    async def serve(reader, writer):
        nonlocal count
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                count += 1
                if (found := answer(count)) is None:
                    break
                writer.write(found)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = loop.Address(*server.sockets[0].getsockname())
    client = loop.Client(address)
    load = await loop.open_loop(client, [address.post("/", b"{}")], rate, seconds)
    client.close()
    server.close()
    return load, count


def test_every_request_is_counted_once(loop):
    answers = {0: OK, 1: BUSY, 2: None}
    load, received = asyncio.run(load_on(loop, lambda number: answers[number % 3]))
    found = load.result
    assert found["sent"] == received == found["accepted"] + found["refused"] + found["lost"] and found["sent"] > 100
    assert found["accepted"] == len(load.latencies) == found["statuses"]["200"] == received // 3
    assert abs(found["refused"] - found["lost"]) <= 1 and found["other"] == found["unsent"] == 0
