"""A small HTTP proxy before several servers, for tests of restarts: it does what deploy/nginx.conf tells nginx to do.

A request goes to the servers in turn. If one refuses the connection, closes it without an answer, or answers 503, the
next one gets the request. Requests of an encoder change nothing, so they may be sent again.
"""

import asyncio
import contextlib
import itertools


class Proxy:
    """Forwards requests from one port to the servers on others."""

    def __init__(self, ports):
        self.ports, self.turn = list(ports), itertools.count()
        self.retried = 0  # requests that a second server answered
        self.answered = dict.fromkeys(self.ports, 0)

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def connection(self, reader, writer):
        """One connection of a client, which may send several requests."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(length_of(head))
                writer.write(await self.answer(head, body))
                await writer.drain()
        writer.close()

    async def answer(self, head, body):
        """The answer of the first server that gives one; tries each twice."""
        start = next(self.turn)
        for attempt in range(2 * len(self.ports)):
            port = self.ports[(start + attempt) % len(self.ports)]
            with contextlib.suppress(OSError, EOFError):
                found = await forward(port, head, body)
                if not found.startswith(b"HTTP/1.1 503"):
                    self.answered[port] += 1
                    self.retried += attempt > 0
                    return found
            if attempt >= len(self.ports) - 1:
                await asyncio.sleep(0.2)
        return b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"


async def forward(port, head, body):
    """The whole answer of one server. Raises OSError or EOFError if it gives none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head + body)
        await writer.drain()
        answer = await reader.readuntil(b"\r\n\r\n")
        return answer + await reader.readexactly(length_of(answer))
    finally:
        writer.close()


def length_of(head):
    """The bytes of the body that this head announces."""
    lines = head.lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)
