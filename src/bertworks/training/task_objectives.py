"""What a model learns in fine-tuning, from labels or a teacher's scores, and in distillation; as objectives.py says.

Shapes: B sequences, L positions, C choices, K labels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED, Batch
from ..model.dropout import DropoutKey
from ..model.forward import EncoderOutput
from ..model.heads import Model
from .objectives import Objective, with_used_slots
from .vocabulary_loss import ROWS, ChunkedLoss, LossAndGrad, OutputLayer, Term, cross_entropy, linear_cross_entropy

EMBEDDING_SCALE = 20.0  # of cosines before a softmax: as they are they differ too little


@dataclass(frozen=True)
class DistillationObjective(Objective):
    """A masked LM that also learns what a teacher says (Sanh et al. 2019, section 3).

    Terms: "soft", the divergence from the teacher's distribution over the vocabulary, both at `temperature`; "mlm"; and
    "cosine", one minus the cosine of the two last layers' vectors of every token. The loop weighs them. The teacher
    sees the batch as it is, with segments if it knows them; it must be in evaluation mode.
    """

    teacher: Model
    temperature: float = 2.0
    every_token: bool = False  # "soft" at every token, not at the masked positions alone

    def prepare(self, batch: Batch) -> Batch:
        tokens = batch["attention_mask"].flatten().nonzero().squeeze(1)
        return with_used_slots(super().prepare(batch)) | {"token_positions": tokens}

    def counts(self, batch: Batch) -> dict[str, int]:
        masked, tokens = int((batch["masked_labels"] != IGNORED).sum()), int(batch["attention_mask"].sum())
        return {"soft": tokens if self.every_token else masked, "mlm": masked, "cosine": tokens}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out, labels, slots = model.encode(batch, dropout), batch["masked_labels"], batch["masked_slots"]
        masked, tokens = batch["masked_positions"], batch["token_positions"]
        positions, used, used_cells = masked, labels != IGNORED, slots
        if self.every_token:
            used_cells = torch.arange(len(tokens), device=tokens.device)
            positions, used = tokens, torch.ones_like(used_cells).bool()

        def states(output: EncoderOutput, cells: Tensor) -> Tensor:
            """The last layer's output at these positions."""
            return output.packed.index_select(0, output.layout.rows(cells))

        with torch.no_grad():
            teacher_out = self.teacher.encode(batch)
            target = OutputLayer.of(self.teacher, states(teacher_out, positions))
        layer = OutputLayer.of(model, states(out, masked))
        soft = OutputLayer.of(model, states(out, positions)) if self.every_token else layer
        student, teacher = (states(output, tokens).float() for output in (out, teacher_out))  # (n, D) each
        return {
            "soft": linear_divergence(soft, target, used, self.temperature, used_cells),
            "mlm": linear_cross_entropy(layer, labels, slots, model.kernels),
            "cosine": Term((1 - F.cosine_similarity(student, teacher, dim=-1)).sum(), None),
        }


def linear_divergence(
    student: OutputLayer, teacher: OutputLayer, used: Tensor, temperature: float, slots: Tensor
) -> Term:
    """Summed KL divergence from the teacher's softmax(scores / T), times T squared (Hinton et al. 2015).

    Without holding all (M, V) scores. used: (M,) bool, the rows that count; slots: its `used_slots`.
    There is no gradient for `teacher`.
    """
    layer, loss_and_grad = student.at(slots), _divergence(teacher.at(slots).cast(), used[slots], temperature)
    with torch.autocast(layer.hidden.device.type, enabled=False):
        if torch.is_grad_enabled():
            return Term(ChunkedLoss.apply(*layer, loss_and_grad), None)
        losses = (loss_and_grad(layer.cast(), rows)[0] for rows in layer.chunks())
        return Term(sum(losses, layer.hidden.new_zeros((), dtype=torch.float32)), None)


