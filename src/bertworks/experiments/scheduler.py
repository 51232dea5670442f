"""Runs many runs: those of all studies, sweeps and suites among them.

Every run has a folder of its own. The caller passes runs, which may need others, and a function that computes one. The
scheduler claims, computes and resumes them, and records failures. Several processes that work on the same folder share
its runs, and so do the workers of a dask scheduler (dask_runner.py).

    ROOT/NAME/results.json    the run is finished
    ROOT/NAME/failed.json     the run diverged or failed, and why
    ROOT/NAME/state/          the run was started; computing it again resumes it
    ROOT/locks/*.lock         held by the process that computes a run; the lock ends with its process
"""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..files import Diverged, InputError, NewerVersion, NotWritten, OtherRun, try_lock, write_json
from ..reporting.run_files import METRICS, RESULTS, read_results

RunState = Literal["done", "failed", "part", "missing"]  # part: started and not finished
# fields of the results of a run, of which only some have metrics
FORM = {"seconds": float, "machine?": dict, "metrics?": METRICS, "collapsed?": bool, "steps?": int, "tokens?": float}
PAUSE = 5.0  # seconds between looks at what other processes have finished


@dataclass(frozen=True)
class Run:
    """One run, which is computed once and has a folder."""

    name: str  # its folder inside the root; may have slashes
    title: str  # what it is, for people
    spec: Any  # what the caller's function needs to compute it
    needs: tuple["Run", ...] = ()  # runs that must be finished first
    candidates: tuple["Run", ...] = ()  # runs to choose from, which must end first; some of them may diverge

    @property
    def ancestors(self) -> "list[Run]":
        """All runs that must end before it can start, in the order of work; some may occur twice."""
        return [ancestor for run in (*self.needs, *self.candidates) for ancestor in (*run.ancestors, run)]


