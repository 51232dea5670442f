"""Losses over a whole vocabulary, without holding all scores: cross entropy with labels, divergence from a teacher.

Shapes: M predictions, m of them at a time, D width (E where embeddings are narrower), V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED
from ..model.acceleration import Kernels, is_supported, product
from ..model.heads import MaskedLMHead, Model

ROWS = 1024  # predictions scored at a time: 60 MB of bfloat16 scores with a vocabulary of 30,522
SCORES_OF_GPU = 160_000_000  # the same on a GPU, which computes few scores in less time than it takes to ask for them
ALIGNED = 32  # rows of scores begin at multiples of so many numbers, which products write faster
NO_CHANCE = -1e30  # score of a word that is none, at any temperature
FILL = 64  # their number is a multiple of this, for the reason given in model/layout.py


@dataclass(frozen=True)
class Term:
    """One part of a loss: sums over its predictions of the loss and, where it was counted, of the hits."""

    loss: Tensor
    correct: Tensor | None


class Scorer(NamedTuple):
    """A language model's last step: (M, D) rows, ready for the product with a (V, D) matrix, and a bias (V,)."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, model: Model, rows: Tensor) -> "Scorer":
        """rows: (M, D) of the last layer."""
        head = model.heads["mlm"]
        assert isinstance(head, MaskedLMHead)
        return cls(head(rows), model.decoder, head.bias)

    def scores(self, rows: slice) -> Tensor:
        """(m, V) of some rows."""
        if is_supported(self.hidden):
            return product(self.hidden[rows], self.weight, self.bias)
        return torch.mm(self.hidden[rows], self.weight.T).add_(self.bias)  # addmm would copy the bias to every row

    def aligned(self) -> "Scorer":
        """With words that have no chance, on a GPU, to a number of words whose products take a third of the time."""
        more = -len(self.weight) % ALIGNED if _is_on_gpu(self.weight) else 0
        if not more:
            return self
        return Scorer(self.hidden, F.pad(self.weight, (0, 0, 0, more)), F.pad(self.bias, (0, more), value=NO_CHANCE))


