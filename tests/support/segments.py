"""Runs of `bertworks pretrain`, and verbs like it, in processes of their own, forked from one with torch: so cheap."""

import json
import multiprocessing
import os
import random
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import safetensors.torch
import torch

PROCESSES = multiprocessing.get_context("forkserver")
# all that a run imports; torch loads its compiler where deterministic algorithms are chosen
MODULES = ["bertworks.api", "bertworks.apps.doctor.examination", "bertworks.cli.pretrain", "torch._inductor", "tyro"]
PROCESSES.set_forkserver_preload(MODULES)
RATES = ("tokens_per_second",)
TIMING = (*RATES, "memory", "seconds", "left", "cores_used_by_others")
RECIPE = """
eval_batches = 2
[model]
vocab_size = 100
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 40
hidden_dropout_prob = {dropout}
attention_probs_dropout_prob = {dropout}
[instances]
dupe_factor = 2
[optim]
rule = "{rule}"
lr = 1e-3
warmup = 0.1
[loop]
steps = {steps}
log_every = 1
eval_every = 10
save_every = 3
precision = "{precision}"
compute = "{compute}"
[[phases]]
length = 24
budget_fraction = 0.6
batch_size = 48
micro_batch_size = 20
[[phases]]
length = 40
budget_fraction = 0.4
batch_size = 36
micro_batch_size = {micro}
"""


def write_recipe(
    folder: Path, steps=40, dropout=0.1, precision="float32", compute="eager", micro=9, rule="bert_adam"
) -> Path:
    """Two phases, accumulation in unequal parts, more than an epoch of the tiny store."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe.toml"
    values = {"steps": steps, "dropout": dropout, "precision": precision, "compute": compute, "micro": micro}
    path.write_text(RECIPE.format(**values, rule=rule))
    return path


def sit(argv: list[str], said: Path, environment: dict[str, str]) -> None:
    """The command line in this process; what it says goes to a file."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    from bertworks.cli import main, pretrain
    from bertworks.training import trainer

    pretrain.draw_curves = lambda run: None  # they take longer than the run
    if environment.get("RANK") == "1":  # the clocks of processes never quite agree; these do not at all
        trainer.time = SimpleNamespace(perf_counter=lambda: 3 * time.perf_counter())
    if seconds := float(environment.get("SLOW_FLUSH", 0)):  # a disk that is slow, so that a kill hits a write
        flush = os.fsync
        os.fsync = lambda handle: (time.sleep(seconds), flush(handle))[1]
    with open(said, "a") as file:
        sys.stdout = sys.stderr = file
        main(argv)


def ranks_of(size: int) -> list[dict[str, str]]:
    """The environment of each of `size` processes that train together on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": "lo"}
    return [{**shared, "RANK": str(i)} for i in range(size)]


class Segment:
    """One process (or `size` that train together) of a run; `said` is what it printed.

    slow_flush: seconds that every flush of a file takes longer.
    """

    def __init__(self, recipe: Path, store: Path, out: Path, *more: str, size=1, slow_flush=0.0):
        self.said = out.parent / f"{out.name}.said.txt"
        argv = ["pretrain", str(recipe), "--corpus", str(store), "--out", str(out), *more]
        ranks = ranks_of(size) if size > 1 else [{}]
        environments = [{**rank, "SLOW_FLUSH": str(slow_flush)} for rank in ranks]
        self.processes = [PROCESSES.Process(target=sit, args=(argv, self.said, one)) for one in environments]
        for process in self.processes:
            process.start()

    def end(self, timeout: float = 300) -> int:
        """Wait; returns the first process's exit code."""
        for process in self.processes:
            process.join(timeout)
            if process.exitcode is None:
                for one in self.processes:
                    one.kill()
                raise AssertionError("the process hangs")
        return self.processes[0].exitcode

    def wait_for_save(self, state: Path, rng: random.Random | None) -> None:
        """Return at a random moment (without `rng`: at once) after the next save, or when the process has ended."""
        before, deadline = changed(state), time.monotonic() + 300  # a busy disk can make a flush wait for long
        while changed(state) == before and self.processes[0].is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.2) if rng else 0)


def changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def state_of(out: Path) -> Path:
    return out / "state" / "state.safetensors"


def weights(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


def tensors(out: Path) -> torch.Tensor:
    """All weights in one vector."""
    loaded = safetensors.torch.load_file(out / "model" / "model.safetensors")
    return torch.cat([loaded[name].flatten().double() for name in sorted(loaded)])


def records(out: Path, kind: str = "train") -> list[dict]:
    """The log without what a clock decides."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMING} for line in lines if line["kind"] == kind]
