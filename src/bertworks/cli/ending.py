"""How a command ends: its exit status, a Ctrl-C, an error in one line, output that nobody reads any more."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

DONE, FAILED, WRONG_ARGUMENTS, STOPPED, UNSOUND, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_STATUSES = {
    DONE: "finished",
    FAILED: "failed, with a message",
    WRONG_ARGUMENTS: "wrong command line",
    STOPPED: "stopped and saved, rerun to resume",
    UNSOUND: "doctor found errors",
    INTERRUPTED: "interrupted",
}


def run_to_its_end(work: Callable[[], Any], status: int = STOPPED) -> Any:
    """Return what `work` returns. Exit with `status` if it was stopped: it returned None, or Ctrl-C ended it."""
    try:
        results = work()
    except KeyboardInterrupt:  # between two runs, or during the last evaluation: everything is saved
        print("\nstopped; rerun the command to resume", file=sys.stderr)
        raise SystemExit(status) from None
    if results is None:
        raise SystemExit(STOPPED)
    return results


@contextlib.contextmanager
def explained_failures(prints_only: bool) -> Iterator[None]:
    """Turn errors and Ctrl-C into one line and an exit status; `prints_only`: a reader may close the output early."""
    from ..files import InputError

    with lasting_output(stdout=not prints_only), _noted_interrupts() as interrupts:
        try:
            try:
                yield
            finally:
                sys.stdout.flush()  # here, where a closed output is understood
        except InputError as error:
            print(f"bertworks: {error.with_flags or error}", file=sys.stderr)
            raise SystemExit(FAILED) from None
        except SystemExit as ending:
            if prints_only and isinstance(ending.__context__, BrokenPipeError):  # a table of rich: it exits with 1
                raise SystemExit(DONE) from None
            raise
        except OSError as error:  # disk full, permission denied: nothing half-written is left in place
            if isinstance(error, BrokenPipeError) and prints_only:  # `head`, for example, has read enough
                discard(sys.stdout)
                raise SystemExit(DONE) from None
            print(f"bertworks: {error.filename or 'writing failed'}: {error.strerror or error}", file=sys.stderr)
            raise SystemExit(FAILED) from None
        except (KeyboardInterrupt, Exception) as error:
            if not interrupts and not isinstance(error, KeyboardInterrupt):
                raise
            print("\nstopped", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Yield a list that receives an item on Ctrl-C, because an importing library may turn it into another error."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def lasting_output(stdout: bool) -> Iterator[None]:
    """Let work continue when its output fails: stderr in any way; stdout, if `stdout` is true, when its reader left.

    Other errors of stdout name it. A stream that was closed before the program began is None, and takes all.
    """
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stderr = LastingStream(sys.stderr or nowhere, (OSError,))
        sys.stdout = LastingStream(sys.stdout or nowhere, (BrokenPipeError,) if stdout else ())
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


class LastingStream:
    """A stream that discards its output from the first failed write on, so that the work behind it continues.

    errors: the failures for which it does so. Others are raised with the name of the standard output. Characters that
    the stream's encoding lacks, such as lone surrogates, are written as escapes.
    """

    def __init__(self, stream: Any, errors: tuple[type[OSError], ...]):
        self._stream, self._errors = stream, errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        escaped = text.encode(encoding, "backslashreplace").decode(encoding)
        self._attempt(lambda: self._stream.write(escaped))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except self._errors:
            discard(self._stream)
        except OSError as error:
            error.filename = error.filename or "standard output"
            raise


def discard(stream: Any) -> None:
    """Send the stream, with whatever is in its buffer, to the null device."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
