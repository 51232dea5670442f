"""Workers: where corpora are built, runs of studies run in parallel, and batches are made ahead of training.

Callers submit tasks to a `Pool` and wait for them, wherever they run. Files:

    local.py    processes on this machine, how they are started, and how many cores there are
    cluster.py  the same pool on the workers of a dask scheduler (extra `cluster`)
    openmp.py   threads of this process: how long they spin while waiting, and their number after a fork
"""
