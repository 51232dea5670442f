"""Output that nobody reads any more: `head` has seen enough, or a terminal was closed."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


class Lasting:
    """A stream that drops what is written to it once a write has failed, so that the work behind it goes on."""

    def __init__(self, stream: Any, error: type[OSError]):
        self._stream, self._error = stream, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except self._error:
            to_nowhere(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except self._error:
            to_nowhere(self._stream)


def to_nowhere(stream: Any) -> None:
    """Let the stream, with what waits in its buffer, end in the null device."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


@contextlib.contextmanager
def lasting_output(stdout: bool) -> Iterator[None]:
    """Messages never end the work: stderr may fail in any way, stdout, if asked for, may lose its reader."""
    before = sys.stdout, sys.stderr
    sys.stderr = Lasting(sys.stderr, OSError) if sys.stderr else sys.stderr
    sys.stdout = Lasting(sys.stdout, BrokenPipeError) if stdout and sys.stdout else sys.stdout
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
