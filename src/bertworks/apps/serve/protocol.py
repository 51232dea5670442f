"""uvicorn's protocol with limits before any route: how long a header may take, how large it may be, and how long an
answer may stay unread.

uvicorn has no option for this with httptools (`h11_max_incomplete_event_size` is h11's).
"""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .config import ServeConfig

HEADER_BYTES = 65_536  # that may arrive without an end of the header, a part of the body or the end of the request


def protocol_of(config: ServeConfig, count: Callable[[], object]) -> type[HttpToolsProtocol]:
    """The protocol that closes a connection whose header does not arrive in `body_seconds`, or is too large (400).

    It also cuts one whose client does not read its answer in `answer_seconds`. Whoever sends waits for the client,
    because any byte that the socket does not take pauses writing. count: called for each request that cannot be read;
    no log has a line for it.
    """

    class Protocol(LimitedProtocol):
        seconds, answer_seconds = config.body_seconds, config.answer_seconds

        def count_unreadable(self) -> None:
            count()

    return Protocol


class LimitedProtocol(HttpToolsProtocol):
    """A connection."""

    seconds = 10.0  # for a header to arrive
    answer_seconds = 60.0  # for an answer to be read
    deadline: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None
    pending = 0  # bytes of a header or of trailers that are not complete
    progress = False  # whether the last bytes completed something

    # ---- time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)
        self.expect_header()

    def expect_header(self) -> None:
        if self.deadline is None:
            self.deadline = self.loop.call_later(self.seconds, self.transport.close)

    def header_came(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.expect_header()

    def on_headers_complete(self) -> None:
        self.progress = True
        self.header_came()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread = self.unread or self.loop.call_later(self.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self.answer_read()
        super().resume_writing()

    def answer_read(self) -> None:
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.header_came()
        self.answer_read()
        super().connection_lost(exc)

    # ---- size

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.progress = False
        super().data_received(data)
        self.pending = 0 if self.progress else self.pending + len(data)
        if self.pending > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"A header of more than {HEADER_BYTES:,} bytes; send less in it.")

    def on_body(self, body: bytes) -> None:
        self.progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.progress = True
        super().on_message_complete()

    def count_unreadable(self) -> None:
        """A request is not read to its end."""

    def send_400_response(self, msg: str) -> None:
        self.count_unreadable()
        super().send_400_response(msg)
