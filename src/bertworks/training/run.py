"""The run folder of a training job: one job at a time, and what an earlier, killed one left behind.

Pre-training, distillation and fine-tuning all open their folder here.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import InputError, NotWritten, held, remove_temporaries
from ..reporting.run_files import RESULTS, read_results
from .machine import World

LOCK = ".lock"
STATE_FOLDER = "state"
ANEW = "restore the file, or remove the folder to run it again"


@contextlib.contextmanager
def opened_run(out: Path, recipe: str, world: World, keep_state: bool = True) -> Iterator[dict[str, Any] | None]:
    """Make the run folder `out`, or open it, and lock it until the block ends. Gives the results of a finished run.

    recipe: hash of all that determines the results. keep_state: whether a finished run keeps its state/. The processes
    of one job share the first one's lock. Raises InputError if another job uses the folder, or if the folder has a
    finished run with another recipe.
    """
    world.agree(recipe=recipe)
    with contextlib.ExitStack() as lock:

        def look() -> dict[str, Any] | None:
            results = finished(out, recipe)
            if results is None:
                lock.enter_context(locked(out))
                remove_temporaries(out / STATE_FOLDER)
                results = finished(out, recipe)  # another job may have ended between the first look and the lock
            remove_temporaries(out)
            if results is not None and not keep_state:  # its process was killed before it could do so
                shutil.rmtree(out / STATE_FOLDER, ignore_errors=True)
            return results

        yield world.ask_first(look)


def is_finished(out: Path) -> bool:
    """Whether `out` is a finished run, of whatever recipe: its data need not be checked byte by byte."""
    return (out / RESULTS).exists()


def finished(out: Path, recipe: str) -> dict[str, Any] | None:
    """The results of the finished run in `out`; None if it is not finished. Raises InputError for another recipe's."""
    if not is_finished(out):
        return None
    results: dict[str, Any] = read_results(out / RESULTS, {"recipe?": str}, ANEW)
    if results.get("recipe") != recipe:
        raise InputError(f"{out} is a finished run with other settings, data or model; give another --out")
    return results


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder `out` and hold it. Raises InputError if another process does, NotWritten if it cannot be made."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{out} is a file; expected a run folder, or a path where there is nothing yet") from None
    except OSError as error:
        raise NotWritten(f"{out}: could not make the run folder ({error.strerror}); give another --out") from None
    with contextlib.ExitStack() as stack:
        try:
            mine = stack.enter_context(held(out / LOCK))
        except OSError as error:
            raise NotWritten(f"{out / LOCK}: could not be locked ({error.strerror}); give another --out") from None
        if not mine:
            raise InputError(
                f"{out}: another process is using this run folder; wait until it ends, or give another --out"
            )
        yield
