"""What a model is trained to do. Each objective turns a batch into sums and counts, never into means: the loop adds the
counts over micro-batches and processes first, divides once, and so 1 x 32, 4 x 8 and 2 x 16 give the same gradient.

Shapes: B sequences, L positions, M masked slots (label -100 = unused slot), C choices, D width, V vocabulary, K labels.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .model.dropout import DropoutKey
from .model.heads import MaskedLMHead, Model

Batch = dict[str, Tensor]
PairName = Literal["nsp", "sop"]
IGNORED = -100
ROWS = 1024  # predictions scored at a time: 60 MB of bfloat16 scores with a vocabulary of 30,522
FILL = 64  # their number is a multiple of this, for the reason given in model/packing.py


@dataclass(frozen=True)
class Term:
    """One part of a loss: sums over its predictions of the loss and, where it was counted, of the hits."""

    loss: Tensor
    correct: Tensor | None


class Objective(Protocol):
    def counts(self, batch: Batch) -> dict[str, int]:
        """How many predictions each term of this batch has, from its labels alone."""

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        """The sums of each term."""


@dataclass(frozen=True)
class PretrainingObjective:
    """Masked LM and next-sentence prediction (section 3.1, A.2; both weigh 1), or masked LM alone.

    ALBERT has sentence-order prediction instead (its section 3.1): a pair in order or swapped.
    """

    pair: PairName | None = "nsp"

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = {"mlm": int((batch["masked_labels"] != IGNORED).sum())}
        if self.pair:
            counts[self.pair] = int((batch["pair_labels"] != IGNORED).sum())
        return counts

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out = model.encode(batch, dropout)
        used = out.packed.index_select(0, out.packing.rows(batch["masked_positions"]))  # (M, D)
        terms = {"mlm": _word_loss(model, used, batch["masked_labels"])}
        if self.pair:
            key = (dropout,) if self.pair == "sop" else ()  # ALBERT drops some of what its head reads
            terms[self.pair] = cross_entropy(model.heads[self.pair](out.pooled, *key), batch["pair_labels"])
        return terms


@dataclass(frozen=True)
class LanguageModelObjective:
    """Every token from those before it, as GPT (term "ltr"), or from those behind it ("rtl"); section 5.1.

    The encoder must see that side alone. The head is that of the masked LM, so that nothing else differs.
    """

    direction: Literal["left", "right"]  # the side that is seen

    @property
    def name(self) -> str:
        return "ltr" if self.direction == "left" else "rtl"

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: int(_neighbours(batch).sum())}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out, ids = model.encode(batch, dropout), batch["input_ids"]
        left = _neighbours(batch).flatten().nonzero().squeeze(1)  # cells whose right neighbour is a token too
        seen, told = (left, left + 1) if self.direction == "left" else (left + 1, left)
        used = out.packed.index_select(0, out.packing.rows(seen))  # (M, D)
        return {self.name: _word_loss(model, used, ids.flatten()[told])}


def _neighbours(batch: Batch) -> Tensor:
    """(B, L): tokens that have a token at their right."""
    mask = batch["attention_mask"].bool()
    return F.pad(mask[:, 1:] & mask[:, :-1], (0, 1))


def _word_loss(model: Model, hidden: Tensor, labels: Tensor) -> Term:
    head = model.heads["mlm"]
    assert isinstance(head, MaskedLMHead)
    return linear_cross_entropy(head(hidden), model.decoder, head.bias, labels)


class ClassificationObjective:
    """By the form of the labels: (B,) classes: softmax; (B,) floats: squared error; (B, K) floats: K sigmoids."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": batch["labels"].numel()}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        logits, labels = model.heads["classifier"](model.encode(batch, dropout).pooled, dropout), batch["labels"]
        if labels.ndim == 2:
            loss = F.binary_cross_entropy_with_logits(logits.float(), labels, reduction="sum")
            return {"task": Term(loss, None)}
        if labels.is_floating_point():
            return {"task": Term(F.mse_loss(logits.squeeze(-1).float(), labels, reduction="sum"), None)}
        return {"task": cross_entropy(logits, labels)}


