"""Three steps from rows to results, so that requests of several callers can share one forward pass.

    prepared = steps.prepare(rows)           tokenize; no model
    scores = steps.score([prepared, ...])    one pass over the sequences of all requests
    prepared.decode(scores[0], ...)          a result for each row; no model

`HeadSteps` serves the supervised heads, whose kinds of task decode themselves (tasks/); `Embedder` returns vectors;
`MaskFiller` and `NextSentence` serve the heads of pre-training (pretraining_heads.py). `Predictor` is built on them; a
server calls them itself.

Shapes: N rows, S sequences, T tokens of all sequences, K scores of a sequence or token, D width of a vector.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..checkpoint.pooling import Pooling
from ..files import InputError
from ..model.heads import TOKEN_HEADS
from ..tasks.base import Example, KindName, PreparedRows, Task
from ..tasks.choice import Choice
from ..tasks.inputs import Inputs
from ..tasks.kinds import KINDS
from ..tasks.questions import Question
from ..tasks.rows import pairs_of, text_of, texts_of
from ..tasks.sentences import from_texts
from ..tasks.sequences import Integers, frame, tokenize
from .exported import STATES, Exported
from .model import LoadedModel

P = TypeVar("P", bound=PreparedRows)

CHUNK = 1024  # rows


class Steps(ABC, Generic[P]):
    """Preparing and scoring for one kind of result."""

    by_token = False  # whether the model scores tokens, (T, K), or sequences, (S, K)
    chunk = CHUNK  # rows that are sorted by length together

    def __init__(self, loaded: LoadedModel):
        self.loaded = loaded

    def checked(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows, as they are: texts, unless a subclass takes others. Raises InputError for any other row."""
        return texts_of(rows)

    @abstractmethod
    def prepare(self, rows: Sequence[Any]) -> P:
        """The sequences of checked rows. Raises InputError if a row cannot be read."""

    def score(self, requests: Sequence[P]) -> list[Tensor]:
        """The scores of each request, on the CPU, from one pass over all of them.

        Raises InputError if a score is NaN or infinite.
        """
        return self.score_inputs([request.inputs for request in requests])

    def score_inputs(self, parts: Sequence[Inputs]) -> list[Tensor]:
        """The same for sequences that were taken out of requests (Inputs.part)."""
        if len(parts) < 2:
            return [self.forward(part) for part in parts]
        return list(self.forward(Inputs.concat(parts)).split([self.count(part) for part in parts]))

    def token_costs(self, inputs: Inputs) -> Integers:
        """(S,) the work of each sequence, as the number of tokens that take as long to compute."""
        tokens: Integers = np.diff(inputs.edges)
        return tokens

    def count(self, inputs: Inputs) -> int:
        """The number of rows of scores that `forward` returns for these inputs."""
        return len(inputs.ids) if self.by_token else len(inputs.first)

    @abstractmethod
    def forward(self, inputs: Inputs) -> Tensor:
        """The scores of all sequences or tokens. Raises InputError if one is NaN or infinite."""


# ---- supervised heads

TEXTS = {  # of an input, by the kind of steps: fewest, most, in words
    "single": (1, 2, "one text, or two"),
    "tagging": (1, 1, "one text"),
    "span": (2, 2, "a question and a context"),
    "choice": (3, math.inf, "a text and two or more choices"),
}


