"""Workers: where corpora are built, cells of studies run in parallel, and batches are made ahead of training.

`Pool` is the seam: callers submit tasks and wait for them, and do not know where they run. Files:

    local.py    processes on this machine, how they are started, and how many cores there are
    cluster.py  the same pool on the workers of a dask scheduler (extra `cluster`)
"""

from .cluster import Cluster, open_pool
from .local import Context, Pool, Workers, WorkersLost, cores

__all__ = ["Cluster", "Context", "Pool", "Workers", "WorkersLost", "cores", "open_pool"]
