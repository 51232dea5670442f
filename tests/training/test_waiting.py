"""An update waits for no GPU. There is none here: tensors pretend to be on one and have shapes, but no values.

Whatever needs a value (`item`, `nonzero`, a mask as an index) would wait for the GPU, and raises.
"""

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from bertworks.batch import IGNORED, Batch, to_device
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.training import loop as loop_module
from bertworks.training.config import OptimConfig
from bertworks.training.loop import Loop
from bertworks.training.machine import World
from bertworks.training.objectives import PRETRAINING
from bertworks.training.task_objectives import DistillationObjective, TaggingObjective
from support.loops import loop_of

GPU = torch.device("cuda", 0)
TINY = ModelConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                   max_position_embeddings=64)  # fmt: skip


def batch_of(lengths, L=64, labels=False) -> Batch:
    """A masked batch of sequences of these lengths: with 64 cells a row, most of the padding is left out."""
    generator, B = torch.Generator().manual_seed(1), len(lengths)
    mask = torch.arange(L) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, 100, (B, L), generator=generator) * mask
    slots = torch.randint(5, 100, (B, 8), generator=generator)
    slots[:, 6:] = IGNORED
    made = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(L) >= 3).expand(B, L) & mask,
        "masked_positions": (torch.arange(B)[:, None] * L + torch.arange(1, 9)).flatten(),
        "masked_labels": slots.flatten(),
        "pair_labels": torch.arange(B) % 2,
    }
    made["token_type_ids"] = made["token_type_ids"].long()
    if labels:
        made["labels"] = torch.where(mask & (torch.arange(L) % 3 > 0), ids % 4, IGNORED)
    return made


PADDED, NEARLY_FULL, FULL = [64, 20, 30, 25, 9, 40, 33, 12], [64, 64, 60, 64, 64, 64, 61, 64], [64] * 8


def case(name):
    """A model's configuration, its heads and the objective that it is trained on."""
    if name in PRETRAINING:
        objective = PRETRAINING[name]
        return dataclasses.replace(TINY, direction=objective.direction), objective.heads, objective
    return (TINY, ("tagger",), TaggingObjective()) if name == "tagging" else (TINY, ("mlm",), None)


NAMES = [*PRETRAINING, "tagging", "distillation", "distillation of every token"]


def parts_of(name, seed=1):
    """The model and the objective of a case."""
    config, heads, objective = case(name)
    model = build_model(config, heads, labels=4, seed=seed)
    if objective is None:
        teacher = build_model(config, heads, seed=2).requires_grad_(False).eval()
        objective = DistillationObjective(teacher, every_token="every" in name)
    return model, objective


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [PADDED, NEARLY_FULL, FULL], ids=["padded", "nearly full", "full"])
def test_a_prepared_batch_has_the_losses_and_gradients_of_the_batch(name, lengths):
    batch, found = batch_of(lengths, labels=True), []
    for prepared in (False, True):
        model, objective = parts_of(name)
        given = objective.prepare(batch) if prepared else batch
        assert not prepared or objective.prepare(given) is given
        terms = objective(model, given)
        sum(term.loss for term in terms.values()).backward()
        found.append([*(term.loss for term in terms.values()), *(p.grad for p in model.parameters() if p.requires_grad)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """A function that makes updates of a model on a GPU, of which there is nothing but shapes."""
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(loop_module, "read_later", lambda norm: lambda: 1.0)

    def run(name, lengths, rule="bert_adam", accumulate=2):
        micro_batches = [batch_of(lengths, labels=True)] * accumulate
        model, objective = parts_of(name)
        group = loop_module.Group([(objective.prepare(batch), 0) for batch in micro_batches], (0, 0, 0))
        counts = loop_of(model, [], tmp_path, objective=objective, steps=1)._counts(group, False)
        monkeypatch.setattr(Loop, "_counts", lambda self, group, stop: counts)  # read off batches on the CPU
        with FakeTensorMode(allow_non_fake_inputs=True):
            for module in (model, getattr(objective, "teacher", None)):
                _move(module)
            world = World(0, 1, GPU)
            loop = loop_of(model, [], tmp_path, OptimConfig(rule=rule), objective, steps=9, world=world)
            for _ in range(2):
                assert not loop.step(group, 0.5, False)
        return loop

    return run


def _move(module):
    """Give a module parameters that pretend to be on the GPU."""
    for child in module.modules() if module is not None else ():
        for name, p in child._parameters.items():
            if p is not None:
                child._parameters[name] = torch.nn.Parameter(torch.empty(p.shape, device=GPU), p.requires_grad)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lengths", [PADDED, NEARLY_FULL, FULL], ids=["padded", "nearly full", "full"])
def test_no_operation_of_an_update_waits_for_the_gpu(on_a_gpu, name, lengths):
    loop = on_a_gpu(name, lengths)
    assert loop.progress.updates == 1  # the second is settled a step later


@pytest.mark.parametrize("rule", ["adamw", "lamb", "albert_lamb"])
def test_no_optimizer_waits_for_the_gpu(on_a_gpu, rule):
    on_a_gpu("mlm+nsp", PADDED, rule)


def test_a_batch_that_is_not_prepared_would_wait(on_a_gpu, monkeypatch):
    """So the test above can fail."""
    from bertworks.training.objectives import PretrainingObjective

    monkeypatch.setattr(PretrainingObjective, "prepare", lambda self, batch: batch)
    with pytest.raises((DataDependentOutputException, KeyError)):
        on_a_gpu("mlm+nsp", PADDED)
