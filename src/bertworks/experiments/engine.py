"""The engine of all studies (sweeps and suites among them) and of the demo's comparison.

A cell is one run with a folder of its own. The caller hands over cells, which may need others, and a function that runs
one. The engine claims, runs and resumes them, and records failures. Several processes that work on the same folder
share its cells, and so do the workers of a dask scheduler (spread.py).

    FOLDER/NAME/results.json    the cell is finished
    FOLDER/NAME/failed.json     the cell diverged or failed, and why
    FOLDER/NAME/state/          the cell was started; running it again resumes it
    FOLDER/locks/*.lock         held by the process that runs a cell; the lock ends with its process
"""

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from ..files import Diverged, InputError, NewerVersion, NotWritten, OtherRun, try_lock, write_json
from ..reporting.run_files import RESULTS, read_results

Work = TypeVar("Work")
CellState = Literal["done", "failed", "part", "missing"]  # part: started and not finished
PAUSE = 5.0  # seconds between looks at what other processes have finished


@dataclass(frozen=True)
class Cell(Generic[Work]):
    """One run of a grid."""

    name: str  # its folder inside the grid's folder; may have slashes
    title: str  # what it is, for people
    work: Work  # what the caller's function needs to run it
    needs: tuple["Cell[Work]", ...] = ()  # cells that must be finished first
    trials: tuple["Cell[Work]", ...] = ()  # cells to choose from, which must end first; some of them may diverge

    @property
    def ancestors(self) -> "list[Cell[Work]]":
        """All cells that must end before it can run, in the order of work; some may occur twice."""
        return [one for cell in (*self.needs, *self.trials) for one in (*cell.ancestors, cell)]


@dataclass(frozen=True)
class Grid:
    """The folder of all cells, and what its files say about each."""

    folder: Path

    def path(self, cell: Cell[Any]) -> Path:
        return self.folder / cell.name

    def state(self, cell: Cell[Any]) -> CellState:
        path = self.path(cell)
        if (path / RESULTS).exists():
            return "done"
        if (path / "failed.json").exists():
            return "failed"
        return "part" if (path / "state").exists() else "missing"

    def ended(self, cells: Sequence[Cell[Any]]) -> int:
        """The number of cells that are finished or failed."""
        return sum(self.state(cell) in ("done", "failed") for cell in cells)

    def failure(self, cell: Cell[Any]) -> dict[str, str]:
        """Why there are no results: `outcome` and `message` of the cell or of one that it needs. {} if none failed.

        Trials that diverged are no reason unless all of them did.
        """
        trials = [self.failure(one) for one in cell.trials]
        fatal = [one for one in trials if one and (all(trials) or one["outcome"] != "diverged")]
        for failure in (*map(self.failure, cell.needs), *fatal):
            if failure:
                return failure
        path = self.path(cell) / "failed.json"
        if self.state(cell) != "failed":
            return {}
        try:
            return dict(read_results(path, {"outcome": str, "message": str}, "remove the file to run the cell again"))
        except InputError:
            if path.exists():
                raise
            return {}  # another process has removed it, to run the cell again

    def left(self, cells: Sequence[Cell[Work]]) -> list[Cell[Work]]:
        """The cells that are neither finished nor failed."""
        return [cell for cell in cells if self.state(cell) in ("part", "missing") and not self.failure(cell)]

    def failures(self, cells: Sequence[Cell[Any]]) -> list[dict[str, str]]:
        """The cells that failed themselves, as results.json has them: `cell`, `what`, `outcome` and `message`."""
        failed = [(cell, self.failure(cell)) for cell in cells if self.state(cell) == "failed"]
        return [{"cell": cell.name, "what": cell.title, **failure} for cell, failure in failed if failure]

    def results(self, cell: Cell[Any], form: dict[str, Any]) -> dict[str, Any] | None:
        """The results of a finished cell, else None. Raises InputError if they do not fit `form`."""
        path = self.path(cell) / RESULTS
        if not path.exists():
            return None
        repair = f"these are the results of {cell.title!r}: remove the folder to run it again"
        return dict(read_results(path, form, repair))

    @contextlib.contextmanager
    def claimed(self, cell: Cell[Any]) -> Iterator[bool]:
        """Whether this process may work on the cell; the claim ends with the block, or with the process."""
        lock = self._lock(cell)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with try_lock(lock) as mine:
            yield mine

    def busy(self, cell: Cell[Any]) -> bool:
        """Whether a process works on the cell at this moment.

        Of two processes that ask at the same instant one may get True. The other gets False and claims the cell.
        """
        if not self._lock(cell).exists():
            return False
        with try_lock(self._lock(cell)) as free:
            return not free

    def _lock(self, cell: Cell[Any]) -> Path:
        return self.folder / "locks" / f"{cell.name.replace('/', '-')}.lock"

    def fail(self, cell: Cell[Any], message: str, outcome: Literal["diverged", "failed"]) -> None:
        """Record that the cell has no results, and why."""
        self.path(cell).mkdir(parents=True, exist_ok=True)
        write_json(self.path(cell) / "failed.json", {"outcome": outcome, "message": message})

    def retry(self, cells: Sequence[Cell[Any]]) -> None:
        """Let cells that failed run again; those that diverged would diverge again."""
        for cell in cells:
            if self.state(cell) == "failed" and self.failure(cell).get("outcome") != "diverged":
                with self.claimed(cell) as mine:
                    if mine:
                        (self.path(cell) / "failed.json").unlink(missing_ok=True)


