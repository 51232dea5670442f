"""The cells of a study on the workers of a dask scheduler: one cell at a time for each worker.

Every worker builds its own engine over the same folder and receives the names of cells. It claims a cell as any
process does, so workers and commands in other terminals can share a study. The scheduler gives the cell of a killed
worker to another one, which resumes it from its state. Store, data and cells must be on a disk that all share.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from ..files import InputError
from ..workers import Cluster, Pool, WorkersLost, cores
from .engine import Engine


def work_on_scheduler(
    engine: Engine[Any], scheduler: str, workers: int, make: Callable[..., Engine[Any]], *arguments: Any
) -> bool:
    """Run the cells of `engine` on a scheduler's workers; as `Engine.work`.

    make, arguments: make the engine of a worker, which has the same cells; must be picklable. workers: processes of a
    "local" scheduler; 0 is one for every GPU, or for every core of a machine without. Raises InputError if the
    scheduler ends or a cell kills its workers, and what `Engine.work` raises.
    """
    count = workers or torch.cuda.device_count() or cores()
    try:
        with Cluster(scheduler, count, _worker, make, *arguments) as pool:
            return _spread(engine, pool)
    except WorkersLost as error:
        raise InputError(f"{error}; rerun the command to continue") from None


def _spread(engine: Engine[Any], pool: Pool) -> bool:
    """Hand out the cells that can run until none is left for this command; as `Engine.work`."""
    grid, cells, under_way = engine.grid, {cell.name: cell for cell in engine.cells}, set[str]()
    while (left := grid.left(engine.cells)) or under_way:
        for cell in left:
            free = len(under_way) < pool.count
            if free and cell.name not in under_way and engine.ready(cell) and not grid.busy(cell):
                under_way.add(cell.name)
                pool.submit(_run, cell.name)
        if not under_way and not engine.wait(left):
            return False
        for name in pool.ended(wait=True) if under_way else ():
            under_way.remove(name)
            if not grid.left([cells[name]]):
                if not engine.quiet:
                    ended = f"[{grid.ended(engine.cells)}/{len(cells)}]"
                    print(f"{ended} {cells[name].title}: {grid.state(cells[name])}", file=sys.stderr)
                engine.after(cells[name])
    return True


# ---- in a worker


def _worker(make: Callable[..., Engine[Any]], *arguments: Any) -> Engine[Any]:
    """The engine of a worker. Worker number i of a local scheduler uses GPU i; others have what they were given."""
    from distributed import get_worker

    # dask's workers are daemons, which may have no children; ours, which make batches ahead, end with their parent.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    name = get_worker().name
    if isinstance(name, int) and torch.cuda.device_count() > 1:
        os.environ["LOCAL_RANK"] = str(name % torch.cuda.device_count())
    return make(*arguments)


def _run(engine: Engine[Any], name: str) -> str:
    """Run a cell, unless another process has it or has finished it; its folder says what came of it."""
    engine.run_one(next(cell for cell in engine.cells if cell.name == name))
    return name