@dataclass(frozen=True)
class RunFolder:
    """The folder of all runs, and what its files say about each."""

    root: Path

    def path(self, run: Run) -> Path:
        return self.root / run.name

    def state(self, run: Run) -> RunState:
        path = self.path(run)
        if (path / RESULTS).exists():
            return "done"
        if (path / "failed.json").exists():
            return "failed"
        return "part" if (path / "state").exists() else "missing"

    def ended(self, runs: Sequence[Run]) -> int:
        """The number of runs that are finished or failed."""
        return sum(self.state(run) in ("done", "failed") for run in runs)

    def failure(self, run: Run) -> dict[str, str]:
        """Why there are no results: `outcome` and `message` of the run or of one that it needs. {} if none failed.

        Candidates that diverged are no reason unless all of them did.
        """
        candidates = [self.failure(candidate) for candidate in run.candidates]
        fatal = [one for one in candidates if one and (all(candidates) or one["outcome"] != "diverged")]
        for failure in (*map(self.failure, run.needs), *fatal):
            if failure:
                return failure
        path = self.path(run) / "failed.json"
        if self.state(run) != "failed":
            return {}
        try:
            return dict(read_results(path, {"outcome": str, "message": str}, "remove the file to repeat the run"))
        except InputError:
            if path.exists():
                raise
            return {}  # another process has removed it, to repeat the run

    def unfinished(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that are neither finished nor failed."""
        return [run for run in runs if self.state(run) in ("part", "missing") and not self.failure(run)]

    def failures(self, runs: Sequence[Run]) -> list[dict[str, str]]:
        """The runs that failed themselves, as results.json has them: `cell` (name), `what`, `outcome` and `message`."""
        failed = [(run, self.failure(run)) for run in runs if self.state(run) == "failed"]
        return [{"cell": run.name, "what": run.title, **failure} for run, failure in failed if failure]

    def results(self, run: Run) -> dict[str, Any] | None:
        """The results of a finished run, else None. Raises InputError if a field has another type."""
        path = self.path(run) / RESULTS
        if not path.exists():
            return None
        repair = f"these are the results of {run.title!r}: remove the folder to repeat the run"
        return dict(read_results(path, FORM, repair))

    def claim(self, run: Run) -> AbstractContextManager[bool]:
        """Yields whether this process may work on the run; the claim ends with the block, or with the process."""
        (self.root / "locks").mkdir(parents=True, exist_ok=True)
        return try_lock(self._lock(run))

    def busy(self, run: Run) -> bool:
        """Whether a process works on the run at this moment.

        Of two processes that call this at the same instant one may get True. The other gets False and claims the run.
        """
        if not self._lock(run).exists():
            return False
        with try_lock(self._lock(run)) as free:
            return not free

    def _lock(self, run: Run) -> Path:
        return self.root / "locks" / f"{run.name.replace('/', '-')}.lock"

    def fail(self, run: Run, message: str, outcome: Literal["diverged", "failed"]) -> None:
        """Record that the run has no results, and why."""
        self.path(run).mkdir(parents=True, exist_ok=True)
        write_json(self.path(run) / "failed.json", {"outcome": outcome, "message": message})

    def retry(self, runs: Sequence[Run]) -> None:
        """Let runs that failed be computed again; those that diverged would diverge again."""
        for run in runs:
            if self.state(run) == "failed" and self.failure(run).get("outcome") != "diverged":
                with self.claim(run) as claimed:
                    if claimed:
                        (self.path(run) / "failed.json").unlink(missing_ok=True)


@dataclass
class Scheduler:
    """One process at work on the runs of a folder."""

    runs: Sequence[Run]  # in the order of work
    folder: RunFolder
    compute: Callable[[Run], object]  # computes or resumes a run; returns None if it was stopped
    after: Callable[[Run], object] = lambda run: None  # called when a run is finished or has failed
    quiet: bool = False
    _waiting_for: str = ""  # the runs that the last message about waiting named

    def work(self) -> bool:
        """Compute runs until none is left for this process. Returns whether all have ended.

        If not, a run was stopped, or a message names the runs that other processes still work on. A run that fails is
        recorded, and the others continue. OSError and NotWritten (a full disk), OtherRun and NewerVersion (a folder of
        another study or version) are raised: they are no fault of the run.
        """
        while unfinished := self.folder.unfinished(self.runs):
            ended = next((ended for run in unfinished if (ended := self.try_run(run)) is not None), None)
            if ended is False or (ended is None and not self.wait(unfinished)):
                return False
        return True

    def try_run(self, run: Run) -> bool | None:
        """Compute a run and record a failure; returns whether it has ended, False if it was stopped.

        None: it cannot start yet, or another process has claimed it or has finished it.
        """
        if not self.ready(run):
            return None
        with self.folder.claim(run) as claimed:
            if not claimed or self.folder.state(run) not in ("part", "missing"):
                return None
            ended = self._run(run)
        if ended:
            self.after(run)
        return ended

    def ready(self, run: Run) -> bool:
        """Whether the runs that must end before this one have ended."""
        ended = self.folder.ended(run.candidates) == len(run.candidates)
        return ended and all(self.folder.state(needed) == "done" for needed in run.needs)

    def _run(self, run: Run) -> bool:
        """Compute a claimed run and record a failure. Returns False if it was stopped."""
        if not self.quiet:
            number = self.folder.ended(self.runs) + 1
            print(f"[{number}/{len(self.runs)}] {run.title} ({self.folder.path(run)})", file=sys.stderr)
        try:
            results = self.compute(run)
            if results is not None and self.folder.state(run) != "done":
                raise RuntimeError(f"the run has left no {RESULTS}")
            return results is not None
        except (OSError, NotWritten, OtherRun, NewerVersion):
            raise
        except Exception as error:
            message = str(error)
            if not isinstance(error, InputError):
                traceback.print_exc()
                message = f"{type(error).__name__}: {error}"
            print(f"{run.title} failed: {message}", file=sys.stderr)
            self.folder.fail(run, message, "diverged" if isinstance(error, Diverged) else "failed")
            return True

    def wait(self, unfinished: Sequence[Run]) -> bool:
        """Wait for runs of other processes, which unfinished ones need; False if these processes compute all of them.

        A message names what they compute.
        """
        busy = [run.title for run in unfinished if self.folder.busy(run)]
        all_busy, running = len(busy) == len(unfinished), "; ".join(busy)
        if busy and (all_busy or running != self._waiting_for) and not self.quiet:
            print(f"other processes still work on: {running}", file=sys.stderr)
        self._waiting_for = running or self._waiting_for
        if not all_busy:
            time.sleep(PAUSE)
        return not all_busy
