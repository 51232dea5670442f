"""Passes of one shape, and their graphs; support/recorder.py records without a GPU."""

import dataclasses

import pytest
import torch

from bertworks.data.opening import open_store
from bertworks.data.prefetch import Prefetcher
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.layout import Layout
from bertworks.pretraining.job import open_training
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import PretrainingFeed
from bertworks.training import vocabulary_loss
from bertworks.training.config import LoopConfig, TrainerState
from bertworks.training.distributed import World
from bertworks.training.graph import WARM_UP, RecordedPass, StaticObjective, kind_of_pass, use_static_passes
from bertworks.training.objectives import PRETRAINING, PretrainingObjective
from bertworks.training.task_objectives import DistillationObjective
from bertworks.training.trainer import Trainer
from support.batches import batch_of
from support.loops import ALONE, loop_of, stopped_before
from support.recorder import TapeRecorder

TINY = ModelConfig(
    vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=64,
)  # fmt: skip
CPU, GPU = torch.device("cpu"), torch.device("cuda")
MANY = [16 - row % 5 for row in range(40)]  # their unused slots are more than FILL


def with_predictions(batch, some):
    """The batch without the predictions of every `some`-th slot."""
    labels = batch["masked_labels"].clone()
    labels[::some] = -100
    return batch | {"masked_labels": labels}


def shapes_of(batch):
    return {name: tuple(value.shape) for name, value in batch.items()}


# ---- one shape


def test_a_phase_has_one_shape(tiny_store):
    """Of a thousand batches of two phases, by new feeds as after a resume; without it there are many shapes."""
    config = PretrainConfig(phases=(Phase(64, 0.5, 64, 32), Phase(128, 0.5, 16)), loop=LoopConfig(steps=1000))
    vocabulary, progress = open_training(config, tiny_store.path, finished=True).vocabulary, TrainerState()
    static, packed = {64: set(), 128: set()}, {64: set(), 128: set()}
    while progress.step < 1000:
        if progress.step % 300 == 0:
            feed = PretrainingFeed(config, open_store(tiny_store.path), vocabulary, ALONE, Prefetcher)
        batch = feed(progress, progress.step / 1000)
        progress.step += 1
        progress.phase, progress.group, progress.offset = batch.next_position
        for micro, _ in batch.micro_batches:
            L = micro["input_ids"].shape[1]
            static[L].add(str(shapes_of(StaticObjective("nsp").prepare(micro))))
            packed[L].add(str(shapes_of(PretrainingObjective("nsp").prepare(micro))))
    assert [len(shapes) for shapes in static.values()] == [1, 1]
    assert all(len(shapes) > 1 for shapes in packed.values())


@pytest.mark.parametrize("change", [{}, {"direction": "left"}, {"attention_window": 4, "global_every": 2}], ids=str)
@pytest.mark.parametrize("name", ["mlm", "mlm+nsp", "mlm+sop"])
def test_losses_and_gradients_are_those_of_packed_batches(tmp_path, name, change):
    """With dropout, whose masks depend on no padding."""
    batch, sides = with_predictions(batch_of(MANY, 16), 3), []
    batch["pair_labels"][::4] = -100
    for objective in (PRETRAINING[name], StaticObjective(PRETRAINING[name].pair)):
        model = build_model(dataclasses.replace(TINY, **change), ("mlm", *filter(None, [objective.pair])), seed=1)
        loop = loop_of(model, [batch], tmp_path, objective=objective, steps=1)
        terms = loop.trainer._backward(batch, 0, objective.counts(batch), True)
        sides.append([*terms.values(), *(p.grad for p in model.parameters() if p.grad is not None)])
        assert objective.counts(batch)["mlm"] < len(batch["masked_labels"]) - vocabulary_loss.FILL
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("compute", "objective", "device", "processes", "kind"),
    [
        ("auto", "mlm+nsp", GPU, 1, "graph"),
        ("auto", "mlm", GPU, 2, "static"),
        ("auto", "mlm", CPU, 1, "packed"),
        ("auto", "ltr", GPU, 1, "packed"),
        ("graph", "mlm", GPU, 1, "graph"),
        ("graph", "mlm", CPU, 1, "static"),
        ("graph", None, GPU, 1, "packed"),
        ("static", "mlm", GPU, 1, "static"),
        ("static", "mlm", CPU, 1, "static"),
        ("packed", "mlm", GPU, 1, "packed"),
        ("eager", "mlm", GPU, 1, "packed"),
        ("reference", "mlm", GPU, 1, "packed"),
    ],
)
def test_the_kind_of_pass(compute, objective, device, processes, kind):
    model, world = build_model(TINY, ("mlm",)), World(0, processes, device)
    assert kind_of_pass(compute, PRETRAINING.get(objective), model, world) == kind
    lstm = build_model(dataclasses.replace(TINY, layer_type="lstm"), ("mlm",))
    assert kind_of_pass(compute, PRETRAINING.get(objective), lstm, world) == "packed"


