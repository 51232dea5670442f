"""Several processes that train together, for tests of what they tell each other."""

import os
import queue
import socket
import traceback

import torch

from support.segments import PROCESSES


def together(work, *given, size=2, timeout=60):
    """What `work(rank, *given)` returns in each of `size` joined processes, or the exception that it raised."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": "lo"}
    answers = PROCESSES.Queue()
    processes = [PROCESSES.Process(target=_one, args=(work, i, environment, given, answers)) for i in range(size)]
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


def _one(work, rank, environment, given, answers):
    os.environ.update(environment, RANK=str(rank))
    torch.set_num_threads(1)
    try:
        answers.put((rank, work(rank, *given)))
    except Exception as error:
        traceback.print_exc()
        answers.put((rank, error))
