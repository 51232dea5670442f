"""On a CUDA device (`pytest -m gpu`): losses, gradients, accumulation, resume, bfloat16, updates that do not wait."""

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

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
WHOLE = [64, 20, 30, 25, 9, 40, 33, 12]  # lengths of a batch


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


def gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_micro_batches_have_the_gradient_of_the_whole_batch(tmp_path, compiled, precision, dropout):
    """With dropout other masks are drawn, so the gradients need only be finite."""
    parts = [batch_of(WHOLE[:4]), batch_of(WHOLE[4:])]
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    whole["masked_positions"] = torch.cat([parts[0]["masked_positions"], parts[1]["masked_positions"] + 4 * 64])
    found = []
    for number, group in enumerate((whole, parts)):
        model = build_model(shape(100, dropout), seed=1).to(gpu()).train()
        if compiled:
            compile_layers(model.encoder)
        folder, world = tmp_path / str(number), World(0, 1, gpu())
        loop = loop_of(model, [group], folder, steps=1, log_every=0, world=world, precision=precision)
        found.append(gradient_of(loop))
        assert loop.progress.updates == 1
    one, other = found
    assert torch.isfinite(one).all() and torch.isfinite(other).all()
    if not dropout:
        assert (one - other).norm() <= (0.03 if precision == "bfloat16" else 1e-4) * one.norm()


def gradient_of(loop) -> torch.Tensor:
    """The gradient of a loop's only update, all parameters in one vector."""
    clip, gradients = loop.optimizer.clip, []

    def noted():
        gradients.extend(p.grad.flatten().float() for p in loop.optimizer.parameters.values() if p.grad is not None)
        return clip()

    loop.optimizer.clip = noted
    assert loop.run()
    return torch.cat(gradients)


@pytest.mark.parametrize("compile", ["off", "auto"])
def test_a_stopped_run_resumes_and_ends_like_an_undisturbed_one(tiny_store, tmp_path, compile):
    """With dropout, accumulation and bfloat16. Sums on a GPU may differ in their last bits, so losses are near."""
    config = PretrainConfig(
        model=shape(tiny_store.vocab_size, 0.1),
        loop=LoopConfig(steps=20, log_every=5, save_every=5, eval_every=0, precision="bfloat16", compile=compile),
        phases=(Phase(length=32, batch_size=16, micro_batch_size=8),),
    )
    undisturbed = pretrain(config, tiny_store.path, tmp_path / "one", quiet=True)
    stopped = pretrain(config, tiny_store.path, tmp_path / "two", quiet=True, watch=lambda _, r: r["step"] == 10)
    resumed = pretrain(config, tiny_store.path, tmp_path / "two", quiet=True)
    assert stopped is None and undisturbed["machine"]["gpu"]
    assert (resumed["steps"], resumed["tokens"]) == (20, undisturbed["tokens"])
    assert resumed["metrics"]["mlm_loss"] == pytest.approx(undisturbed["metrics"]["mlm_loss"], rel=0.01)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", ["bert_adam", "lamb"])
def test_no_update_waits_for_the_device(tmp_path, precision, rule, compiled):
    """torch raises at what would wait. The first six updates may: they make buffers, choose kernels and compile.

    By then each of the three groups was seen twice. The second one has two micro-batches.
    """
    model = build_model(shape(100, 0.1), seed=1).to(gpu())
    if compiled:
        compile_layers(model.encoder)
    groups = [batch_of(WHOLE), [batch_of(WHOLE[:4]), batch_of(WHOLE[4:])], batch_of([50, *WHOLE[1:]])]
    optim, world = OptimConfig(rule=rule), World(0, 1, gpu())
    loop = loop_of(model, groups, tmp_path, optim, steps=9, log_every=0, world=world, precision=precision)
    step = loop.step

    def strict(*given):
        torch.cuda.set_sync_debug_mode("error" if loop.progress.step >= 6 else "default")
        try:
            return step(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    loop.step = strict
    assert loop.run() and loop.progress.updates == 9


def test_an_update_that_is_not_finite_is_not_made(tmp_path):
    model = build_model(shape(100, 0.0), seed=1).to(gpu())
    loop = loop_of(model, [batch_of([64, 20, 9, 33])], tmp_path, steps=3, log_every=0, world=World(0, 1, gpu()))
    loop.weights = {"mlm": float("inf")}
    before = [p.detach().clone() for p in model.parameters()]
    assert loop.run() and (loop.progress.step, loop.progress.updates) == (3, 0)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
