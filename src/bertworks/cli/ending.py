"""How a command ends: its exit status, a Ctrl-C, an error in one line, output that nobody reads any more.

0    finished
1    failed, with a message
2    wrong command line
3    stopped and saved, rerun to resume
4    doctor found errors
130  interrupted
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

DONE, FAILED, WRONG_ARGUMENTS, STOPPED, UNSOUND, INTERRUPTED = 0, 1, 2, 3, 4, 130


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

    with lasting_output(prints_only):
        try:
            try:
                yield
            finally:
                sys.stdout.flush()  # here, where a failure is explained
        except InputError as error:
            print(f"bertworks: {error.with_flags or error}", file=sys.stderr)
            raise SystemExit(FAILED) from None
        except OSError as error:  # disk full, permission denied: nothing half-written is left in place
            print(f"bertworks: {error.filename or 'writing failed'}: {error.strerror or error}", file=sys.stderr)
            raise SystemExit(FAILED) from None
        except (KeyboardInterrupt, Exception) as error:
            if not _of_interrupt(error):
                raise
            print("\nstopped", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None


def _of_interrupt(error: BaseException | None) -> bool:
    """Whether an error is a Ctrl-C, or what a library made of one while it was imported."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _of_interrupt(error.__context__))


@contextlib.contextmanager
def lasting_output(prints_only: bool) -> Iterator[None]:
    """Let work continue when nobody reads stdout or stderr any more; with `prints_only` a closed stdout ends it.

    A stream that was closed before the program began is None, and takes all.
    """
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = _LastingStream(sys.stdout or nowhere, "standard output", prints_only)
        sys.stderr = _LastingStream(sys.stderr or nowhere)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


class _LastingStream:
    """A stream that discards its output once its reader has left; with `ends` it ends the command instead.

    name: names the stream in other errors of writing; without a name they are ignored. Characters that the stream's
    encoding lacks, such as lone surrogates, are written as escapes.
    """

    def __init__(self, stream: Any, name: str = "", ends: bool = False):
        self._stream, self._name, self._ends = stream, name, ends

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
        except OSError as error:
            if self._name and not isinstance(error, BrokenPipeError):
                error.filename = error.filename or self._name
                raise
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if self._ends:
                raise SystemExit(DONE) from None