def _divergence(teacher: OutputLayer, used: Tensor, temperature: float) -> LossAndGrad:
    """As `linear_divergence`; d (T^2 KL) / d scores = T (student's probabilities - teacher's).

    Five float32 copies of the scores are needed: of `ROWS` predictions at a time, where a GPU scores more of them.
    """

    def loss_and_grad(layer: OutputLayer, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        grad, loss = layer.scores(rows), layer.hidden.new_zeros((), dtype=torch.float32)
        parts = (one.split(ROWS) for one in (grad, teacher.scores(rows), used[rows]))
        for scores, theirs, counted in zip(*parts, strict=True):
            ours = torch.log_softmax(scores.float() / temperature, -1)  # (m, V)
            target = torch.log_softmax(theirs.float() / temperature, -1)
            probabilities = target.exp()
            loss += temperature**2 * ((probabilities * target.sub_(ours)).sum(-1) * counted).sum()
            scores.copy_(ours.exp_().sub_(probabilities).mul_(temperature * counted[:, None]))
        return loss, grad, grad.sum(0)

    return loss_and_grad


@dataclass(frozen=True)
class ClassificationObjective(Objective):
    """By the form of the labels: (B,) classes: softmax; (B,) floats: squared error; (B, K) floats: K sigmoids.

    A batch with a teacher's scores, `teacher_scores` (B, K), has a second term, "soft": of classes the KL divergence
    from the teacher's softmax, both at `temperature`, times its square (Hinton et al. 2015); of a regression the
    squared difference. The loop weighs the terms.
    """

    temperature: float = 1.0  # of a teacher

    def counts(self, batch: Batch) -> dict[str, int]:
        soft = {"soft": len(batch["labels"])} if "teacher_scores" in batch else {}
        return {"task": batch["labels"].numel(), **soft}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        logits, labels = model.heads["classifier"](model.pool(batch, dropout), dropout), batch["labels"]
        terms = {"task": _labelled_loss(logits, labels)}
        if "teacher_scores" in batch:
            terms["soft"] = Term(_soft_loss(logits.float(), batch["teacher_scores"], self.temperature), None)
        return terms


def _soft_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """(B, K) scores against a teacher's, as ClassificationObjective says."""
    if logits.shape[1] == 1:
        return F.mse_loss(logits, teacher, reduction="sum")
    student, target = ((scores / temperature).log_softmax(-1) for scores in (logits, teacher))
    return temperature**2 * F.kl_div(student, target, reduction="sum", log_target=True)


def _labelled_loss(logits: Tensor, labels: Tensor) -> Term:
    """By the form of the labels, as ClassificationObjective says."""
    if labels.ndim == 2:
        return Term(F.binary_cross_entropy_with_logits(logits.float(), labels, reduction="sum"), None)
    if labels.is_floating_point():
        return Term(F.mse_loss(logits.squeeze(-1).float(), labels, reduction="sum"), None)
    return cross_entropy(logits, labels)


class EmbeddingObjective(Objective):
    """Pairs of sequences, one after the other in the batch (2 B sequences), by the form of their labels.

    (B,) floats: the squared difference of label and cosine. (B,) integers: softmax over the cosines of a first text
    with all second texts of the batch, times EMBEDDING_SCALE, whose right answer is its own (Henderson et al. 2017).
    The negatives are those of the micro-batch in this process. A vector is the mean over the last layer's tokens.
    """

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out, labels = model.encode(batch, dropout), batch["labels"]
        vectors = F.normalize(out.layout.mean(out.packed.float()), dim=-1)
        first, second = vectors.view(len(labels), 2, -1).unbind(1)  # (B, D) each
        if labels.is_floating_point():
            return {"task": Term(F.mse_loss((first * second).sum(-1), labels, reduction="sum"), None)}
        own = torch.arange(len(labels), device=labels.device)
        return {"task": cross_entropy(EMBEDDING_SCALE * first @ second.T, own)}


class ChoiceObjective(Objective):
    """One score per sequence, softmax over the C sequences of an example (section 4.4)."""

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        scores, labels = model.heads["choice"](model.pool(batch, dropout), dropout), batch["labels"]
        return {"task": cross_entropy(scores.view(len(labels), -1), labels)}


@dataclass(frozen=True)
class TaggingObjective(Objective):
    """Softmax over K tags at every token with a label (section 5.3)."""

    def prepare(self, batch: Batch) -> Batch:
        return super().prepare(batch) | {"tag_positions": (batch["labels"].flatten() != IGNORED).nonzero().squeeze(1)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": int((batch["labels"] != IGNORED).sum())}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out, cells = model.encode(batch, dropout), batch["tag_positions"]
        scores, labels = model.heads["tagger"](out, dropout)[out.layout.rows(cells)], batch["labels"].flatten()[cells]
        return {"task": cross_entropy(scores, labels)}


class SpanObjective(Objective):
    """Mean of two softmaxes, over start and over end, each over the real tokens of a sequence (section 4.2).

    The original's softmaxes also run over padding; so its loss, unlike ours, hangs on the length of the batch. Places
    -100 are not known.
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"task": int((batch["labels"][:, 0] != IGNORED).sum())}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        out = model.encode(batch, dropout)
        scores = out.layout.unpack(model.heads["span"](out, dropout).float()).view(out.layout.B, out.layout.L, 2)
        if out.layout.mask is not None:
            scores = scores.masked_fill(~out.layout.mask[:, :, None], -torch.inf)
        start, end = (cross_entropy(scores[:, :, i], batch["labels"][:, i]) for i in (0, 1))
        return {"task": Term((start.loss + end.loss) / 2, None)}
