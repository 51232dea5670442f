"""On a CUDA device (`pytest -m gpu`): losses, gradients, accumulation, resume, bfloat16, updates that do not wait."""

import dataclasses

import pytest
import torch

from bertworks import Predictor, finetune
from bertworks.model.acceleration import compile_layers
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.fast import backend
from bertworks.model.fast.attention import flash_attention
from bertworks.model.forward import ForwardOptions
from bertworks.model.layout import Layout
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.reporting.run_files import read_log
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.distributed import World
from bertworks.training.graph import use_static_passes
from bertworks.training.objectives import PretrainingObjective
from support.batches import batch_of
from support.loops import loop_of
from support.tiny_task import tiny_place

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
WHOLE = [64, 20, 30, 25, 9, 40, 33, 12]  # lengths of a batch


def shape(vocab_size: int, dropout: float) -> ModelConfig:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return ModelConfig(vocab_size=vocab_size, max_position_embeddings=64, **sizes, **rates)


@pytest.mark.parametrize("compiled", [False, True])
def test_losses_and_gradients_are_those_of_the_cpu(tiny_store, compiled):
    from bertworks.data.instances import StreamPosition

    batch, _ = tiny_store.data(length=32).take(StreamPosition(), 16)
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
    clip, gradients = loop.trainer.optimizer.clip_grad_norm, []

    def noted():
        gradients.extend(
            p.grad.flatten().float() for p in loop.trainer.optimizer.parameters.values() if p.grad is not None
        )
        return clip()

    loop.trainer.optimizer.clip_grad_norm = noted
    assert loop.train()
    return torch.cat(gradients)


@pytest.mark.parametrize("compute", ["eager", "packed", "static", "auto", "reference"])
def test_a_stopped_run_resumes_and_ends_like_an_undisturbed_one(tiny_store, tmp_path, compute):
    """With dropout, accumulation and bfloat16. Sums on a GPU may differ in their last bits, so losses are near."""
    config = PretrainConfig(
        model=shape(tiny_store.vocab_size, 0.1),
        loop=LoopConfig(steps=20, log_every=5, save_every=5, eval_every=0, precision="bfloat16", compute=compute),
        phases=(Phase(length=32, batch_size=16, micro_batch_size=8),),
    )
    undisturbed = pretrain(config, tiny_store.path, tmp_path / "one", quiet=True)
    stopped = pretrain(
        config, tiny_store.path, tmp_path / "two", quiet=True, on_record=lambda record: record["step"] == 10
    )
    resumed = pretrain(config, tiny_store.path, tmp_path / "two", quiet=True)
    assert stopped is None and undisturbed["machine"]["gpu"]
    assert (resumed["steps"], resumed["tokens"]) == (20, undisturbed["tokens"])
    assert resumed["metrics"]["mlm_loss"] == pytest.approx(undisturbed["metrics"]["mlm_loss"], rel=0.01)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_graph_repeats_the_passes_of_static_shapes(tmp_path, precision):
    """With the same dropout masks, so the losses are near; sums may differ in their last bits."""
    losses = []
    for compute in ("static", "graph"):
        model = build_model(shape(100, 0.1), seed=1).to(gpu())
        compile_layers(model.encoder)
        settings = {"steps": 12, "world": World(0, 1, gpu()), "precision": precision, "compute": compute}
        loop = loop_of(model, [batch_of(WHOLE), batch_of(WHOLE[::-1])], tmp_path / compute, **settings)
        use_static_passes(loop.trainer)
        assert loop.train()
        losses.append([record["mlm_loss"] for record in read_log(tmp_path / compute)])
    assert len(loop.trainer.backward_pass.recorded) == 1
    assert losses[1] == pytest.approx(losses[0], rel=1e-2 if precision == "bfloat16" else 1e-3)


