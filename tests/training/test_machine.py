"""What the code does on GPUs and in several processes, seen on a machine without a GPU: torch.cuda is replaced."""

import contextlib
import dataclasses
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch

from bertworks.data.prefetch import Prefetcher
from bertworks.files import InputError
from bertworks.finetuning.job import ExampleFeed
from bertworks.model.config import ModelConfig
from bertworks.pretraining.job import open_training
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import PretrainingFeed
from bertworks.training import distributed, machine, precision
from bertworks.training.config import LoopConfig, TrainerState
from bertworks.training.distributed import World

GPU = torch.device("cuda", 1)
TINY = ModelConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                   max_position_embeddings=40)  # fmt: skip


def worlds(size):
    return [World(rank, size, torch.device("cpu")) for rank in range(size)]


@pytest.fixture
def gpu(monkeypatch):
    """The second process of two on a machine with GPUs; what it asks of the process group is returned."""
    asked = {}
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.update(device=device))
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda backend, **given: asked.update(given, backend=backend)
    )
    threads = torch.get_num_threads()
    yield asked
    torch.set_num_threads(threads)


def test_one_thread_reads_batches_beside_a_gpu_until_the_block_ends(gpu, monkeypatch):
    monkeypatch.setattr(torch.random, "fork_rng", lambda gpus: contextlib.nullcontext())
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with machine.prepared_process():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_processes_on_gpus_name_their_device_and_do_not_wait_for_ever(gpu):
    assert distributed.join_world() == World(1, 2, GPU)
    assert gpu["device"] == gpu["device_id"] == GPU
    assert gpu["backend"] == "cpu:gloo,cuda:nccl" and timedelta(0) < gpu["timeout"] <= timedelta(hours=1)


@pytest.mark.parametrize(("real", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_gpu_that_only_emulates_bfloat16_trains_in_float32(monkeypatch, real, dtype):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or real)
    assert precision.compute_dtype("auto", GPU) is dtype
    assert precision.compute_dtype("bfloat16", GPU) is torch.bfloat16


def test_one_process_of_a_node_checks_the_store(tiny_store, monkeypatch):
    read = []
    monkeypatch.setattr("bertworks.data.opening.checksum", lambda path: read.append(path) or "0")
    config = PretrainConfig(model=TINY, phases=(Phase(24),), loop=LoopConfig(steps=1))
    monkeypatch.setenv("LOCAL_RANK", "1")
    open_training(config, tiny_store.path, finished=False)
    assert not read
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(InputError, match="checksum"):
        open_training(config, tiny_store.path, finished=False)


def rows_of(group):
    """The ids of a group's rows, with the row of the global batch that each begins with."""
    parts = ((first, batch["input_ids"].tolist()) for batch, first in group.micro_batches)
    return [(first + i, ids) for first, rows in parts for i, ids in enumerate(rows)]


@pytest.mark.parametrize("micro", [0, 2])
def test_uneven_parts_of_a_batch_are_together_the_batch(tiny_store, micro):
    config = PretrainConfig(model=TINY, phases=(Phase(24, 1.0, 7, micro),), loop=LoopConfig(steps=1))
    store = open_training(config, tiny_store.path, finished=True)
    vocabulary = tiny_store.data().vocabulary
    feeds = [PretrainingFeed(config, store.store, vocabulary, world, Prefetcher) for world in worlds(1) + worlds(3)]
    whole, *parts = (feed(TrainerState(), 0.0) for feed in feeds)
    assert [row for part in parts for row in rows_of(part)] == rows_of(whole)
    assert {part.next_position for part in parts} == {whole.next_position}
    assert [len(rows_of(part)) for part in parts] == [2, 2, 3]


def test_a_batch_smaller_than_the_processes_is_refused(tiny_store):
    config = PretrainConfig(model=TINY, phases=(Phase(24, 1.0, 2),), loop=LoopConfig(steps=1))
    store = open_training(config, tiny_store.path, finished=True).store
    with pytest.raises(InputError, match="batch_size 2 is less than the 3 processes; give each of them a row"):
        PretrainingFeed(config, store, tiny_store.data().vocabulary, worlds(3)[2], Prefetcher)
    settings = dataclasses.make_dataclass("Settings", ["batch_size"])(2)
    with pytest.raises(InputError, match="batch_size 2 is less than the 3 processes; give each of them a row"):
        ExampleFeed(SimpleNamespace(), settings, worlds(3)[0])
