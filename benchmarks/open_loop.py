"""Load on a server of this machine: requests at times that do not depend on its answers, and its memory meanwhile.

A client that waits for answers before it asks again sends less when the server is slow, and so hides the queue. Here
requests have intended times, drawn beforehand (a Poisson process); a latency counts from there, whatever has delayed
the request. The client is one thread of raw sockets, because it shares the processor with the server.
"""

import asyncio
import contextlib
import ipaddress
import re
import resource
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import psutil
from scipy import stats

MOST_REQUESTS = 5_000_000  # of a run
MOST_CONNECTIONS = 4_000  # at a time; what exceeds them is counted as unsent
ANSWER_SECONDS = 60.0  # without an answer for so long a request is lost
REFUSALS = (429, 503)
BLOCKS = 24  # of memory samples, whose means the regression uses: neighbouring samples depend on each other
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Address(NamedTuple):
    """Where a server listens: always on this machine."""

    host: str
    port: int

    def check(self) -> None:
        """Raises ValueError for an address beyond this machine."""
        if not ipaddress.ip_address(self.host).is_loopback:
            raise ValueError(f"{self.host} is not on this machine; load is made on 127.0.0.1 alone")

    def post(self, path: str, body: bytes) -> bytes:
        """The bytes of a POST request with a JSON body."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def get(self, path: str) -> bytes:
        """The bytes of a GET request."""
        return f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n\r\n".encode()


class Answer(NamedTuple):
    """What came back."""

    status: int  # 0: the connection was closed, refused or silent
    body: bytes = b""


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.need = -1  # bytes of the answer; -1: its head is not complete
        self.waiting: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> "asyncio.Future[Answer]":
        """Send a request; the future is its answer."""
        assert self.transport is not None
        self.buffer.clear()
        self.need = -1
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.waiting

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.need < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = LENGTH.search(self.buffer, 0, end + 2)
            self.need = end + 4 + int(length[1] if length else 0)
        if len(self.buffer) >= self.need:
            body = bytes(self.buffer[self.buffer.find(b"\r\n\r\n") + 4 :])
            self._give(Answer(int(self.buffer[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._give(Answer(0))

    def _give(self, answer: Answer) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(answer)

    @property
    def usable(self) -> bool:
        """Whether it can carry another request."""
        assert self.transport is not None
        return not self.transport.is_closing() and b"connection: close" not in self.buffer[:400].lower()


class Client:
    """Connections to one server, opened when they are needed and used again."""

    def __init__(self, address: Address):
        address.check()
        self.address = address
        self.idle: list[Connection] = []
        self.open = 0

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request; status 0 if there is none."""
        connection = None
        while self.idle and connection is None:
            connection = self.idle.pop()
            if not connection.usable:
                self.open -= 1
                connection = None
        try:
            if connection is None:
                self.open += 1
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(Connection, *self.address)
            answer = await asyncio.wait_for(connection.ask(request), ANSWER_SECONDS)
        except (OSError, TimeoutError):
            self._drop(connection)
            return Answer(0)
        if answer.status and connection.usable:
            self.idle.append(connection)
        else:
            self._drop(connection)
        return answer

    def _drop(self, connection: Connection | None) -> None:
        self.open -= 1
        if connection is not None and connection.transport is not None:
            connection.transport.close()

    def close(self) -> None:
        """Close the idle connections."""
        while self.idle:
            self._drop(self.idle.pop())


@dataclass
class Load:
    """What became of the requests of a run; every one is accepted, refused, failed, lost or unsent."""

    rate: float  # intended requests a second
    seconds: float  # in which they were sent
    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    unsent: int = 0  # too many were under way
    latencies: "array[float]" = field(default_factory=lambda: array("d"))  # of accepted ones, from the intended time
    lags: "array[float]" = field(default_factory=lambda: array("d"))  # from the intended to the real time of sending
    finished: float = 0.0  # seconds from the first intended time to the last answer

    def add(self, status: int, latency: float) -> None:
        """A request is over."""
        self.statuses[status] += 1
        if status == 200:
            self.latencies.append(latency)

    def quantile(self, share: float) -> float:
        """Seconds below which this share of the accepted requests stayed; NaN if none was accepted."""
        return float(np.quantile(self.latencies, share)) if self.latencies else float("nan")

    def milliseconds(self, share: float) -> float | None:
        """The same in milliseconds, as results have it; None if no request was accepted."""
        return round(1000 * self.quantile(share), 2) if self.latencies else None

    @property
    def answered(self) -> float:
        """Accepted requests a second."""
        return self.statuses[200] / max(self.finished, 1e-9)

    @property
    def result(self) -> dict[str, Any]:
        """The counts, and latencies in milliseconds."""
        accepted, refused = self.statuses[200], sum(self.statuses[status] for status in REFUSALS)
        lost = self.statuses[0]
        return {
            "rate": round(self.rate, 2),
            "seconds": self.seconds,
            "sent": self.sent,
            "accepted": accepted,
            "refused": refused,
            "lost": lost,
            "other": self.sent - accepted - refused - lost,
            "unsent": self.unsent,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "accepted_per_second": round(self.answered, 2),
            "p50_ms": self.milliseconds(0.5),
            "p99_ms": self.milliseconds(0.99),
            "client_lag_p99_ms": round(1000 * float(np.quantile(self.lags, 0.99)), 2) if self.lags else 0.0,
        }


