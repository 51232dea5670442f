"""What a source and its export are compared on: the same texts through both, whatever the head.

Shapes: R rows of scores (sequences, tokens or masks), K scores of a row, N texts, D width of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ...encodings import read_lines
from ...files import InputError
from ...inference.predictor import Predictor
from ...inference.steps import Steps, head_steps

SCORES = "Scores are logits, before the softmax; of an embedder they are the elements of its vectors"
_WORDS, _TOKENS = 16, 24  # words of a question, or of a text with a mask; tokens that a word has at most


@cache
def shipped_texts() -> tuple[str, ...]:
    """The English and Korean texts that come with bertworks."""
    return tuple(texts_in(Path(__file__).with_name("texts.txt")))


def texts_in(path: Path) -> list[str]:
    """The lines of a text file that are not blank. Raises InputError if there are fewer than three."""
    lines = [line.removeprefix("\ufeff").strip() for line in read_lines(path, "a text in each line")]
    texts = [line for line in lines if line]
    if len(texts) < 3:
        raise InputError(f"{path}: {len(texts)} texts; expected three or more, each in a line of its own")
    return texts


@dataclass(frozen=True)
class Sample:
    """Texts as the rows of a folder's head, ready for a model."""

    steps: Steps[Any]
    rows: Sequence[Any]
    prepared: Any
    kind: str  # classifier, tagger, span, choice, mlm or vectors

    @classmethod
    def of(cls, predictor: Predictor, texts: Sequence[str]) -> "Sample":
        """Pairs, questions and choices are made of neighbouring texts; one word of each text becomes a mask."""
        model, mask = predictor.model, predictor.tokenizer.roles["mask"]
        fills_masks = "mlm" in model.heads and model.config.direction == "both"
        kind = model.supervised_head or ("mlm" if fills_masks else "vectors")
        if model.supervised_head:
            steps: Steps[Any] = head_steps(predictor.loaded)
        else:
            steps = predictor.mask_filler if fills_masks else predictor.embedder()
        limit = min(_WORDS, max(2, predictor.max_length // _TOKENS))
        beginnings = [text.replace(mask, " ").split()[:limit] or [""] for text in texts]
        second, third = [*texts[1:], texts[0]], [*texts[2:], *texts[:2]]
        rows: list[Any] = [*texts]
        if kind == "classifier":
            rows = [(a, b if predictor.kind == "pair" else None) for a, b in zip(texts, second, strict=True)]
        elif kind == "span":
            rows = [(" ".join(q), f"{a} {b}") for q, a, b in zip(beginnings, texts, second, strict=True)]
        elif kind == "choice":
            rows = [(a, [b, c]) for a, b, c in zip(texts, second, third, strict=True)]
        elif kind == "mlm":
            rows = [" ".join([*q[: len(q) // 2], mask, *q[len(q) // 2 + 1 :]]) for q in beginnings]
        return cls(steps, rows, steps.prepare(rows), kind)

    def scores(self) -> Tensor:
        """(R, K) scores by the model, or (N, D) vectors."""
        return self.steps.score([self.prepared])[0]

    def answers(self, scores: Tensor) -> list[Any]:
        """What the scores decide: a label, tag, word or choice a row; nothing of a single output, and of vectors."""
        settings = self.steps.loaded.settings
        if self.kind == "span":
            return [best[0]["text"] for best in self.prepared.decode(scores, settings)]
        if self.kind == "choice":
            return scores.view(-1, 2).argmax(1).tolist()
        if self.kind == "vectors":
            return []
        if settings.get("kind") == "multilabel":
            return [tuple(row) for row in (scores > 0).tolist()]
        return [] if scores.shape[-1] == 1 else scores.argmax(-1).tolist()

    def difference(self, expected: Tensor, actual: Tensor) -> dict[str, Any]:
        """How much two models' scores of these texts differ.

        `equal_answers` is a share of `answers`. Of vectors there are `cosine_min` and `cosine_mean` instead, over the
        texts, of each vector and the other model's.
        """
        gaps = (expected - actual).abs()
        pairs = list(zip(self.answers(expected), self.answers(actual), strict=True))
        cosines = F.cosine_similarity(expected.double(), actual.double(), dim=-1) if self.kind == "vectors" else None
        return {
            "largest": float(gaps.max()),
            "mean": float(gaps.mean()),
            "largest_score": float(expected.abs().max()),
            "answers": len(pairs),
            "equal_answers": sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
            **({} if cosines is None else {"cosine_min": float(cosines.min()), "cosine_mean": float(cosines.mean())}),
        }


def agreement(difference: dict[str, Any]) -> tuple[float | None, str]:
    """How far two models agree, by what `Sample.difference` returned: a number up to 1, and the same in words.

    It is the share of equal answers, of an embedder the mean cosine; None, "" of a single output.
    """
    if (mean := difference.get("cosine_mean")) is not None:
        return mean, f"cosines of the vectors: minimum {difference['cosine_min']:.4f}, mean {mean:.4f}"
    fraction = difference["equal_answers"]
    return fraction, "" if fraction is None else f"{fraction:.1%} of {difference['answers']:,} answers equal"