@pytest.mark.parametrize("compute", ["eager", "packed", "graph"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", ["bert_adam", "albert_lamb"])
def test_no_update_waits_for_the_device(tmp_path, precision, rule, compute):
    """torch raises at what would wait. The first six updates may: they make buffers, choose kernels, compile, record.

    By then each of the three groups was seen twice. The second one has two micro-batches.
    """
    model = build_model(shape(100, 0.1), seed=1).to(gpu())
    if compute != "eager":
        compile_layers(model.encoder)
    groups = [batch_of(WHOLE), [batch_of(WHOLE[:4]), batch_of(WHOLE[4:])], batch_of([50, *WHOLE[1:]])]
    optim, world = OptimConfig(rule=rule), World(0, 1, gpu())
    settings = {"log_every": 0, "world": world, "precision": precision, "compute": compute}
    loop = loop_of(model, groups, tmp_path, optim, steps=9, **settings)
    use_static_passes(loop.trainer)
    step = loop.trainer.update

    def strict(*given):
        torch.cuda.set_sync_debug_mode("error" if loop.progress.step >= 6 else "default")
        try:
            return step(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    loop.trainer.update = strict
    assert loop.train() and loop.progress.updates == 9


def test_an_update_that_is_not_finite_is_not_made(tmp_path):
    model = build_model(shape(100, 0.0), seed=1).to(gpu())
    loop = loop_of(model, [batch_of([64, 20, 9, 33])], tmp_path, steps=3, log_every=0, world=World(0, 1, gpu()))
    loop.trainer.loss_weights = {"mlm": float("inf")}
    before = [p.detach().clone() for p in model.parameters()]
    assert loop.train() and (loop.progress.step, loop.progress.updates) == (3, 0)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"position_embedding_type": "rotary"}, {"direction": "left"}], ids=["both", "rotary", "left"]
)
@pytest.mark.parametrize(
    "lengths", [WHOLE, [64] * 16, [63] + [64] * 15, [16] * 60 + [5] * 14], ids=["padding", "none", "one", "filling"]
)
def test_attention_of_packed_rows_is_that_of_the_rectangle(monkeypatch, lengths, settings, compiled):
    """Outputs and gradients in bfloat16, with and without the flash kernel."""
    config = dataclasses.replace(shape(100, 0.0), **settings)
    batch = {name: value.to(gpu()) for name, value in batch_of(lengths, max(lengths)).items()}
    sides = []
    for flash in (True, False):
        if not flash:
            monkeypatch.setattr(backend, "is_flash_possible", lambda x, H: False)
        model = build_model(config, seed=1).to(gpu()).train()
        if compiled:
            compile_layers(model.encoder)
        with torch.autocast("cuda", torch.bfloat16):
            facts = model.encoder.backend.facts(model.encoder, Layout.of_batch(batch), ForwardOptions())
            assert facts.flash is flash
            out = model.encode(batch)
        (out.last_hidden_state.float() ** 2).sum().backward()
        layers = torch.cat([p.grad.flatten() for p in model.encoder.layers.parameters()])
        sides.append((out.last_hidden_state.float(), layers))
    for ours, other in zip(*sides, strict=True):
        assert torch.isfinite(ours).all()
        assert (ours - other).norm() <= 0.02 * other.norm()


def test_dropout_of_the_flash_kernel_is_that_of_the_recipe():
    """Zeroed weights are replaced by larger ones: sums over ones stay 1 on average, and differ."""
    T, bounds = 4096, torch.arange(0, 4097, 128, device=gpu(), dtype=torch.int32)
    q, k = (torch.randn(1, 2, T, 64, device=gpu(), dtype=torch.bfloat16) for _ in range(2))
    v = torch.ones_like(q)
    torch.testing.assert_close(flash_attention(q, k, v, bounds, 128, 0.0, False), v, rtol=0, atol=0.01)
    torch.cuda.manual_seed(7)
    one = flash_attention(q, k, v, bounds, 128, 0.1, False)
    torch.cuda.manual_seed(7)
    again = flash_attention(q, k, v, bounds, 128, 0.1, False)
    assert torch.equal(one, again) and one.float().std() > 0.01
    assert one.float().mean().item() == pytest.approx(1.0, abs=0.005)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of a classifier that was fine-tuned on the GPU, texts, and its results."""
    place = tiny_place(tmp_path_factory.mktemp("tuned"), 200, 60)
    given = {"optim": {"lr": 3e-3}, "loop": {"compute": "eager", "precision": "bfloat16"}, "epochs": 6, "quiet": True}
    files = {"train": place / "train.csv", "dev": place / "dev.csv"}
    results = finetune(place / "model", place / "run", **files, text="text", label="label", max_seq_length=24, **given)
    return place / "run", [line.partition(",")[2] for line in files["dev"].read_text().splitlines()[1:]], results


def test_fine_tuning_learns(tuned):
    _, _, made = tuned
    assert made.metrics["accuracy"] > 0.95 and made.details["machine"]["gpu"]


@pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_a_predictor_gives_the_scores_of_the_cpu(tuned, precision, bound):
    folder, texts, _ = tuned
    on_cpu = Predictor(folder, device="cpu", precision="float32").classify(texts, all_scores=True)
    on_gpu = Predictor(folder, device="cuda", precision=precision).classify(texts, all_scores=True)
    for ours, other in zip(on_gpu, on_cpu, strict=True):
        assert ours["scores"] == pytest.approx(other["scores"], abs=bound)