async def open_loop(client: Client, requests: Sequence[bytes], rate: float, seconds: float, seed: int = 1) -> Load:
    """Send requests at intended times for so many seconds, and wait for all answers. Bounded in number and time."""
    if rate * seconds > MOST_REQUESTS:
        raise ValueError(f"{rate:g} requests a second for {seconds:g} seconds; at most {MOST_REQUESTS:,} a run")
    load, chance = Load(rate, seconds), np.random.default_rng(seed)
    under_way: set[asyncio.Task[None]] = set()
    begin = time.perf_counter() + 0.05

    async def one(request: bytes, due: float) -> None:
        answer = await client.ask(request)
        load.add(answer.status, time.perf_counter() - due)

    due = begin
    while (due := due + chance.exponential(1 / rate)) < begin + seconds:
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        if client.open >= MOST_CONNECTIONS:
            load.unsent += 1
            continue
        load.lags.append(time.perf_counter() - due)
        task = asyncio.create_task(one(requests[load.sent % len(requests)], due))
        load.sent += 1
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    load.finished = time.perf_counter() - begin
    return load


async def closed_loop(client: Client, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Load of so many clients that ask one after the other; `answered` of it is the capacity that they see."""
    begun, load = time.perf_counter(), Load(0.0, seconds)

    async def one(first: int) -> None:
        number = first
        while (sent := time.perf_counter()) < begun + seconds:
            answer = await client.ask(requests[number % len(requests)])
            load.sent += 1
            load.add(answer.status, time.perf_counter() - sent)
            number += clients
            if answer.status != 200:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(one(number) for number in range(clients)))
    load.finished = time.perf_counter() - begun
    return load


class Memory:
    """The resident memory of a process and its children, sampled every second."""

    def __init__(self, pid: int, every: float = 1.0):
        self.process, self.every = psutil.Process(pid), every
        self.times, self.megabytes = array("d"), array("d")

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator["Memory"]:
        """Sample until the block ends."""
        task = asyncio.create_task(self._watch())
        try:
            yield self
        finally:
            task.cancel()

    async def _watch(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            while True:
                members = [self.process, *self.process.children(recursive=True)]
                self.megabytes.append(sum(one.memory_info().rss for one in members) / 1e6)
                self.times.append(time.perf_counter())
                await asyncio.sleep(self.every)

    @property
    def result(self) -> dict[str, Any]:
        """Megabytes at the beginning, at most and at the end; growth in MB an hour with its 95 % interval.

        Growth is the slope of a regression over block means of the samples of the second half.
        """
        if not self.megabytes:
            return {}
        sizes = {"first_mb": self.megabytes[0], "peak_mb": max(self.megabytes), "last_mb": self.megabytes[-1]}
        return {name: round(size, 1) for name, size in sizes.items()} | growth(self.times, self.megabytes)


def growth(times: Sequence[float], megabytes: Sequence[float]) -> dict[str, Any]:
    """The slope in MB an hour and its 95 % interval; empty for fewer than 17 samples."""
    first = len(times) // 2  # before it the server warms up
    count = min(BLOCKS, (len(times) - first) // 3)
    if count < 3:
        return {}
    x, y = (
        np.array([block.mean() for block in np.array_split(np.asarray(one)[first:], count)])
        for one in (times, megabytes)
    )
    found = stats.linregress(x / 3600, y)
    half = float(stats.t.ppf(0.975, count - 2) * found.stderr)
    slope = float(found.slope)
    return {"mb_per_hour": round(slope, 2), "mb_per_hour_interval": [round(slope - half, 2), round(slope + half, 2)]}


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """A result as it is printed: a dash for what could not be measured."""
    return {name: "-" if value is None else value for name, value in values.items()}


def raise_file_limit() -> None:
    """Let this process have as many connections as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(hard, wanted), hard))
