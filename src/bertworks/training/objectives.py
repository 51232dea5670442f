"""The objectives of pre-training; task_objectives.py has those of fine-tuning and distillation.

Each objective turns a batch into sums and counts, never into means: the trainer adds the counts over micro-batches and
processes first, divides once, and so 1 x 32, 4 x 8 and 2 x 16 give the same gradient. One objective is an exception:
the negatives of EmbeddingObjective are those of the micro-batch.

Shapes: B sequences, L positions, M masked slots (label -100 = unused slot), D width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from ..batch import IGNORED, Batch
from ..model.dropout import DropoutKey
from ..model.forward import EncoderOutput
from ..model.heads import Model
from ..model.layout import Layout, with_layout
from .config import ObjectiveName, PairName
from .vocabulary_loss import FILL, OutputLayer, Term, cross_entropy, linear_cross_entropy, used_slots


class Objective(Protocol):
    """Turns a batch into the sums of each term of the loss, and their counts. The trainer calls the first three."""

    def prepare(self, batch: Batch) -> Batch:
        """The batch, of tensors on the CPU, with the keys that are read off the others (batch.py).

        On a GPU they would have to be waited for.
        """
        return with_layout(batch)

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """How many predictions each term of this batch has, from its labels alone."""
        return {"task": len(batch["labels"])}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        """The sums of each term, from a prepared batch."""

    def __call__(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        """The sums of each term."""
        return self.terms(model, self.prepare(batch), dropout)


def _masked_lm_loss(model: Model, out: EncoderOutput, batch: Batch) -> Term:
    """Cross entropy of the tokens at `masked_positions`: masked ones, or those that a language model predicts."""
    hidden = out.packed.index_select(0, out.layout.rows(batch["masked_positions"]))  # (M, D), of unused slots too
    layer = OutputLayer.of(model, hidden)
    return linear_cross_entropy(layer, batch["masked_labels"], batch["masked_slots"], model.kernels)


@dataclass(frozen=True)
class PretrainingObjective(Objective):
    """Masked LM and next-sentence prediction (section 3.1, A.2), or masked LM alone. The trainer minimizes

        L = sum of -log p(token) / number of masked tokens + sum of -log p(IsNext or NotNext) / number of pairs

    ALBERT has sentence-order prediction instead (its section 3.1): a pair in order or swapped.
    """

    pair: PairName | None = "nsp"

    def prepare(self, batch: Batch) -> Batch:
        return _with_output_positions(with_used_slots(super().prepare(batch)))

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = {"mlm": int((batch["masked_labels"] != IGNORED).sum())}
        if self.pair:
            counts[self.pair] = int((batch["pair_labels"] != IGNORED).sum())
        return counts

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        # output_positions has [CLS] of each sequence; with a left context the pooler reads the last token
        positions = batch["output_positions"] if model.config.direction != "left" else None
        out = model.encode(batch, dropout, positions)
        terms = {"mlm": _masked_lm_loss(model, out, batch)}
        if self.pair:
            terms[self.pair] = cross_entropy(model.heads[self.pair](out.pooled, dropout), batch["pair_labels"])
        return terms


def _neighbours(batch: Batch) -> Tensor:
    """(B, L): tokens that have a token at their right."""
    mask = batch["attention_mask"].bool()
    return torch.nn.functional.pad(mask[:, :-1] & mask[:, 1:], (0, 1))  # the last column has none


@dataclass(frozen=True)
class LanguageModelObjective(Objective):
    """Every token from those before it, as GPT (term "ltr"), or from those behind it ("rtl"); section 5.1.

    The encoder must have the same direction. The head is that of the masked LM, so that nothing else differs.
    """

    name: Literal["ltr", "rtl"]  # of its term

    def prepare(self, batch: Batch) -> Batch:
        left = _neighbours(batch).flatten().nonzero().squeeze(1)  # positions whose right neighbour is a token too
        seen, predicted = (left, left + 1) if self.name == "ltr" else (left + 1, left)
        labels = batch["input_ids"].flatten()[predicted]
        return with_used_slots(super().prepare(batch) | {"masked_positions": seen, "masked_labels": labels})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: int(_neighbours(batch).sum())}

    def terms(self, model: Model, batch: Batch, dropout: DropoutKey | None = None) -> dict[str, Term]:
        return {self.name: _masked_lm_loss(model, model.encode(batch, dropout), batch)}


PRETRAINING: dict[ObjectiveName, Objective] = {  # by the name in the recipe
    "mlm+nsp": PretrainingObjective("nsp"),
    "mlm+sop": PretrainingObjective("sop"),
    "mlm": PretrainingObjective(None),
    "ltr": LanguageModelObjective("ltr"),
    "rtl": LanguageModelObjective("rtl"),
}


# ---- what heads read of a batch


def with_used_slots(batch: Batch) -> Batch:
    """The batch with the slots of `masked_labels` that are used."""
    return batch | {"masked_slots": used_slots(batch["masked_labels"] != IGNORED)}


def _with_output_positions(batch: Batch) -> Batch:
    """The batch with the positions that the heads read: those to predict and each sequence's first token.

    Other tokens pad their number to a multiple of FILL, to limit the number of distinct shapes.
    """
    ids, layout = batch["input_ids"], Layout.of_batch(batch)
    read = torch.zeros(ids.numel(), dtype=torch.bool, device=ids.device)
    read[batch["masked_positions"][batch["masked_slots"]]] = True
    read[layout.end_positions(ids.device, last=False)] = True
    # padding may have no row of its own; its gradient would be that of another token
    has_row = torch.ones_like(read) if layout.index is None else batch["attention_mask"].bool().flatten()
    positions, fillers = ((has_row & chosen).nonzero().squeeze(1) for chosen in (read, ~read))
    return batch | {"output_positions": torch.cat([positions, fillers[: -len(positions) % FILL]])}
