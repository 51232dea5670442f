"""Workers: where corpora are built, runs of studies run in parallel, and batches are made ahead of training.

`Pool` is the seam: callers submit tasks and wait for them, and do not know where they run. Files:

    local.py    processes on this machine, how they are started, and how many cores there are
    cluster.py  the same pool on the workers of a dask scheduler (extra `cluster`)
    openmp.py   threads of this process: how long torch's wait actively, and after a fork
"""
