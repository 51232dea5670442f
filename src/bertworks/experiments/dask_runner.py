"""The runs of a study on the workers of a dask scheduler: one run at a time for each worker.

Every worker makes its own `Scheduler` over the same folder and receives the names of runs. It claims a run as any
process does, so workers and commands in other terminals can share a study. Dask gives the run of a killed worker to
another one, which resumes it from its state. Store, data and runs must be on a disk that all share.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..files import InputError
from ..workers.cluster import Cluster
from ..workers.local import Pool, WorkersLost, cores
from .scheduler import Scheduler


def work_on_dask(
    scheduler: Scheduler, address: str, workers: int, make: Callable[..., Scheduler], *arguments: Any
) -> bool:
    """Compute the runs of `scheduler` on the workers of a dask scheduler; as `Scheduler.work`.

    address: of the dask scheduler, or "local". workers: processes of a local one; 0 is one for every GPU, or for every
    core of a machine without. make, arguments: make the scheduler of a worker, which has the same runs; must be
    picklable. Raises InputError if dask ends or a run kills its workers, and what `Scheduler.work` raises.
    """
    count = workers or torch.cuda.device_count() or cores()
    try:
        with Cluster(address, count, _make_scheduler, make, *arguments) as pool:
            return _distribute(scheduler, pool)
    except WorkersLost as error:
        raise InputError(f"{error}; rerun the command to continue") from None


def _distribute(scheduler: Scheduler, pool: Pool) -> bool:
    """Submit the runs that can start until none is left for this command; as `Scheduler.work`."""
    folder, runs, submitted = scheduler.folder, {run.name: run for run in scheduler.runs}, set[str]()
    while (unfinished := folder.unfinished(scheduler.runs)) or submitted:
        for run in unfinished:
            is_ready = run.name not in submitted and scheduler.ready(run) and not folder.busy(run)
            if is_ready and len(submitted) < pool.count:
                submitted.add(run.name)
                pool.submit(_run, run.name)
        if not submitted and not scheduler.wait(unfinished):
            return False
        for name in pool.ended(wait=True) if submitted else ():
            submitted.remove(name)
            if not folder.unfinished([runs[name]]):
                if not scheduler.quiet:
                    ended = f"[{folder.ended(scheduler.runs)}/{len(runs)}]"
                    print(f"{ended} {runs[name].title}: {folder.state(runs[name])}", file=sys.stderr)
                scheduler.after(runs[name])
    return True


# ---- in a worker


def _make_scheduler(make: Callable[..., Scheduler], *arguments: Any) -> Scheduler:
    """The scheduler of a worker. Worker number i of a local dask uses GPU i; others have what they were given."""
    from distributed import get_worker

    # dask's workers are daemons, which may have no children; ours, which make batches ahead, end with their parent.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    name = get_worker().name
    if isinstance(name, int) and torch.cuda.device_count() > 1:
        os.environ["LOCAL_RANK"] = str(name % torch.cuda.device_count())
    return make(*arguments)


def _run(scheduler: Scheduler, name: str) -> str:
    """Compute a run, unless another process has it or has finished it; its folder has the outcome."""
    scheduler.try_run(next(run for run in scheduler.runs if run.name == name))
    return name
