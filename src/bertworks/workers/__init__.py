"""Workers: where corpora are built, runs of studies run in parallel, and batches are made ahead of training.

Callers submit tasks to a `Pool` and wait for them, wherever they run. Files:

    local.py    processes on this machine, how they are started, and how many cores there are
    cluster.py  the same pool on the workers of a dask scheduler (extra `cluster`)
    openmp.py   threads of this process: how long they spin while waiting, and their number after a fork
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .cluster import Cluster as Cluster
    from .cluster import open_pool as open_pool
    from .local import Context as Context
    from .local import Pool as Pool
    from .local import Workers as Workers
    from .local import WorkersLost as WorkersLost
    from .local import cores as cores

__all__, __getattr__, __dir__ = lazy_names(__name__)