class HeadSteps(Steps[P]):
    """Labels, tags, answers or choices. Rows are (text, pair or None); texts; (question, context); (text, choices)."""

    def __init__(self, loaded: LoadedModel, kind: KindName):
        """kind: single (pairs, regressions and several labels too), tagging, span or choice.

        Raises InputError if the folder has no head for it.
        """
        super().__init__(loaded)
        loaded.check_head(kind)
        self.kind, self.by_token = kind, KINDS[kind].head in TOKEN_HEADS

    def checked(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows, as the class describes them. Raises InputError for any other row."""
        if self.kind == "tagging":
            return texts_of(rows)
        if self.kind == "span":
            return pairs_of(rows, "(question, context)", text_of)
        if self.kind == "choice":
            return pairs_of(rows, "(text, choices)", lambda choices, at: list(texts_of(choices, at)))
        return pairs_of(rows, "(text, pair or None)", self._checked_pair)

    def row(self, texts: Sequence[Any]) -> Any:
        """The row of the texts of one input: a text, a pair, question and context, or text and choices.

        Raises InputError if there are fewer or more texts than the model takes.
        """
        least, most, expected = TEXTS[self.kind]
        if self.kind == "single" and (count := self.loaded.texts_a_row):
            least, most, expected = count, count, ("one text", "two texts")[count - 1]
        if not least <= len(texts) <= most:
            raise InputError(f"{len(texts)} texts for the kind {self.loaded.kind or self.kind}; expected {expected}")
        if self.kind in ("tagging", "choice"):
            return texts[0] if self.kind == "tagging" else (texts[0], texts[1:])
        return texts[0], texts[1] if len(texts) == 2 else None

    def _checked_pair(self, pair: Any, where: str) -> str | None:
        if pair is None and self.loaded.texts_a_row == 2:
            raise InputError(f"{where} is None; the model was fine-tuned on pairs: give `pairs` too, a text for each")
        if pair is not None and self.loaded.texts_a_row == 1:
            raise InputError(f"{where} is a second text; the model was fine-tuned on single texts: leave `pairs` out")
        return None if pair is None else text_of(pair, where)

    def prepare(self, rows: Sequence[Any], cut_left: bool = False) -> P:
        """Long single texts, contexts and texts to tag are read in windows; pairs, questions and choices are cut.

        cut_left: pairs to classify are cut at the beginning of their longer text instead of its end.
        """
        loaded, kind = self.loaded, KINDS[self.kind]
        named = loaded.kind if self.kind == "single" and loaded.kind else self.kind  # a regression, for instance
        columns = ("text", "pair")[: 2 if named in ("pair", "span") else 1]
        task = Task("prediction", columns, kind=cast(KindName, named), labels=loaded.labels, choices=("", ""))
        how = {"windowed": True, "cut_left": cut_left} if kind.head == "classifier" else {}  # others do not know it
        return cast(P, kind.prepare(loaded.tokenizer, self._task_rows(rows), task, loaded.limits, **how))

    def forward(self, inputs: Inputs) -> Tensor:
        return self.loaded.scores(inputs)

    def _task_rows(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows as the kind of task takes them."""
        if self.kind == "tagging":
            return from_texts(self.loaded.tokenizer, rows, bool(self.loaded.settings.get("characters")))
        if self.kind == "span":
            return [Question(str(i), *row) for i, row in enumerate(rows)]
        if self.kind == "choice":
            if not all(choices for _, choices in rows):
                raise InputError("a row without choices; expected one text or more to choose from")
            return [Choice(text, tuple(choices)) for text, choices in rows]
        return [Example(*row) for row in rows]


def head_steps(loaded: LoadedModel) -> HeadSteps[Any]:
    """The steps of a folder's supervised head. Raises InputError if it has none."""
    kind = loaded.kind
    return HeadSteps(loaded, cast(KindName, kind if kind in TEXTS else "single"))


@dataclass(frozen=True)
class TextRows:
    """Texts of one sequence each, ready for a model."""

    inputs: Inputs

    @property
    def tokens(self) -> Integers:
        return self.inputs.lengths

    @property
    def cut(self) -> Integers:
        return self.inputs.cut


# ---- vectors


@dataclass(frozen=True)
class EmbeddingRows(TextRows):
    """Texts to embed."""

    normalize: bool  # whether vectors are scaled to length 1

    def decode(self, scores: Tensor, *_: Any) -> NDArray[np.float32]:
        """(N, D) vectors of the texts."""
        vectors: NDArray[np.float32] = (F.normalize(scores, dim=-1) if self.normalize else scores).numpy()
        return vectors


class Embedder(Steps[EmbeddingRows]):
    """A vector for each text, cut to the folder's limit and pooled from the last layer."""

    def __init__(self, loaded: LoadedModel, pooling: Pooling):
        """Raises InputError if the folder is an export without vectors."""
        super().__init__(loaded)
        if isinstance(loaded.engine, Exported):
            loaded.engine.check([STATES])
        self.pooling = pooling
        self.width = loaded.model.encoder.width  # D

    def prepare(self, rows: Sequence[str]) -> EmbeddingRows:
        tokenizer, limit = self.loaded.tokenizer, self.loaded.limits.max_seq_length
        texts = tokenize(tokenizer, [self.pooling.text(text) for text in rows])
        length = np.minimum(texts.length, limit - 2)
        frames = frame(tokenizer, texts._replace(length=length))
        return EmbeddingRows(Inputs.unlabelled(frames, tokenizer, limit, texts.length - length), self.pooling.normalize)

    def forward(self, inputs: Inputs) -> Tensor:
        """(N, D) pooled vectors, not yet normalised."""
        return self.loaded.pooled(inputs, replace(self.pooling, normalize=False))
