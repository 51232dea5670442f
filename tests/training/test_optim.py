"""Update rules and learning rates: equal to the original's traces, to torch's AdamW, to transformers' schedule."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bertworks.files import InputError
from bertworks.model import layout
from bertworks.model.build import build_model
from bertworks.reporting.log import read_log
from bertworks.training.config import OptimConfig
from bertworks.training.objectives import PretrainingObjective
from bertworks.training.optim import Optimizer, layers_from_top, learning_rate, orthogonalized
from bertworks.training.task_objectives import ClassificationObjective
from support.loops import loop_of
from support.original import config_of, theirs
from support.shared_data import needs_shared, shared
from support.tiny_task import TINY

ORACLE = "oracle/optimizer"
CLASSIFIER = {"heads.classifier.weight": "output_weights", "heads.classifier.bias": "output_bias"}


def ours(arrays, name, suffix=""):
    """An array of the original under our name; its kernels are [in, out]."""
    scope = CLASSIFIER.get(name) or theirs(name)
    array = torch.from_numpy(arrays[scope + suffix])
    return array.T.contiguous() if scope.endswith("/kernel") else array


def batches_of(name):
    """The batches of a run, one a step, in our form."""
    made = []
    arrays = {key: torch.from_numpy(value) for key, value in np.load(shared(ORACLE) / f"{name}_batches.npz").items()}
    for step in range(len(arrays["input_ids"])):
        b = {key: value[step] for key, value in arrays.items()}
        batch = {
            "input_ids": b["input_ids"].long(),
            "attention_mask": b["input_mask"].bool(),
            "token_type_ids": b["segment_ids"].long(),
        }
        if "labels" in b:
            batch["labels"] = b["labels"].long()
        else:
            B, L = b["input_ids"].shape
            batch["masked_positions"] = (b["masked_lm_positions"].long() + torch.arange(B)[:, None] * L).flatten()
            batch["masked_labels"] = torch.where(b["masked_lm_weights"] > 0, b["masked_lm_ids"].long(), -100).flatten()
            batch["pair_labels"] = b["next_sentence_labels"].long().flatten()
        made.append(batch)
    return made


@needs_shared(ORACLE)
@pytest.mark.parametrize("name", ["pretraining", "classification_one_hot"])
def test_thirty_steps_of_the_original(name, tmp_path, monkeypatch):
    """Losses, rates, gradient norms, final weights and moments.

    Not `classification`: there the norm for clipping is taken of the gathered rows of the word embeddings before rows
    of one id are added up, an accident of TensorFlow's sparse gradients; the one-hot run has the usual norm.
    The random batches predict some cells of padding too, so here no padding may be left out.
    """
    monkeypatch.setattr(layout, "ROW_MULTIPLE", 128)
    record, start = json.loads((shared(ORACLE) / f"{name}.json").read_text()), name.removesuffix("_one_hot")
    initial, final, slots = (
        np.load(shared(ORACLE) / f"{file}.npz") for file in (f"{start}_initial", f"{name}_final", f"{name}_final_slots")
    )
    heads = ("mlm", "nsp") if name == "pretraining" else ("classifier",)
    model = build_model(config_of(record["bert_config"]), heads, labels=record["num_labels"] or 0)
    model.load_state_dict({key: ours(initial, key) for key in model.state_dict()})
    total, batches = record["num_train_steps"], batches_of(start)
    optim = OptimConfig(lr=record["init_lr"], rule="bert_adam", warmup=record["num_warmup_steps"] / total)
    objective = PretrainingObjective() if name == "pretraining" else ClassificationObjective()
    loop = loop_of(model, batches, tmp_path, optim, objective, steps=total)
    assert loop.train()
    log = [entry for entry in read_log(tmp_path) if entry["kind"] == "train"]
    assert len(log) == total
    losses = [sum(value for key, value in entry.items() if key.endswith("_loss")) for entry in log]
    np.testing.assert_allclose(losses, record["loss"][:total], rtol=2e-5)
    np.testing.assert_allclose([e["lr"] for e in log], record["learning_rate"][:total], rtol=1e-6)
    np.testing.assert_allclose([e["grad_norm"] for e in log], record["gradient_global_norm"][:total], rtol=5e-5)
    for step in range(total, record["steps_run"]):  # past the end of the schedule the rate is 0, the moments go on
        objective(model, batches[step])["task"].loss.div(len(batches[step]["labels"])).backward()
        loop.trainer.optimizer.clip_grad_norm()
        assert loop.trainer.optimizer.step(step, step / total) == record["learning_rate"][step] == 0
    for key, parameter in model.named_parameters():
        if key.endswith("key.bias"):  # the true gradient is 0: what Adam makes of rounding
            continue
        moments = loop.trainer.optimizer.main.state[parameter]
        pairs = {
            "weights": (parameter.detach(), ours(final, key)),
            "m": (moments["exp_avg"], ours(slots, key, "/adam_m")),
            "v": (moments["exp_avg_sq"], ours(slots, key, "/adam_v")),
        }
        for what, (found, expected) in pairs.items():
            far = (found - expected).norm() / expected.norm()
            assert far < (1e-5 if what == "weights" else 1e-4), (key, what)


@needs_shared(ORACLE)
def test_learning_rates_of_the_original():
    settings = json.loads((shared(ORACLE) / "learning_rate.json").read_text())
    assert len(settings) == 7
    for s in settings:
        total = s["num_train_steps"]
        # not an OptimConfig: that refuses a warm-up as long as the run, which the formula knows all the same
        config = SimpleNamespace(
            lr=s["init_lr"], warmup=s["num_warmup_steps"] / total, schedule="google", warmup_updates=0
        )
        found = [learning_rate(config, step / total) for step in s["global_step"]]
        np.testing.assert_allclose(found, s["learning_rate"], rtol=1e-6, atol=1e-7 * s["init_lr"])


def test_the_hf_schedule_is_that_of_transformers():
    transformers = pytest.importorskip("transformers")
    for total, warmup in ((40, 4), (37, 0), (50, 13)):
        theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-4)
        schedule = transformers.get_linear_schedule_with_warmup(theirs, warmup, total)
        config = OptimConfig(lr=3e-4, warmup=warmup / total, schedule="hf")
        for step in range(total + 2):
            assert learning_rate(config, step / total) == pytest.approx(
                theirs.param_groups[0]["lr"], rel=1e-9, abs=1e-18
            )
            theirs.step()
            schedule.step()


def test_a_constant_rate_and_limits():
    config = OptimConfig(lr=2.0, warmup=0.5, schedule="constant")
    assert [learning_rate(config, p) for p in (0, 0.25, 0.5, 1.0)] == [0, 1.0, 2.0, 2.0]
    for bad in ({"lr": 0.0}, {"warmup": 1.0}, {"warmup": -0.1}):
        with pytest.raises(ValueError, match="expected learning rates above 0"):
            OptimConfig(**bad)
    for decay in (0.0, 1.1, -1.0):
        with pytest.raises(ValueError, match=f"layer_decay = {decay}; expected above 0 and at most 1"):
            OptimConfig(layer_decay=decay)


class Small(torch.nn.Module):
    """A matrix, which is decayed, and a vector, which is not."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.matrix = torch.nn.Parameter(torch.randn(7, 5, generator=generator))
        self.vector = torch.nn.Parameter(torch.randn(5, generator=generator))
        self.fixed = torch.nn.Parameter(torch.ones(3), requires_grad=False)


