"""Options of routes that return vectors: length 1 or not, fewer dimensions, token ids in place of texts.

Shapes: N texts, D width of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..files import InputError
from ..inference.steps import Embedder, EmbeddingRows
from ..tasks.inputs import Inputs
from ..tasks.sequences import Spans, edges_of, frame
from .errors import Refusal
from .models import ServedModel

Vectors = NDArray[np.float32]


def embedder_of(model: ServedModel) -> Embedder:
    """The steps of `embed`."""
    return cast(Embedder, model.steps_of("embed"))


def decoder(
    model: ServedModel, normalize: bool | None = True, dimensions: int | None = None
) -> Callable[[Any, Tensor], Any]:
    """Returns (N, D) vectors from prepared rows and their scores (`Options.decode`).

    normalize: scale every vector to length 1; None: as the folder says. dimensions: keep only that many, and scale to
    length 1 afterwards, as models that were trained for it expect. Raises Refusal (422) if the vectors have fewer.
    """
    embedder = embedder_of(model)
    width = embedder.width
    if dimensions is not None and not 1 <= dimensions <= width:
        raise Refusal(422, f"dimensions = {dimensions}; expected 1 to {width}", param="dimensions")
    unit = embedder.pooling.normalize if normalize is None else normalize

    def decode(rows: EmbeddingRows, scores: Tensor) -> Vectors:
        cut = scores if dimensions is None else scores[:, :dimensions]
        return replace(rows, normalize=unit).decode(cut.contiguous())

    return decode


def prepare_ids(embedder: Embedder, rows: Sequence[Sequence[int]]) -> EmbeddingRows:
    """Rows of token ids, ready for a model: the special tokens are added where a row does not begin with [CLS].

    The folder's prompt is not added. Raises InputError if an id is not in the vocabulary.
    """
    tokenizer, limit = embedder.loaded.tokenizer, embedder.loaded.limits.max_seq_length
    size = tokenizer.vocab_size
    for i, row in enumerate(rows):
        wrong = [number for number in row if not 0 <= number < size]
        if wrong:
            raise InputError(
                f"input {i} has the token id {wrong[0]}; this vocabulary has 0 to {size - 1}; send texts, or ids of "
                "this model's own tokenizer"
            )
    inner = [_without_frame(row, tokenizer.cls_id, tokenizer.sep_id) for row in rows]
    whole = np.array([len(row) for row in inner], np.int64)
    length = np.minimum(whole, limit - 2)
    ids = np.fromiter(chain.from_iterable(inner), np.int32)
    frames = frame(tokenizer, Spans(ids, edges_of(whole)[:-1], length))
    return EmbeddingRows(Inputs.unlabelled(frames, tokenizer, limit, whole - length), embedder.pooling.normalize)


def _without_frame(row: Sequence[int], cls: int, sep: int) -> Sequence[int]:
    """The ids between [CLS] and [SEP], if the row has both."""
    return row[1:-1] if len(row) > 1 and row[0] == cls and row[-1] == sep else row
