"""Options of routes that return vectors: length 1 or not, fewer dimensions.

Shapes: N texts, D width of a vector.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ...inference.steps import Embedder, EmbeddingRows
from .errors import Refusal
from .models import ServedModel

Vectors = NDArray[np.float32]


def embedder_of(model: ServedModel) -> Embedder:
    """The steps of `embed`."""
    return cast(Embedder, model.steps_of("embed"))


def cosines(vectors: Tensor) -> list[float]:
    """(N - 1,) the cosine of each of (N, D) vectors and the first, which is left out, in float64."""
    unit = F.normalize(vectors.double(), dim=-1)
    found: list[float] = (unit[1:] @ unit[0]).clamp(-1, 1).tolist()
    return found


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