def gradients(seed=6, steps=20):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(7, 5, generator=generator), torch.randn(5, generator=generator)


def test_adamw_is_torchs():
    ours, theirs = Small(), Small()
    config = OptimConfig(lr=0.01, rule="adamw", weight_decay=0.1, schedule="constant", warmup=0, max_grad_norm=0.5)
    optimizer = Optimizer(ours, config)
    groups = [{"params": [theirs.matrix], "weight_decay": 0.1}, {"params": [theirs.vector], "weight_decay": 0.0}]
    peer = torch.optim.AdamW(groups, lr=0.01, eps=1e-6)
    for step, grads in enumerate(gradients()):
        for model in (ours, theirs):
            model.matrix.grad, model.vector.grad = (g.clone() for g in grads)
        norm = torch.nn.utils.clip_grad_norm_([theirs.matrix, theirs.vector], 0.5)
        torch.testing.assert_close(optimizer.clip_grad_norm(), norm)
        optimizer.step(step, step / 20)
        peer.step()
    torch.testing.assert_close(ours.matrix, theirs.matrix, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.vector, theirs.vector, rtol=1e-6, atol=1e-7)
    assert (ours.fixed == 1).all() and "fixed" not in optimizer.parameters


def test_bert_adam_is_the_originals_formula():
    model = Small()
    w, m, v = model.matrix.detach().double(), 0.0, 0.0
    optimizer = Optimizer(model, OptimConfig(lr=0.01, weight_decay=0.1, schedule="constant", warmup=0, max_grad_norm=0))
    for step, grads in enumerate(gradients()):
        model.matrix.grad, model.vector.grad = (g.clone() for g in grads)
        optimizer.step(step, 0.0)
        g = grads[0].double()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * (m / (v.sqrt() + 1e-6) + 0.1 * w)
    torch.testing.assert_close(model.matrix.detach().double(), w, rtol=2e-6, atol=2e-6)