def test_distillation_stays_packed(tmp_path):
    model, teacher = (build_model(TINY, ("mlm",), seed=seed) for seed in (1, 2))
    objective = DistillationObjective(teacher.eval())
    loop = loop_of(model, [], tmp_path, objective=objective, steps=1, compute="static")
    use_static_passes(loop.trainer)
    assert loop.trainer.objective is objective


# ---- recorded once, repeated


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Training on a CPU by the code of a GPU: torch draws the dropout, and no value is looked at."""

    def seed(trainer, row):
        torch.manual_seed(trainer.progress.step * 1000 + row)

    monkeypatch.setattr(Trainer, "_dropout_key", seed)
    monkeypatch.setattr(vocabulary_loss, "_is_on_gpu", lambda x: True)
    monkeypatch.setattr(Layout, "has", lambda self, positions: True)


# steps of two micro-batches, each with other lengths and another number of predictions
STEPS = [
    [with_predictions(batch_of([20 - (row * step) % 9 for row in range(8)], 20), step + micro) for micro in (2, 3)]
    for step in range(1, 5)
]


def recorded_loop(folder, recorder, batches=STEPS, **more):
    """A loop with static shapes, whose passes are recorded if there is a recorder."""
    loop = loop_of(build_model(TINY, seed=1), batches, folder, objective=StaticObjective("nsp"), save_every=1, **more)
    trainer, passes = loop.trainer, []
    made = trainer.backward_pass

    def counted(*given):
        passes.append(given)
        return made(*given)

    trainer.backward_pass = counted
    if recorder is not None:
        trainer.backward_pass = RecordedPass(counted, trainer.model.parameters(), recorder)
    return loop, passes


def outcome(loop):
    return [p.detach().clone() for p in loop.trainer.model.parameters()]


def test_repeated_passes_are_those_that_python_computes(tmp_path, like_a_gpu):
    """Bit for bit, with dropout and accumulation; the gradients stay where they are."""
    (plain, calls), recorder = recorded_loop(tmp_path / "plain", None, steps=8), TapeRecorder()
    assert plain.train() and len(calls) == 16
    loop, calls = recorded_loop(tmp_path / "recorded", recorder, steps=8)
    addresses, clip = set(), loop.trainer.optimizer.clip_grad_norm

    def noted():
        addresses.add(tuple(p.grad.data_ptr() for p in loop.trainer.model.parameters() if p.grad is not None))
        return clip()

    loop.trainer.optimizer.clip_grad_norm = noted
    assert loop.train() and recorder.recorded == 1 and len(calls) == WARM_UP + 1
    assert len(addresses) == 1
    assert (tmp_path / "plain/log.jsonl").read_text().count("mlm_loss") == 8
    assert all(torch.equal(*pair) for pair in zip(outcome(plain), outcome(loop), strict=True))


def test_each_shape_is_recorded_once(tmp_path, like_a_gpu):
    """As in phases of two lengths, here in turns."""
    batches = [batch_of([20, 18, 20], 20), batch_of([12, 9, 12, 11], 12)]
    (plain, _), recorder = recorded_loop(tmp_path / "plain", None, batches, steps=12), TapeRecorder()
    assert plain.train()
    loop, calls = recorded_loop(tmp_path / "recorded", recorder, batches, steps=12)
    assert loop.train() and recorder.recorded == 2 and len(calls) == 2 * (WARM_UP + 1)
    assert all(torch.equal(*pair) for pair in zip(outcome(plain), outcome(loop), strict=True))


def test_a_resumed_run_ends_like_an_undisturbed_one(tmp_path, like_a_gpu):
    """No generator is saved: the masks of a step depend on its number."""
    whole, _ = recorded_loop(tmp_path / "whole", TapeRecorder(), steps=8)
    assert whole.train()
    first, _ = recorded_loop(tmp_path / "stopped", TapeRecorder(), stopped_before(5, STEPS), steps=8)
    with pytest.raises(KeyboardInterrupt):
        first.train()
    torch.manual_seed(99)
    second, _ = recorded_loop(tmp_path / "stopped", TapeRecorder(), steps=8, resumed=True)
    assert 3 <= second.progress.step <= 5 and second.train()  # the last state may not have been written
    assert all(torch.equal(*pair) for pair in zip(outcome(whole), outcome(second), strict=True))


def test_a_pass_that_reads_a_value_is_not_recorded(tmp_path, like_a_gpu, monkeypatch):
    """So that the tests above notice such a pass."""
    terms = StaticObjective.terms

    def reads(self, model, batch, dropout=None):
        return terms(self, model, batch | {"n": batch["attention_mask"].sum().item()}, dropout)

    monkeypatch.setattr(StaticObjective, "terms", reads)
    loop, _ = recorded_loop(tmp_path, TapeRecorder(), steps=8)
    with pytest.raises(RuntimeError, match="_local_scalar_dense"):
        loop.train()
