"""SIGTERM and Ctrl-C during training: noted, so that a run can save before it ends."""

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether SIGTERM or SIGINT has come."""

    caught: bool = False
    raises: bool = False  # a signal raises KeyboardInterrupt where it comes

    def at_once(self) -> None:
        """From now on a signal, or one that has come already, raises KeyboardInterrupt."""
        self.raises = True
        if self.caught:
            raise KeyboardInterrupt


@contextlib.contextmanager
def caught_signals() -> Iterator[Stop]:
    """Note SIGTERM and SIGINT instead of dying, so that a run can save before it ends; a second one interrupts."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.caught = True
        signal.signal(number, signal.default_int_handler)
        if stop.raises:
            raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: signals are somebody else's business
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