class LambByHand:
    """Algorithm 2 of You et al. (2020), an array at a time, in float64."""

    def __init__(self, config):
        self.config, self.m, self.v = config, {}, {}

    def step(self, name, w, g, rate):
        c, (beta1, beta2) = self.config, self.config.betas
        m = self.m[name] = beta1 * self.m.get(name, 0.0) + (1 - beta1) * g
        v = self.v[name] = beta2 * self.v.get(name, 0.0) + (1 - beta2) * g**2
        u = m / (np.sqrt(v) + c.eps)
        if w.ndim < 2:  # biases and LayerNorm: neither decayed nor adapted
            return w - rate * u
        u = u + c.weight_decay * w
        return w - rate * np.linalg.norm(w) / np.linalg.norm(u) * u


@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.0}, {"layer_decay": 0.5, "warmup": 0.4, "betas": (0.8, 0.98)}])
def test_lamb_is_the_papers_algorithm_without_its_bias_correction(more):
    config = OptimConfig(**{"lr": 0.02, "rule": "albert_lamb", "weight_decay": 0.1, "max_grad_norm": 0} | more)
    model, generator = build_model(TINY, ("classifier",), labels=3, seed=1), torch.Generator().manual_seed(2)
    optimizer, peer = Optimizer(model, config), LambByHand(config)
    below = layers_from_top(dict(model.named_parameters()))
    w = {name: p.detach().double().numpy().copy() for name, p in model.named_parameters()}
    for step in range(8):
        for name, p in model.named_parameters():
            p.grad = torch.randn(p.shape, generator=generator) * 10.0 ** (step % 3 - 1)
            rate = learning_rate(config, step / 8) * (config.layer_decay or 1) ** below[name]
            w[name] = peer.step(name, w[name], p.grad.double().numpy(), rate)
        optimizer.step(step, step / 8)
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.detach().numpy(), w[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_lamb_adapts_nothing_that_has_no_norm():
    """A matrix of zeros moves as by Adam; one without a gradient stays, and so does its moment."""
    model = Small()
    torch.nn.init.zeros_(model.matrix)
    optimizer = Optimizer(
        model, OptimConfig(lr=0.01, rule="albert_lamb", betas=(0.0, 0.0), schedule="constant", warmup=0)
    )
    model.matrix.grad, before = torch.full((7, 5), 3.0), model.vector.detach().clone()
    optimizer.step(0, 0.0)
    torch.testing.assert_close(model.matrix.detach(), torch.full((7, 5), -0.01))
    assert torch.equal(model.vector, before)


def test_muon_updates_the_matrices_of_the_layers_and_adamw_the_rest(monkeypatch):
    """Beside torch's optimizers, each on its parameters; query and key belong to AdamW. torch's Muon uses bfloat16."""
    monkeypatch.setattr("bertworks.training.precision.processor_kind", lambda: "AMX")
    config = OptimConfig(rule="muon", lr=0.01, muon_lr=0.02, schedule="constant", warmup=0, max_grad_norm=0)
    model, peer = (build_model(TINY, ("mlm",), seed=1) for _ in range(2))
    named = dict(peer.named_parameters())
    layers = ("value.weight", "attention.output.weight", "intermediate.weight", "feed_forward.output.weight")
    matrices = [p for name, p in named.items() if ".layers." in name and name.endswith(layers)]
    assert len(matrices) == 4 * TINY.num_hidden_layers
    others = [p for p in named.values() if all(p is not matrix for matrix in matrices)]
    groups = [{"params": [p for p in others if (p.ndim > 1) is decayed]} for decayed in (False, True)]
    adam = torch.optim.AdamW([group | {"weight_decay": 0.01 * i} for i, group in enumerate(groups)], 0.01, eps=1e-6)
    muon = torch.optim.Muon(matrices, 0.02, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    optimizer, generator = Optimizer(model, config), torch.Generator().manual_seed(2)
    for step in range(4):
        for name, p in model.named_parameters():
            p.grad = torch.randn(p.shape, generator=generator)
            named[name].grad = p.grad.clone()
        optimizer.step(step, step / 4)
        adam.step()
        muon.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p, named[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_an_orthogonalized_matrix_has_equal_singular_values(fast, shape, monkeypatch):
    monkeypatch.setattr("bertworks.training.precision.processor_kind", lambda: "AMX" if fast else "AVX2")
    found = orthogonalized(torch.randn(shape, generator=torch.Generator().manual_seed(2)))
    assert found.shape == shape and found.dtype is (torch.bfloat16 if fast else torch.float32)
    values = torch.linalg.svdvals(found.float())
    assert values.min() > 0.6 and values.max() < 1.3


RULES = ["bert_adam", "adamw", "albert_lamb", "muon"]


@pytest.mark.parametrize("rule", RULES)
def test_a_reloaded_optimizer_goes_on_to_the_same_bits(rule):
    config, generator = OptimConfig(lr=0.01, rule=rule), torch.Generator().manual_seed(2)
    model, copy = (build_model(TINY, ("mlm",), seed=1) for _ in range(2))
    optimizer = resumed = Optimizer(model, config)
    for step in range(8):
        if step == 3:
            copy.load_state_dict(model.state_dict())
            resumed = Optimizer(copy, config)
            state = optimizer.state()
            resumed.load(None, step)  # as in a process that gets the moments from another
            assert state.keys() == resumed.state().keys()
            resumed.load({name: moment.clone() for name, moment in state.items()}, step)
        grads = [torch.randn(p.shape, generator=generator) for p in model.parameters()]
        for one in {optimizer, resumed}:
            for p, grad in zip(one.parameters.values(), grads, strict=True):
                p.grad = grad.clone()
            one.step(step, step / 8)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), copy.parameters(), strict=True))


