"""Vectors of texts as servers give them: of whole texts, and of every token.

A text may also come as token ids. `EmbeddingInput` says how texts are prepared: the prompt before them, and the end
from which long ones are cut. `decoder` has the options of the answer: length 1 or not, fewer dimensions.

Shapes: N texts, T tokens of all sequences, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...checkpoint.pooling import Pooling
from ...inference.steps import Embedder, EmbeddingRows
from ...tasks.inputs import Inputs
from ...tasks.sequences import Spans, edges_of, frame, tokenize
from .errors import Refusal

Text = str | list[int]  # a text, or the ids of its tokens
Vectors = NDArray[np.float32]


def rows_of(given: Any) -> list[Any]:
    """The inputs of a request, texts or the ids of texts, which may be a single one.

    Raises Refusal (400) if there are no ids in a list of them.
    """
    rows = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else list(given)
    if [] in rows:
        raise Refusal(400, f"input {rows.index([])} has no token ids; leave it out", error_type="Empty")
    return rows


@dataclass(frozen=True)
class EmbeddingInput:
    """How texts are prepared for their vectors."""

    prompt_name: str | None = None  # of the prompts of a sentence-transformers folder; none: its default prompt
    left: bool = False  # whether a text that is too long is cut at its beginning instead of its end

    def prompt(self, pooling: Pooling, prompts: Mapping[str, str]) -> str:
        """The text to put before every text. Raises Refusal (422) if the folder has no such prompt."""
        if self.prompt_name is None:
            return pooling.prompt
        if self.prompt_name not in prompts:
            message = f"no prompt {self.prompt_name[:80]!r}; this model has {', '.join(prompts) or 'none'}"
            raise Refusal(422, message, param="prompt_name", error_type="Validation")
        return prompts[self.prompt_name]

    def prepare(self, embedder: Embedder, prompts: Mapping[str, str], rows: Sequence[Text]) -> EmbeddingRows:
        """The sequences of texts or token ids.

        Raises Refusal (422) for an unknown prompt, or ids that are not in the vocabulary.
        """
        tokenizer, limit = embedder.loaded.tokenizer, embedder.loaded.limits.max_seq_length
        pooling = replace(embedder.pooling, prompt=self.prompt(embedder.pooling, prompts))
        tokens = tokenize(tokenizer, [pooling.text(row) for row in rows if isinstance(row, str)])
        if any(not isinstance(row, str) for row in rows):
            tokens = _with_ids(tokens, rows, embedder)
        length = np.minimum(tokens.length, limit - 2)
        cut = tokens.length - length
        start = tokens.start + cut if self.left else tokens.start
        frames = frame(tokenizer, Spans(tokens.tokens, start, length))
        return EmbeddingRows(Inputs.unlabelled(frames, tokenizer, limit, cut), pooling.normalize)


def _with_ids(tokens: Spans, rows: Sequence[Text], embedder: Embedder) -> Spans:
    """The spans of all rows, from those of the texts among them, without [CLS] and [SEP] around ids.

    Raises Refusal (422) for ids that are not in the vocabulary, or without [CLS] and [SEP]: they may be of another
    tokenizer, such as those that LangChain's OpenAI client sends, and their vectors would mean nothing.
    """
    tokenizer = embedder.loaded.tokenizer
    texts = iter(zip(tokens.start.tolist(), tokens.length.tolist(), strict=True))
    parts: list[Any] = []
    for i, row in enumerate(rows):
        if isinstance(row, str):
            start, length = next(texts)
            parts.append(tokens.tokens[start : start + length])
            continue
        wrong = [one for one in row if not 0 <= one < tokenizer.vocab_size]
        if wrong:
            known = (
                f"this vocabulary has 0 to {tokenizer.vocab_size - 1}; send texts, or ids of this model's own tokenizer"
            )
            raise Refusal(422, f"input {i} has the token id {wrong[0]}; {known}")
        if len(row) < 2 or (row[0], row[-1]) != (tokenizer.cls_id, tokenizer.sep_id):
            raise Refusal(
                422,
                f"input {i} has token ids from {row[0]} to {row[-1]}; expected {tokenizer.cls_id} first and "
                f"{tokenizer.sep_id} last, as this model's tokenizer gives them; ids of another tokenizer mean other "
                "words: send texts (LangChain: check_embedding_ctx_length=False)",
            )
        parts.append(row[1:-1])
    edges = edges_of([len(part) for part in parts])
    return Spans(np.fromiter(chain.from_iterable(parts), np.int32), edges[:-1], np.diff(edges))


# ---- vectors of texts


def cosines(vectors: Tensor) -> list[float]:
    """(N - 1,) the cosine of each of (N, D) vectors and the first, which is left out, in float64."""
    unit = F.normalize(vectors.double(), dim=-1)
    found: list[float] = (unit[1:] @ unit[0]).clamp(-1, 1).tolist()
    return found


def decoder(
    embedder: Embedder, normalize: bool | None = True, dimensions: int | None = None
) -> Callable[[Any, Tensor], Any]:
    """Returns (N, D) vectors from prepared rows and their scores (`Options.decode`).

    normalize: scale every vector to length 1; None: as the folder says. dimensions: keep only that many, and scale to
    length 1 afterwards, as models that were trained for it expect. Raises Refusal (422) if the vectors have fewer.
    """
    if dimensions is not None and not 1 <= dimensions <= embedder.width:
        raise Refusal(422, f"dimensions = {dimensions}; expected 1 to {embedder.width}", param="dimensions")
    unit = embedder.pooling.normalize if normalize is None else normalize

    def decode(rows: EmbeddingRows, scores: Tensor) -> Vectors:
        cut = scores if dimensions is None else scores[:, :dimensions]
        return replace(rows, normalize=unit).decode(cut.contiguous())

    return decode
