"""What a model is trained to do. Each objective turns a batch into sums and counts, never into means: the loop adds the
counts over micro-batches and processes first, divides once, and so 1 x 32, 4 x 8 and 2 x 16 give the same gradient.

Shapes: B sequences, L positions, M masked slots (label -100 = unused slot), C choices, D width, V vocabulary, K labels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

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
        # addmm would first copy the bias to every row
        return torch.mm(self.hidden[rows], self.weight.T).add_(self.bias)


Rule = Callable[[Tensor, slice], tuple[Tensor, Tensor]]  # scores (m, V) of rows: summed loss, its slope over the scores


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
    return linear_cross_entropy(*Scorer.of(model, hidden), labels)


@dataclass(frozen=True)
class DistillationObjective:
    """A masked LM that also learns what a teacher says (Sanh et al. 2019, section 3).

    Terms: "soft", the divergence from the teacher's distribution over the vocabulary, both at `temperature`; "mlm"; and
    "cosine", one minus the cosine of the two last layers' vectors of every token. The loop weighs them. The teacher
    sees the batch as it is, with segments if it knows them; it must be in evaluation mode.
    """

    teacher: Model
    temperature: float = 2.0
    every_token: bool = False  # "soft" at every token, not at the masked positions alone

    def counts(self, batch: Batch) -> dict[str, int]:
        masked, tokens = int((batch["masked_labels"] != IGNORED).sum()), int(batch["attention_mask"].sum())
        return {"soft": tokens if self.every_token else masked, "mlm": masked, "cosine": tokens}

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out, labels = model.encode(batch, dropout), batch["masked_labels"]
        masked = out.packing.rows(batch["masked_positions"])
        real = out.packing.rows(batch["attention_mask"].flatten().nonzero().squeeze(1))
        rows, used = (real, torch.ones_like(real).bool()) if self.every_token else (masked, labels != IGNORED)
        with torch.no_grad():
            known = self.teacher.encode(batch).packed
            theirs = Scorer.of(self.teacher, known.index_select(0, rows))
        ours = Scorer.of(model, out.packed.index_select(0, masked))
        asked = Scorer.of(model, out.packed.index_select(0, rows)) if self.every_token else ours
        student, teacher = (states.index_select(0, real).float() for states in (out.packed, known))  # (n, D) each
        return {
            "soft": linear_divergence(asked, theirs, used, self.temperature),
            "mlm": linear_cross_entropy(*ours, labels),
            "cosine": Term((1 - F.cosine_similarity(student, teacher, dim=-1)).sum(), None),
        }


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
    slots = _used_slots(labels != IGNORED)
    hidden, labels = hidden.index_select(0, slots), labels[slots]
    hidden, weight, bias = _compute(hidden, weight, bias)
    with torch.autocast(hidden.device.type, enabled=False):  # it would copy the probabilities to float32 and back
        if torch.is_grad_enabled():
            loss: Tensor = _LinearLoss.apply(hidden, weight, bias, _one_hot_rule(labels))
            return Term(loss, None)
        summed, correct = hidden.new_zeros((), dtype=torch.float32), labels.new_zeros(())
        for h, y in zip(hidden.split(ROWS), labels.split(ROWS), strict=True):
            scores = F.linear(h, weight, bias).float()
            summed += F.cross_entropy(scores, y, ignore_index=IGNORED, reduction="sum")
            correct += (scores.argmax(-1) == y).sum()
        return Term(summed, correct)


def linear_divergence(ours: Scorer, theirs: Scorer, used: Tensor, temperature: float) -> Term:
    """Summed KL divergence of our softmax(scores / T) from theirs, times T squared (Hinton et al. 2015).

    Without holding all (M, V) scores. used: (M,) bool, the rows that count. There is no gradient for `theirs`.
    """
    slots = _used_slots(used)
    hidden, weight, bias = _compute(ours.hidden.index_select(0, slots), ours.weight, ours.bias)
    known = _compute(theirs.hidden.index_select(0, slots), theirs.weight, theirs.bias)
    rule = _soft_rule(Scorer(*known), used[slots], temperature)
    with torch.autocast(hidden.device.type, enabled=False):
        if torch.is_grad_enabled():
            loss: Tensor = _LinearLoss.apply(hidden, weight, bias, rule)
            return Term(loss, None)
        parts = (rule(Scorer(hidden, weight, bias).scores(rows), rows)[0] for rows in _chunks(len(hidden)))
        return Term(sum(parts, hidden.new_zeros((), dtype=torch.float32)), None)


def _used_slots(used: Tensor) -> Tensor:
    """The used slots first: most others are left out, but not so that every batch has a new shape."""
    return torch.argsort(~used, stable=True)[: -(-int(used.sum()) // FILL) * FILL]


def _compute(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the type of matrix products."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _chunks(length: int) -> Iterator[slice]:
    return (slice(start, start + ROWS) for start in range(0, length, ROWS))


def _one_hot_rule(labels: Tensor) -> Rule:
    """Cross entropy with labels (M,); those of -100 count for nothing."""

    def rule(scores: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        y = labels[rows]
        used, cell = y != IGNORED, (torch.arange(len(y), device=y.device), y.clamp(min=0))
        top, at_target = scores.amax(-1).float(), scores[cell].float()
        slope = torch.softmax(scores, -1)
        # log Z from the largest probability, which is never below 1 / V and so never underflows
        loss = ((top - slope.amax(-1).float().log() - at_target) * used).sum()
        slope[cell] -= 1  # softmax minus one-hot
        slope[~used] = 0
        return loss, slope

    return rule


def _soft_rule(theirs: Scorer, used: Tensor, temperature: float) -> Rule:
    """The divergence of `linear_divergence`; d (T^2 KL) / d scores = T (our probabilities - theirs)."""

    def rule(scores: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        found = torch.log_softmax(scores.float() / temperature, -1)  # (m, V)
        known = torch.log_softmax(theirs.scores(rows).float() / temperature, -1)
        chances = known.exp()
        loss = temperature**2 * ((chances * known.sub_(found)).sum(-1) * used[rows]).sum()
        slope = found.exp_().sub_(chances).mul_(temperature * used[rows, None])
        return loss, slope.to(scores.dtype)

    return rule


class _LinearLoss(torch.autograd.Function):
    """Scores, loss and gradients of `ROWS` rows at a time, by a rule for the loss and its slope over the scores.

    The gradient is that of the sum, so forward makes it while the probabilities are at hand; backward only scales it.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, rule):  # type: ignore[no-untyped-def]
        loss = hidden.new_zeros((), dtype=torch.float32)
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), None, None
        for rows in _chunks(len(hidden)):
            h = hidden[rows]
            part, slope = rule(Scorer(hidden, weight, bias).scores(rows), rows)
            loss += part
            torch.mm(slope, weight, out=d_hidden[rows])
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