@pytest.mark.parametrize("value", [math.inf, math.nan, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_no_update_is_made_of_a_gradient_that_is_not_finite(rule, value):
    model = build_model(TINY, ("mlm",), seed=1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.full_like(p, value)
    optimizer = Optimizer(model, OptimConfig(rule=rule, warmup=0))
    optimizer.step(0, 0.5, optimizer.clip_grad_norm())
    same = [torch.equal(p, before[name]) for name, p in model.named_parameters()]
    assert not any(same) if value == 1.0 else all(same)


def test_protected_position_heads():
    """Query and key move a tenth as far, and words do not enter the position subspace, during the protected updates."""
    shape = dataclasses.replace(TINY, start="position-heads")

    def movements(protected_updates):
        """How far query and words move in each of two updates."""
        settings = {"schedule": "constant", "warmup": 0, "weight_decay": 0, "protected_updates": protected_updates}
        model = build_model(shape, ("mlm",), seed=1)
        optimizer = Optimizer(model, OptimConfig(rule="adamw", lr=0.01, **settings))
        watched = model.encoder.layers[0].attention.query.weight, model.encoder.embeddings.word.weight
        for step in range(2):
            before = [p.detach().clone() for p in watched]
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            optimizer.step(step, step / 2)
            yield [(p.detach() - old).abs() for p, old in zip(watched, before, strict=True)]

    with pytest.raises(InputError, match="protected_updates needs a model with start = 'position-heads'"):
        Optimizer(build_model(TINY, ("mlm",)), OptimConfig(protected_updates=1))
    (query, _), _ = movements(0)
    (slow_query, words), (later_query, later_words) = movements(1)
    subspace = slice(shape.hidden_size - shape.hidden_size // shape.num_attention_heads, None)
    torch.testing.assert_close(slow_query, 0.1 * query, rtol=1e-3, atol=1e-6)
    assert not words[:, subspace].any() and words[:, : subspace.start].all()
    assert later_words[:, subspace].all() and later_query.mean() > 5 * slow_query.mean()


def test_a_least_number_of_updates_in_the_warm_up_and_a_trapezoid():
    config = OptimConfig(lr=1.0, warmup=0.1, warmup_updates=4, schedule="trapezoid", decay=0.5)
    rates = [learning_rate(config, update / 10, update) for update in range(11)]
    np.testing.assert_allclose(rates, [0, 0.25, 0.5, 0.75, 1, 1, 0.8, 0.6, 0.4, 0.2, 0], atol=1e-12)
    assert learning_rate(config, 0.05) == 0.5


# ---- rates layer by layer


def trained(optim, steps=6):
    """Weights of a tiny classifier after updates with given gradients."""
    model, generator = build_model(TINY, ("classifier",), labels=3, seed=1), torch.Generator().manual_seed(2)
    optimizer = Optimizer(model, optim)
    for step in range(steps):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.clip_grad_norm()
        assert optimizer.step(step, step / steps) == learning_rate(optim, step / steps)
    return model.state_dict()


def test_layers_are_counted_from_the_top():
    model = build_model(TINY, ("classifier", "mlm"), labels=2)
    below = layers_from_top(dict(model.named_parameters()))
    assert {n.split(".")[1] for n, depth in below.items() if depth == 2} == {"embeddings"}
    assert {n.split(".")[2] for n, depth in below.items() if depth == 1} == {"0"}
    rest = [n for n, depth in below.items() if depth == 0]
    assert all(n.startswith(("encoder.layers.1.", "encoder.pooler.", "heads.")) for n in rest)
    assert sum(n.startswith(("encoder.pooler", "heads")) for n in rest) == 2 + 2 + 5
    assert set(below.values()) == {0, 1, 2} and layers_from_top(["matrix", "vector"]) == {"matrix": 0, "vector": 0}


@pytest.mark.parametrize("rule", ["bert_adam", "adamw", "albert_lamb"])
def test_a_layers_rate_is_a_power_of_the_one_above(rule):
    """What each layer does is what a whole model with that rate does, to the bit."""
    base = dict(lr=0.01, rule=rule, schedule="constant", warmup=0.0, weight_decay=0.1)
    decayed = trained(OptimConfig(**base, layer_decay=0.5))
    for depth in (0, 1, 2):
        uniform = trained(OptimConfig(**base | {"lr": 0.01 * 0.5**depth}))
        names = [name for name, below in layers_from_top(decayed).items() if below == depth]
        assert names and all(torch.equal(decayed[name], uniform[name]) for name in names)
        assert depth == 0 or not any(torch.equal(uniform[n], decayed[n]) for n in decayed.keys() - names)


def test_a_norm_clips_one_step_alone():
    """A step without a new norm leaves its gradients as they are."""
    weights = []
    for first in (1.0, 1000.0):
        model = torch.nn.Linear(3, 1)
        torch.nn.init.zeros_(model.weight)
        optimizer = Optimizer(model, OptimConfig(lr=0.1, warmup=0.0, weight_decay=0.0, betas=(0.0, 0.0)))
        for scale in (first, 1e-6):
            for p in model.parameters():
                p.grad = torch.full_like(p, scale)
            if scale == first:
                optimizer.clip_grad_norm()
            optimizer.step(0, 0.0)
        weights.append(model.weight.detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=0)