@dataclass
class Engine(Generic[Work]):
    """One process at work on a grid."""

    cells: Sequence[Cell[Work]]  # in the order of work
    grid: Grid
    run: Callable[[Cell[Work]], object]  # runs or resumes a cell; returns None if it was stopped
    after: Callable[[Cell[Work]], object] = lambda cell: None  # called when a cell is finished or has failed
    quiet: bool = False
    _waiting_for: str = ""  # what the last message about waiting named

    def work(self) -> bool:
        """Run cells until none is left for this process. Returns whether all have ended.

        If not, a run was stopped, or a message names the cells that other processes still work on. A cell that fails is
        recorded, and the others continue. OSError and NotWritten (a full disk), OtherRun and NewerVersion (a folder of
        another grid or version) are raised: they are no fault of the cell.
        """
        while left := self.grid.left(self.cells):
            ended = next((ended for cell in left if (ended := self.run_one(cell)) is not None), None)
            if ended is False:
                return False
            if ended is None and not self.wait(left):
                return False
        return True

    def run_one(self, cell: Cell[Work]) -> bool | None:
        """Run a cell and record a failure; returns whether it has ended, False if it was stopped.

        None: it cannot run yet, or another process has claimed it or has finished it.
        """
        if not self.ready(cell):
            return None
        with self.grid.claimed(cell) as mine:
            if not mine or self.grid.state(cell) not in ("part", "missing"):
                return None
            ended = self._run(cell)
        if ended:
            self.after(cell)
        return ended

    def ready(self, cell: Cell[Work]) -> bool:
        """Whether the cells that must end before this one have ended."""
        ended = self.grid.ended(cell.trials) == len(cell.trials)
        return ended and all(self.grid.state(one) == "done" for one in cell.needs)

    def _run(self, cell: Cell[Work]) -> bool:
        """Run a claimed cell and record a failure. Returns False if the run was stopped."""
        if not self.quiet:
            number = self.grid.ended(self.cells) + 1
            print(f"[{number}/{len(self.cells)}] {cell.title} ({self.grid.path(cell)})", file=sys.stderr)
        try:
            results = self.run(cell)
            if results is not None and self.grid.state(cell) != "done":
                raise RuntimeError(f"the run has left no {RESULTS}")
            return results is not None
        except (OSError, NotWritten, OtherRun, NewerVersion):
            raise
        except Exception as error:
            known = isinstance(error, InputError)
            if not known:
                traceback.print_exc()
            message = str(error) if known else f"{type(error).__name__}: {error}"
            print(f"{cell.title} failed: {message}", file=sys.stderr)
            self.grid.fail(cell, message, "diverged" if isinstance(error, Diverged) else "failed")
            return True

    def wait(self, left: Sequence[Cell[Work]]) -> bool:
        """Wait for cells of other processes, which cells that are left need; False if these processes run all of them.

        A message names what they run.
        """
        busy = [cell.title for cell in left if self.grid.busy(cell)]
        last, running = len(busy) == len(left), "; ".join(busy)
        if busy and (last or running != self._waiting_for) and not self.quiet:
            print(f"other processes still work on: {running}", file=sys.stderr)
        self._waiting_for = running or self._waiting_for
        if not last:
            time.sleep(PAUSE)
        return not last
