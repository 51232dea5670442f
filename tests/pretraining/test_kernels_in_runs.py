"""Runs with the compiled kernels: they say so, and micro-batches change only rounding."""

import dataclasses

import pytest
import torch

from bertworks.checkpoint.folder import load_model
from bertworks.model.acceleration import use_kernels
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.fast.kernels.build import load
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.optim import Optimizer
from bertworks.training.trainer import Trainer

pytestmark = pytest.mark.skipif(load() is None, reason="needs Linux, gcc and AVX-512 with bfloat16")
STEPS = 12
ROUNDING = 0.002  # between the weights of two such runs; with other dropout masks it is 0.015


@pytest.fixture
def trained(tiny_store, tmp_path):
    def run(name, compute="auto", micro=0, save_every=500, quiet=True):
        model = ModelConfig(tiny_store.vocab_size, 32, 2, 2, 48, max_position_embeddings=64)
        config = PretrainConfig(
            model=model,
            optim=OptimConfig(lr=1e-3, rule="adamw", warmup=0.0),
            loop=LoopConfig(
                steps=STEPS, precision="bfloat16", eval_every=0, log_every=1, compute=compute, save_every=save_every
            ),
            phases=(dataclasses.replace(Phase(32, 1.0, 16), micro_batch_size=micro),),
        )
        results = pretrain(config, tiny_store.path, tmp_path / name, quiet=quiet)
        weights = torch.cat([p.detach().flatten() for p in load_model(tmp_path / name).parameters()])
        return results, weights

    return run


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / one.norm())


def test_results_say_whether_kernels_were_used(trained):
    with_kernels, without = (trained(compute, compute) for compute in ("auto", "eager"))
    assert [results["kernels"] for results, _ in (with_kernels, without)] == [True, False]
    assert 0 < apart(with_kernels[1], without[1]) < ROUNDING
    losses = [results["metrics"]["mlm_loss"] for results, _ in (with_kernels, without)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_micro_batches_change_only_rounding(trained):
    whole, halves = trained("whole"), trained("halves", micro=4)
    assert apart(whole[1], halves[1]) < ROUNDING
    assert whole[0]["tokens"] == halves[0]["tokens"]


def test_the_same_run_has_the_same_bytes(trained):
    assert torch.equal(trained("one")[1], trained("two")[1])


def test_a_resumed_run_says_that_it_rounds_differently(trained, tmp_path, monkeypatch, capsys):
    class Killed(Exception):
        pass

    def stopped(self, *given):
        if self.progress.step == STEPS // 2:
            raise Killed
        return update(self, *given)

    update = Trainer.update
    monkeypatch.setattr(Trainer, "update", stopped)
    with pytest.raises(Killed):
        trained("run", save_every=3)
    monkeypatch.setattr(Trainer, "update", update)
    monkeypatch.setattr("bertworks.training.compute.load_kernels", lambda: None)
    assert not trained("run", save_every=3, quiet=False)[0]["kernels"]
    said = " ".join("".join(capsys.readouterr()).split())
    assert "compiled kernels differ from those of the steps so far: the run rounds differently from here on" in said
    assert "training is slower without compiled kernels, which need Linux, gcc and PyTorch installed by pip" in said


def test_a_table_that_only_the_words_of_a_batch_change_gets_a_dense_gradient():
    model = build_model(ModelConfig(vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=32), seed=1)
    use_kernels(model, load())
    optimizer = Optimizer(model, OptimConfig(rule="adamw"))
    model.encoder(torch.arange(8)[None]).packed.sum().backward()  # no masked LM
    table = model.encoder.embeddings.word.weight
    assert table.grad.is_sparse
    optimizer.step(0, 0.5, optimizer.clip_grad_norm())
    assert table.isfinite().all()


def test_gradients_are_clipped_by_the_norm_of_the_kernel(monkeypatch):
    model, found, calls = torch.nn.Linear(30, 20), load(), []
    norm = type(found).norm
    monkeypatch.setattr(type(found), "norm", lambda *given: calls.append(1) or norm(*given))
    optimizer = Optimizer(model, OptimConfig(rule="adamw"))
    (100 * model(torch.randn(8, 30)).square().sum()).backward()
    expected, divided = optimizer.clip_grad_norm(), optimizer.main.grad_scale
    assert divided > 1 and not calls
    optimizer.kernels = found
    torch.testing.assert_close(optimizer.clip_grad_norm(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(optimizer.main.grad_scale, divided, rtol=1e-6, atol=0)
    assert calls
