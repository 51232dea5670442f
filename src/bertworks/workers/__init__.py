"""Worker processes: where corpora are built and text is read in parallel, and batches made ahead of training.

`Pool` is the seam: callers submit tasks and wait for them, and do not know where they run. Files:

    local.py    processes on this machine, how they are started, and how many cores there are
"""

from .local import Context, Pool, Workers, WorkersLost, cores

__all__ = ["Context", "Pool", "Workers", "WorkersLost", "cores"]
