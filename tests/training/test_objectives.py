"""Objectives: sums and counts, and the fused projection to the vocabulary against plain cross entropy."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from bertworks.model.build import build_model
from bertworks.training import task_objectives, vocabulary_loss
from bertworks.training.objectives import PretrainingObjective
from bertworks.training.task_objectives import ClassificationObjective, SpanObjective
from bertworks.training.vocabulary_loss import OutputLayer, linear_cross_entropy
from support.batches import batch, problem
from support.encoder_options import TINY

STILL = dataclasses.replace(TINY, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def plain(hidden, weight, bias, labels):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("rows", [4, 5, 1024])
@pytest.mark.parametrize("unused", [0.0, 0.3])
@pytest.mark.parametrize("gpu", [False, True])  # a GPU gets other numbers of words and rows
def test_value_and_gradients_of_the_fused_projection(rows, unused, gpu, monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "ROWS", rows)
    monkeypatch.setattr(vocabulary_loss, "SCORES_OF_GPU", 7 * 31)
    monkeypatch.setattr(vocabulary_loss, "_is_on_gpu", lambda x: gpu)
    tensors, labels = problem(unused=unused)
    expected = plain(*tensors, labels)
    gradients = torch.autograd.grad(3 * expected, tensors)
    term = linear_cross_entropy(OutputLayer(*tensors), labels)
    torch.testing.assert_close(term.loss, expected, rtol=1e-6, atol=1e-5)
    for found, gradient in zip(torch.autograd.grad(3 * term.loss, tensors), gradients, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-5, atol=1e-5)
    assert term.correct is None
    with torch.no_grad():
        counted = linear_cross_entropy(OutputLayer(*tensors), labels)
    torch.testing.assert_close(counted.loss, expected, rtol=1e-6, atol=1e-5)
    assert counted.correct == (F.linear(*tensors).argmax(-1) == labels).sum()


def test_large_scores_do_not_overflow():
    tensors, labels = problem()
    tensors = [(100 * t.detach()).requires_grad_() for t in tensors]
    torch.testing.assert_close(linear_cross_entropy(OutputLayer(*tensors), labels).loss, plain(*tensors, labels))


def test_near_in_bfloat16(monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "ROWS", 8)
    tensors, labels = problem()
    expected = plain(*tensors, labels)
    gradients = torch.autograd.grad(expected, tensors)
    with torch.autocast("cpu", torch.bfloat16):
        term = linear_cross_entropy(OutputLayer(*tensors), labels)
    assert term.loss.dtype == torch.float32
    torch.testing.assert_close(term.loss, expected, rtol=0.01, atol=0)
    for found, gradient in zip(torch.autograd.grad(term.loss, tensors), gradients, strict=True):
        assert found.dtype == torch.float32
        assert (found - gradient).norm() / gradient.norm() < 0.02


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("M", [0, 5])
def test_a_batch_without_predictions(M, autocast):
    tensors, _ = problem(M)
    labels = torch.full((M,), -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        term = linear_cross_entropy(OutputLayer(*tensors), labels)
    assert term.loss == 0
    term.loss.backward()
    assert all(t.grad is not None and not t.grad.any() for t in tensors)
    with torch.no_grad():
        counted = linear_cross_entropy(OutputLayer(*tensors), labels)
    assert counted.loss == 0 and counted.correct == 0 and counted.loss.dtype == torch.float32


def test_pretraining_terms_are_sums_over_what_counts_says():
    model, objective, whole = build_model(STILL, seed=1), PretrainingObjective(), batch()
    assert objective.counts(whole) == {"mlm": 7, "nsp": 3}
    terms = objective(model, whole)
    out = model.encoder(whole["input_ids"], whole["attention_mask"], whole["token_type_ids"])
    logits = model.masked_lm_logits(out.last_hidden_state.flatten(0, 1)[whole["masked_positions"]])
    expected = F.cross_entropy(logits, whole["masked_labels"], reduction="sum", ignore_index=-100)
    torch.testing.assert_close(terms["mlm"].loss, expected)
    scores = model.heads["nsp"](out.pooled)
    torch.testing.assert_close(terms["nsp"].loss, F.cross_entropy(scores, whole["pair_labels"], reduction="sum"))
    assert terms["nsp"].correct == (scores.argmax(-1) == whole["pair_labels"]).sum()


def test_parts_of_a_batch_add_up_to_the_whole():
    model, objective, whole = build_model(STILL, seed=1), PretrainingObjective(), batch()
    parts = []
    for i in range(3):
        part = {name: t[i : i + 1] for name, t in whole.items() if not name.startswith("masked")}
        part["masked_positions"] = whole["masked_positions"].view(3, -1)[i] - 8 * i
        part["masked_labels"] = whole["masked_labels"].view(3, -1)[i]
        parts.append(part)
    for name, term in objective(model, whole).items():
        assert sum(objective.counts(part)[name] for part in parts) == objective.counts(whole)[name]
        torch.testing.assert_close(sum(objective(model, part)[name].loss for part in parts), term.loss)


def test_classification_and_regression():
    model, objective = build_model(STILL, ("classifier",), labels=4, seed=1).eval(), ClassificationObjective()
    examples = {name: batch()[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    examples["labels"] = torch.tensor([3, 0, 1])
    logits = model.heads["classifier"](model.encoder(*(examples[name] for name in list(examples)[:3])).pooled)
    term = objective(model, examples)["task"]
    assert objective.counts(examples) == {"task": 3}
    torch.testing.assert_close(term.loss, F.cross_entropy(logits, examples["labels"], reduction="sum"))
    assert term.correct == (logits.argmax(-1) == examples["labels"]).sum()

    model = build_model(STILL, ("classifier",), labels=1, seed=1).eval()
    examples["labels"] = torch.tensor([0.5, 4.0, 2.5])
    scores = model.heads["classifier"](model.encoder(*(examples[name] for name in list(examples)[:3])).pooled)
    torch.testing.assert_close(
        objective(model, examples)["task"].loss, ((scores[:, 0] - examples["labels"]) ** 2).sum()
    )


def test_spans_are_the_mean_of_two_softmaxes_over_real_tokens():
    """By hand, a sequence at a time; padding and an unknown place (-100) count for nothing."""

    model = build_model(STILL, ("span",), seed=1).eval()
    lengths, places = (7, 4, 5), torch.tensor([[1, 3], [0, 0], [-100, -100]])
    ids = torch.randint(5, 50, (3, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids), "labels": places}
    with torch.no_grad():
        loss = SpanObjective()(model, batch)["task"].loss
        expected = 0.0
        for i, length in enumerate(lengths[:2]):
            chances = model.heads["span"](model.encoder(ids[i : i + 1, :length])).log_softmax(0)  # (length, 2)
            expected -= float(chances[places[i, 0], 0] + chances[places[i, 1], 1]) / 2
    assert float(loss) == pytest.approx(expected, abs=1e-5) and SpanObjective().counts(batch) == {"task": 2}


def test_a_divergence_on_a_gpu_needs_little_memory(monkeypatch):
    """The same numbers, and no float32 scores of more than `ROWS` predictions."""
    (hidden, weight, bias), _ = problem(M=40, D=16, V=64)
    sizes, sides = [], []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            if isinstance(made, torch.Tensor) and made.dtype is torch.float32 and made.shape[-1:] == (64,):
                sizes.append(made.numel() // 64)
            return made

    for rows in (1024, 8):
        sizes.clear()
        monkeypatch.setattr(task_objectives, "ROWS", rows)
        layer = OutputLayer(*(one.detach().bfloat16().requires_grad_() for one in (hidden, weight, bias)))
        used, slots = torch.arange(40) % 5 > 0, torch.arange(40)
        with Sizes():
            term = task_objectives.linear_divergence(layer, layer._replace(hidden=layer.hidden * -1), used, 2.0, slots)
        term.loss.backward()
        assert max(sizes) == min(rows, 40)
        sides.append([term.loss, *(one.grad for one in layer[:3])])
    torch.testing.assert_close(*sides)
