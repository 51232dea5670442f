"""Does B follow A? The answer of the next-sentence head, which pre-training leaves in a folder (paper, section 3.1).

The head was trained on pairs of segments: half of the time B was the text after A (label 0), half of the time a random
text (label 1). The three steps are those of steps.py.

Shapes: N pairs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from torch import Tensor

from ..files import InputError, shorten
from ..tasks.inputs import Inputs
from ..tasks.rows import pairs_of, text_of
from ..tasks.sequences import cut_pairs, frame
from .model import LoadedModel
from .steps import Steps, TextRows

FOLLOWS = 0  # the label of "B follows A"


class Following(TypedDict):
    """Whether B follows A."""

    follows: bool  # whether the probability is above one half
    score: float  # the probability that B follows A, 0 to 1
    tokens: int  # tokens that the model read
    cut: int  # tokens that did not fit


class NextSentence(Steps["FollowingRows"]):
    """Scores of "B follows A" and of "B is a random text" for pairs (A, B)."""

    def __init__(self, loaded: LoadedModel):
        """Raises InputError if the folder has no next-sentence head; ALBERT's sentence-order head is none."""
        super().__init__(loaded)
        heads = loaded.model.heads
        if "sop" in heads:
            raise InputError(
                f"{loaded.folder} has a sentence-order head, which only tells whether two neighbouring sentences are "
                "swapped, so it cannot say whether B follows A; use a folder pre-trained with next-sentence prediction"
            )
        if "nsp" not in heads:
            raise InputError(
                f"{loaded.folder} has no next-sentence head, so it cannot say whether B follows A; use a folder "
                "pre-trained with next-sentence prediction, before fine-tuning"
            )

    def checked(self, rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
        """The pairs, as they are. Raises InputError for any other row."""
        return pairs_of(rows, "(text, text)", text_of)

    def prepare(self, rows: Sequence[tuple[str, str]]) -> "FollowingRows":
        """Pairs; the longer text is cut from its end. Raises InputError if a text has no token."""
        tokenizer, limit = self.loaded.tokenizer, self.loaded.limits.max_seq_length
        first, second, _, total = cut_pairs(tokenizer, [a for a, _ in rows], [b for _, b in rows], limit)
        for row, lengths in zip(rows, zip(first.length.tolist(), second.length.tolist(), strict=True), strict=True):
            if 0 in lengths:
                number = lengths.index(0)
                found = f"text {'AB'[number]} of a pair is {shorten(row[number])}, which has no token"
                raise InputError(f"{found}; expected a sentence; leave the pair out")
        cut = total - first.length - second.length
        return FollowingRows(Inputs.unlabelled(frame(tokenizer, first, second), tokenizer, limit, cut))

    def forward(self, inputs: Inputs) -> Tensor:
        """(N, 2) scores before the softmax: B follows A, B is a random text."""
        return self.loaded.scores(inputs, head="nsp")


@dataclass(frozen=True)
class FollowingRows(TextRows):
    """Pairs, ready for a model."""

    def decode(self, scores: Tensor, *_: Any) -> list[Following]:
        """The answer for each pair, from (N, 2) scores."""
        chances = scores.double().softmax(-1)[:, FOLLOWS].tolist()
        counts = zip(chances, self.tokens.tolist(), self.cut.tolist(), strict=True)
        return [Following(follows=p > 0.5, score=p, tokens=tokens, cut=cut) for p, tokens, cut in counts]
