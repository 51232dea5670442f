"""An update waits for no GPU. There is none here: the device "meta" is in its place, whose tensors have shapes, but no
values. What needs a value (`item`, `nonzero`, a mask as an index) would wait for a GPU, and raises on that device.
"""

import contextlib
import dataclasses
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bertworks.finetuning.subset_embedding import shrink_embeddings
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.training import trainer as trainer_module
from bertworks.training.config import OBJECTIVES, OptimConfig
from bertworks.training.distributed import World
from bertworks.training.graph import StaticObjective
from bertworks.training.objectives import PRETRAINING
from bertworks.training.task_objectives import ClassificationObjective, DistillationObjective, TaggingObjective
from support.batches import batch_of
from support.loops import loop_of

GPU = torch.device("meta")
TINY = ModelConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                   max_position_embeddings=64)  # fmt: skip

PADDED, NEARLY_FULL, FULL = [64, 20, 30, 25, 9, 40, 33, 12], [64, 64, 60, 64, 64, 64, 61, 64], [64] * 8


def case(name):
    """A model's configuration, its heads and the objective that it is trained on."""
    if name in PRETRAINING:
        spec = OBJECTIVES[name]
        return dataclasses.replace(TINY, direction=spec.direction), spec.heads, PRETRAINING[name]
    if name == "static":
        return TINY, ("mlm", "nsp"), StaticObjective("nsp")
    if name.startswith("classification"):
        return TINY, ("classifier",), ClassificationObjective()
    return (TINY, ("tagger",), TaggingObjective()) if name == "tagging" else (TINY, ("mlm",), None)


DRAWN = torch.tensor([0, *range(5, 100)])  # the tokens of batch_of
NAMES = [
    *PRETRAINING, "static", "classification", "classification, used rows", "tagging",
    "distillation", "distillation of every token",
]  # fmt: skip


def batch_for(name, lengths):
    """A batch of sequences of these lengths, with the labels of a case."""
    batch = batch_of(lengths, labels=True)
    return batch | {"labels": torch.arange(len(lengths)) % 4} if name.startswith("classification") else batch


def parts_of(name, seed=1):
    """The model and the objective of a case."""
    config, heads, objective = case(name)
    model = build_model(config, heads, labels=4, seed=seed)
    if objective is None:
        teacher = build_model(config, heads, seed=2).requires_grad_(False).eval()
        objective = DistillationObjective(teacher, every_token="every" in name)
    return model, objective


class Copies(TorchDispatchMode):
    """Notes each operation that brings values of the CPU to the GPU, or that reads a mask's size or a value there."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        made = func(*args, **(kwargs or {}))
        found = [one for one in torch.utils._pytree.tree_leaves(made) if isinstance(one, torch.Tensor)]
        if {one.device.type for one in (*given, *found) if one.ndim or one.device == GPU} == {"cpu", "meta"}:
            self.seen.append(str(func))
        return made


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """A function that makes two updates of a model on the GPU, and returns the loop and the copies."""
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: None)
    monkeypatch.setattr(trainer_module, "read_async", lambda values: lambda: [1.0] * len(values))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # it does not know the device
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(sys.modules["torch.optim.optimizer"], "_get_fused_kernels_supported_devices", lambda: ["meta"])

    def run(name, lengths, rule="bert_adam"):
        model, objective = parts_of(name)
        group = trainer_module.AccumulationBatch([(batch_for(name, lengths), 0)] * 2, (0, 0, 0))
        for module in (model, getattr(objective, "teacher", None)):
            if module is not None:
                module.to(GPU)
        if "used rows" in name:
            shrink_embeddings(model, DRAWN)
        world = World(0, 1, GPU)
        loop = loop_of(model, [], tmp_path, OptimConfig(rule=rule), objective, steps=9, world=world)
        with Copies() as copies:
            for _ in range(2):
                assert not loop.trainer.update(group, 0.5, False)
        return loop, copies.seen

    return run


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [PADDED, NEARLY_FULL, FULL], ids=["padded", "nearly full", "full"])
def test_no_operation_of_an_update_waits_for_the_gpu(on_a_gpu, name, lengths):
    loop, copies = on_a_gpu(name, lengths)
    assert loop.progress.updates == 1  # the second is settled a step later
    batch = loop.trainer.objective.prepare(batch_for(name, lengths))
    assert copies == ["aten._to_copy.default"] * len(batch) * 4  # nothing but the four micro-batches


def test_adamw_does_not_wait_for_the_gpu(on_a_gpu):
    on_a_gpu("mlm+nsp", PADDED, "adamw")


def test_a_batch_that_is_not_prepared_would_wait(on_a_gpu, monkeypatch):
    """So that the tests above can fail."""
    cells = {"output_positions": torch.arange(2, device=GPU)}
    monkeypatch.setattr(type(PRETRAINING["mlm+nsp"]), "prepare", lambda self, batch: batch | cells)
    with pytest.raises(RuntimeError, match="meta"):
        on_a_gpu("mlm+nsp", PADDED)
