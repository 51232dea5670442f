"""Several processes that train together, for tests of what they tell each other."""

import os
import queue
import subprocess
import sys
import traceback

import torch

from support.segments import PROCESSES, ranks_of

FORKED = """
import multiprocessing, sys, torch
from bertworks import Predictor

torch.set_num_threads(2)
predictor, texts = Predictor(sys.argv[1]), ["a b c good film , bad film " * 4] * 64

def answers():
    torch.ones(1 << 22).sum()  # in several threads, if there are
    return predictor.classify(texts)

before = answers()
child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(answers() != before))
child.start()
child.join(20)
child.kill()
child.join()
sys.exit(child.exitcode)
"""


def predicts_when_forked(folder) -> bool:
    """Whether a process forked from one that has predicted with two threads predicts the same, and ends."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return subprocess.run([sys.executable, "-c", FORKED, str(folder)], env=environment, timeout=120).returncode == 0


def together(work, *given, size=2, timeout=60):
    """What `work(rank, *given)` returns in each of `size` joined processes, or the exception that it raised."""
    answers = PROCESSES.Queue()
    processes = [PROCESSES.Process(target=_one, args=(work, one, given, answers)) for one in ranks_of(size)]
    for process in processes:
        process.start()
    try:
        found = dict(answers.get(timeout=timeout) for _ in processes)
    except queue.Empty:
        raise AssertionError("the processes wait for each other") from None
    finally:
        for process in processes:
            process.join(1)
            process.kill()
    return [found[i] for i in range(size)]


def _one(work, environment, given, answers):
    os.environ.update(environment)
    rank = int(environment["RANK"])
    torch.set_num_threads(1)
    try:
        answers.put((rank, work(rank, *given)))
    except Exception as error:
        traceback.print_exc()
        answers.put((rank, error))
