"""The run folder of a training job: one job at a time, and what an earlier, killed one left behind.

Pre-training, distillation and fine-tuning all open their folder here.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import InputError, NotWritten, OtherRun, check_version, remove_temporaries, try_lock, write_json
from ..reporting.run_files import RESULTS, read_results
from .identity import FORMAT, RunIdentity
from .machine import World

LOCK = ".lock"
STATE_FOLDER = "state"
ANEW = "restore the file, or remove the folder to run it again"


@contextlib.contextmanager
def opened_run(
    out: Path, identity: RunIdentity, world: World, keep_state: bool = True
) -> Iterator[dict[str, Any] | None]:
    """Make the run folder `out`, or open it, and lock it until the block ends. Gives the results of a finished run.

    keep_state: whether a finished run keeps its state/. The processes of one job share the first one's lock. Raises
    InputError if another job uses the folder, or if the folder has another finished run.
    """
    world.agree(recipe=identity.hash)
    with contextlib.ExitStack() as lock:

        def look() -> dict[str, Any] | None:
            results = finished(out, identity)
            if results is None:
                lock.enter_context(locked(out))
                remove_temporaries(out / STATE_FOLDER)
                results = finished(out, identity)  # another job may have ended between the first look and the lock
            remove_temporaries(out)
            if results is not None and not keep_state:  # its process was killed before it could do so
                shutil.rmtree(out / STATE_FOLDER, ignore_errors=True)
            return results

        yield world.ask_first(look)


def is_finished(out: Path) -> bool:
    """Whether `out` is a finished run, of whatever recipe: its data need not be checked byte by byte."""
    return (out / RESULTS).exists()


def finished(out: Path, identity: RunIdentity) -> dict[str, Any] | None:
    """The results of the finished run in `out`; None if it is not finished. Raises OtherRun for another one's."""
    if not is_finished(out):
        return None
    results: dict[str, Any] = read_results(out / RESULTS, {"recipe?": str}, ANEW)
    check_version(results.get("format", 1), range(1, FORMAT + 1), str(out / RESULTS), ANEW)
    if results.get("recipe") not in identity.hashes:
        found = identity.difference(out)
        raise OtherRun(
            f"{out} is a finished run with other settings, data or model. {f'{found}. ' if found else ''}"
            "Give another --out"
        )
    return results


def write_results(out: Path, results: dict[str, Any], world: World) -> dict[str, Any]:
    """Write results.json, which marks the run as finished, and return its content. The other processes wait."""
    results = {"format": FORMAT, **results}
    if world.main:
        write_json(out / RESULTS, results)
    world.wait()
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
            mine = stack.enter_context(try_lock(out / LOCK))
        except OSError as error:
            raise NotWritten(f"{out / LOCK}: could not be locked ({error.strerror}); give another --out") from None
        if not mine:
            raise InputError(
                f"{out}: another process is using this run folder; wait until it ends, or give another --out"
            )
        yield
