"""How a command ends: its exit status, a Ctrl-C, an error in one line.

0    finished
1    failed, with a message
2    wrong command line
3    stopped and saved, rerun to resume
4    doctor found errors
130  interrupted
141  output not read to its end
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

DONE, FAILED, WRONG_ARGUMENTS, STOPPED, UNSOUND, INTERRUPTED, UNREAD = 0, 1, 2, 3, 4, 130, 141


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
def explained_failures() -> Iterator[None]:
    """Turn errors and Ctrl-C into one line and an exit status."""
    from ..files import InputError

    try:
        with _flushed_output():
            yield
    except InputError as error:
        print(f"bertworks: {error}", file=sys.stderr)
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
def _flushed_output() -> Iterator[None]:
    """Flush stdout at the end, where a failure is explained."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            _flush("\n")  # fails again if stdout had failed
        raise
    finally:
        _flush()


def _flush(end: str = "") -> None:
    """Write `end` and flush stdout. Exit if its reader left (`| head`); other errors name standard output."""
    try:
        print(end=end, flush=True)
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:  # for the flush at the end of Python
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(UNREAD) from None
        error.filename = "standard output"
        raise