class ChoiceObjective:
    """One score a sequence, softmax over the C sequences of an example (section 4.4)."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": len(batch["labels"])}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        scores, labels = model.heads["choice"](model.encode(batch, dropout).pooled, dropout), batch["labels"]
        return {"task": cross_entropy(scores.view(len(labels), -1), labels)}


class TaggingObjective:
    """Softmax over K tags at every token with a label (section 5.3)."""

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": int((batch["labels"] != IGNORED).sum())}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out = model.encode(batch, dropout)
        labels = batch["labels"].flatten()
        cells = (labels != IGNORED).nonzero().squeeze(1)
        return {"task": cross_entropy(model.heads["tagger"](out, dropout)[out.packing.rows(cells)], labels[cells])}


class SpanObjective:
    """Mean of two softmaxes, over start and over end, each over the real tokens of a sequence (section 4.2).

    The original's softmaxes also run over padding; so its loss, unlike ours, hangs on the length of the batch. Places
    -100 are not known.
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": int((batch["labels"][:, 0] != IGNORED).sum())}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out = model.encode(batch, dropout)
        scores = out.packing.unpack(model.heads["span"](out, dropout).float()).view(out.packing.B, out.packing.L, 2)
        if out.packing.mask is not None:
            scores = scores.masked_fill(~out.packing.mask[:, :, None], -torch.inf)
        start, end = (cross_entropy(scores[:, :, i], batch["labels"][:, i]) for i in (0, 1))
        return {"task": Term((start.loss + end.loss) / 2, None)}


def cross_entropy(logits: Tensor, labels: Tensor) -> Term:
    """Summed cross entropy in float32 and number of hits; labels -100 are left out."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return Term(loss, (logits.argmax(-1) == labels).sum().detach())


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Term:
    """`cross_entropy(hidden @ weight.T + bias, labels)` without holding all (M, V) scores.

    hidden (M, D), weight (V, D), bias (V,), labels (M,) with -100 for unused slots. Hits are counted only where no
    gradient is asked for (evaluation): the search for the largest score costs as much as a matrix product.
    """
    used = labels != IGNORED
    few = (
        -(-int(used.sum()) // FILL) * FILL
    )  # most unused slots are left out, but not so that every batch has a new shape
    slots = torch.argsort(~used, stable=True)[:few]
    hidden, labels = hidden.index_select(0, slots), labels[slots]
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(kind), weight.to(kind), bias.to(kind)
    with torch.autocast(device, enabled=False):  # it would copy the probabilities to float32 and back
        if torch.is_grad_enabled():
            loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, labels)
            return Term(loss, None)
        summed, correct = hidden.new_zeros((), dtype=torch.float32), labels.new_zeros(())
        for h, y in zip(hidden.split(ROWS), labels.split(ROWS), strict=True):
            scores = F.linear(h, weight, bias).float()
            summed += F.cross_entropy(scores, y, ignore_index=IGNORED, reduction="sum")
            correct += (scores.argmax(-1) == y).sum()
        return Term(summed, correct)


class _LinearCrossEntropy(torch.autograd.Function):
    """Scores, loss and gradients of `ROWS` rows at a time.

    The gradient is that of the sum, so forward makes it while the probabilities are at hand; backward only scales it.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels):  # type: ignore[no-untyped-def]
        loss = hidden.new_zeros((), dtype=torch.float32)
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), None, None
        for start in range(0, len(hidden), ROWS):
            h, y = hidden[start : start + ROWS], labels[start : start + ROWS]
            used, cell = y != IGNORED, (torch.arange(len(y), device=y.device), y.clamp(min=0))
            scores = torch.mm(h, weight.T).add_(bias)  # (m, V); addmm would first copy the bias to every row
            top, at_target = scores.amax(-1).float(), scores[cell].float()
            slope = torch.softmax(scores, -1)
            # log Z from the largest probability, which is never below 1 / V and so never underflows
            loss += ((top - slope.amax(-1).float().log() - at_target) * used).sum()
            slope[cell] -= 1  # softmax minus one-hot
            slope[~used] = 0
            torch.mm(slope, weight, out=d_hidden[start : start + ROWS])
            d_weight = slope.T @ h if d_weight is None else d_weight + slope.T @ h
            d_bias = slope.sum(0) if d_bias is None else d_bias + slope.sum(0)
        if d_weight is None:  # no prediction in this batch
            d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * scale, d_weight * scale, d_bias * scale, None
