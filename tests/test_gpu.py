"""On a CUDA device (`pytest -m gpu`): the losses and gradients of the CPU, bfloat16, updates that wait for nothing."""

import pytest
import torch

from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.model.prepare import compile_layers
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import pretrain
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.machine import World
from bertworks.training.objectives import PretrainingObjective
from support.batches import batch_of
from support.loops import loop_of

pytestmark = pytest.mark.gpu


def shape(vocab_size: int, dropout: float) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_losses_and_gradients_are_those_of_the_cpu(tiny_store, compiled):
    from bertworks.data.instances import Position

    batch, _ = tiny_store.data(length=32).take(Position(), 16)
    sides = []
    for device in ("cpu", "cuda"):
        model = build_model(shape(tiny_store.vocab_size, 0.0), seed=1).to(device).train()
        if compiled and device == "cuda":
            compile_layers(model.encoder)
        terms = PretrainingObjective()(model, {name: value.to(device) for name, value in batch.items()})
        loss = sum(term.loss for term in terms.values())
        loss.backward()
        sides.append([loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters())])
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_run_on_the_device_ends_with_results(tiny_store, tmp_path):
    def run(steps: int, out: str) -> dict:
        config = PretrainConfig(
            model=shape(tiny_store.vocab_size, 0.1),
            loop=LoopConfig(steps=steps, save_every=5, eval_every=0, precision="bfloat16", compile="off"),
            phases=(Phase(length=32, batch_size=16, micro_batch_size=8),),
        )
        return pretrain(config, tiny_store.path, tmp_path / out, quiet=True)

    results = run(20, "one")
    assert results["machine"]["gpu"]
    assert results["metrics"]["mlm_loss"] < 20
    assert torch.isfinite(torch.tensor(results["metrics"]["mlm_loss"]))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", ["bert_adam", "lamb"])
def test_no_update_waits_for_the_device(tmp_path, precision, rule):
    """torch raises at what would wait. The first updates may: they make buffers and choose kernels."""
    device = torch.device("cuda", torch.cuda.current_device())
    model = build_model(shape(100, 0.1), seed=1).to(device)
    groups = [batch_of([64, 20 + i, 30, 25, 9, 40, 33, 12]) for i in range(3)]
    optim, world = OptimConfig(rule=rule), World(0, 1, device)
    loop = loop_of(model, groups, tmp_path, optim, steps=6, log_every=0, world=world, precision=precision)
    step = loop.step

    def strict(*given):
        torch.cuda.set_sync_debug_mode("error" if loop.progress.step >= 2 else "default")
        try:
            return step(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    loop.step = strict
    assert loop.run() and loop.progress.updates == 6


def test_an_update_that_is_not_finite_is_not_made(tmp_path):
    device = torch.device("cuda", torch.cuda.current_device())
    model = build_model(shape(100, 0.0), seed=1).to(device)
    loop = loop_of(model, [batch_of([64, 20, 9, 33])], tmp_path, steps=3, log_every=0, world=World(0, 1, device))
    loop.weights = {"mlm": float("inf")}
    before = [p.detach().clone() for p in model.parameters()]
    assert loop.run() and (loop.progress.step, loop.progress.updates) == (3, 0)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