def cross_entropy(logits: Tensor, labels: Tensor) -> Term:
    """Summed cross entropy in float32 and number of hits; labels -100 are left out."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return Term(loss, (logits.argmax(-1) == labels).sum().detach())


# of some rows: the summed loss, its grad over their scores (m, V), and the sum of this grad over the rows
Rule = Callable[[Scorer, slice], tuple[Tensor, Tensor, Tensor]]


def linear_cross_entropy(
    scorer: Scorer, labels: Tensor, slots: Tensor | None = None, kernels: Kernels | None = None
) -> Term:
    """`cross_entropy(hidden @ weight.T + bias, labels)` without holding all (M, V) scores.

    labels (M,), -100 for unused slots. slots: `used_slots` of the labels, if they are known. kernels: for training in
    bfloat16 on a CPU. Hits are counted only where no gradient is asked for (evaluation): the search for the largest
    score costs as much as a matrix product.
    """
    slots = used_slots(labels != IGNORED) if slots is None else slots
    hidden, labels = scorer.hidden.index_select(0, slots), labels[slots]
    (hidden,) = _compute(hidden)
    weight, bias = scorer.weight, scorer.bias
    with torch.autocast(hidden.device.type, enabled=False):  # it would copy the probabilities to float32 and back
        if torch.is_grad_enabled():
            usable = None if hidden.dtype is not torch.bfloat16 else kernels
            rule = _one_hot_rule(labels) if usable is None else _fused_rule(labels, usable)
            loss: Tensor = _LinearLoss.apply(hidden, weight, bias, rule)
            return Term(loss, None)
        summed, correct = hidden.new_zeros((), dtype=torch.float32), labels.new_zeros(())
        for h, y in zip(hidden.split(ROWS), labels.split(ROWS), strict=True):
            scores = F.linear(h, weight.to(h.dtype), bias.to(h.dtype)).float()
            summed += F.cross_entropy(scores, y, ignore_index=IGNORED, reduction="sum")
            correct += (scores.argmax(-1) == y).sum()
        return Term(summed, correct)


def linear_divergence(
    ours: Scorer, theirs: Scorer, used: Tensor, temperature: float, slots: Tensor | None = None
) -> Term:
    """Summed KL divergence of our softmax(scores / T) from theirs, times T squared (Hinton et al. 2015).

    Without holding all (M, V) scores. used: (M,) bool, the rows that count; slots: its `used_slots`, if they are known.
    There is no gradient for `theirs`.
    """
    slots = used_slots(used) if slots is None else slots
    (hidden,) = _compute(ours.hidden.index_select(0, slots))
    known = _compute(theirs.hidden.index_select(0, slots), theirs.weight, theirs.bias)
    rule = _soft_rule(Scorer(*known).aligned(), used[slots], temperature)
    with torch.autocast(hidden.device.type, enabled=False):
        if torch.is_grad_enabled():
            loss: Tensor = _LinearLoss.apply(hidden, ours.weight, ours.bias, rule)
            return Term(loss, None)
        scorer = Scorer(hidden, *_compute(ours.weight, ours.bias)).aligned()
        parts = (rule(scorer, rows)[0] for rows in _chunks(hidden, len(ours.weight)))
        return Term(sum(parts, hidden.new_zeros((), dtype=torch.float32)), None)


def used_slots(used: Tensor) -> Tensor:
    """(m,) the slots of a (M,) mask that are used, then a few that are not, so that not every batch has a new shape.

    On a GPU their number would have to be waited for, so objectives have them made on the CPU.
    """
    return torch.argsort(~used, stable=True)[: -(-int(used.sum()) // FILL) * FILL]


def _compute(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the type of matrix products."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _is_on_gpu(x: Tensor) -> bool:
    return x.device.type == "cuda"


def _chunks(hidden: Tensor, V: int) -> Iterator[slice]:
    """The rows of `hidden` that are scored at a time, over V words."""
    rows = max(ROWS, SCORES_OF_GPU // V) if _is_on_gpu(hidden) else ROWS
    return (slice(start, start + rows) for start in range(0, len(hidden), rows))


def _fused_rule(labels: Tensor, kernels: Kernels) -> Rule:
    """`_one_hot_rule` in one pass over the scores."""

    def rule(scorer: Scorer, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        hidden, V = scorer.hidden[rows], len(scorer.weight)
        scores = hidden.new_empty(len(hidden), -(-V // ALIGNED) * ALIGNED)[:, :V]
        torch.mm(hidden, scorer.weight.T, out=scores)
        losses, sums = kernels.cross_entropy(scores, scorer.bias.float(), labels[rows])
        return losses.sum(), scores, sums

    return rule


def _one_hot_rule(labels: Tensor) -> Rule:
    """Cross entropy with labels (M,); those of -100 count for nothing. Only the last `FILL` may be -100."""

    def rule(scorer: Scorer, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        scores, y = scorer.scores(rows), labels[rows]
        used, cell = y != IGNORED, (torch.arange(len(y), device=y.device), y.clamp(min=0))
        grad = torch.softmax(scores, -1)
        loss = -(_log_chances(scores, grad, cell) * used).sum()
        grad[cell] -= 1  # softmax minus one-hot
        grad[-FILL:].masked_fill_(~used[-FILL:, None], 0)
        return loss, grad, grad.sum(0)

    return rule


def _log_chances(scores: Tensor, chances: Tensor, cell: tuple[Tensor, Tensor]) -> Tensor:
    """(m,) float32 logarithms of `chances`, the softmax of `scores`, at a `cell` of each row."""
    found = chances[cell].float()
    # on a GPU the question would have to be waited for; on a CPU the two searches below cost as much as the softmax
    if scores.device.type == "cpu" and bool((found >= torch.finfo(torch.float32).tiny).all()):
        return found.log()
    # from the largest chance, which is never below 1 / V and so never underflows
    return scores[cell].float() - scores.amax(-1).float() + chances.amax(-1).float().log()


def _soft_rule(theirs: Scorer, used: Tensor, temperature: float) -> Rule:
    """The divergence of `linear_divergence`; d (T^2 KL) / d scores = T (our probabilities - theirs)."""

    def rule(scorer: Scorer, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        scores = scorer.scores(rows)
        found = torch.log_softmax(scores.float() / temperature, -1)  # (m, V)
        known = torch.log_softmax(theirs.scores(rows).float() / temperature, -1)
        chances = known.exp()
        loss = temperature**2 * ((chances * known.sub_(found)).sum(-1) * used[rows]).sum()
        grad = found.exp_().sub_(chances).mul_(temperature * used[rows, None])
        grad = grad.to(scores.dtype)
        return loss, grad, grad.sum(0)

    return rule


class _LinearLoss(torch.autograd.Function):
    """Loss and gradients of `ROWS` rows at a time, by a rule for the loss and its grad over the scores.

    The gradient is that of the sum, so forward makes it while the probabilities are at hand; backward only scales it.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, rule):  # type: ignore[no-untyped-def]
        loss = hidden.new_zeros((), dtype=torch.float32)
        ctx.kinds, V = (weight.dtype, bias.dtype), len(weight)
        scorer = Scorer(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype)).aligned()
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), None, None
        for rows in _chunks(hidden, V):
            h = hidden[rows]
            part, grad, sums = rule(scorer, rows)
            loss += part
            torch.mm(grad, scorer.weight, out=d_hidden[rows])
            d_weight = grad.T @ h if d_weight is None else d_weight + grad.T @ h
            d_bias = sums if d_bias is None else d_bias + sums
        if d_weight is None:  # no prediction in this batch
            d_weight, d_bias = torch.zeros_like(scorer.weight), torch.zeros_like(scorer.bias)
        ctx.save_for_backward(d_hidden, d_weight[:V], d_bias[:V])  # type: ignore[index]
        return loss

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        grads = ((d_weight, ctx.kinds[0]), (d_bias, ctx.kinds[1]))
        return d_hidden * scale, *(grad.to(kind, copy=True).mul_(scale) for grad, kind in grads), None
