"""Vectors of texts: `/embed` of text-embeddings-inference and `/v1/embeddings` of OpenAI, and what other routes need.

OpenAI's Python and JavaScript clients request base64 (little-endian float32) unless the caller chooses a format;
without `encoding_format` the answer has lists of numbers.

Shapes: N texts, D width of a vector.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from pydantic import Field, StrictInt, StrictStr
from torch import Tensor
from torch.nn import functional as F

from ...inference.steps import EmbeddingRows
from ...tasks.inputs import Inputs
from ...tasks.sequences import frame, tokenize
from .errors import HTTPError
from .models import ServedModel
from .routes import Count, FailFastList, ModelRequest, TruncationRequest, api_router, reply, service_of
from .service import Answers, Options

router = api_router("vectors")
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Embedding:
    """How texts become vectors."""

    prompt_name: str | None = None  # of the prompts of a sentence-transformers folder; none: its default prompt
    left: bool = False  # whether a text that is too long is cut at its beginning instead of its end
    normalize: bool = True  # scale every vector to length 1
    # keep the first ones only and scale to length 1 then, as models trained for it expect
    dimensions: int | None = None

    def options(self, model: ServedModel, truncate: bool | None) -> Options:
        """The options of a request. Raises HTTPError (422) if the vectors have fewer dimensions."""
        embedder, width = model.embedder, self.dimensions
        if width is not None and not 1 <= width <= embedder.width:
            raise HTTPError(422, f"dimensions = {width}; expected 1 to {embedder.width}", param="dimensions")

        def decode(rows: EmbeddingRows, scores: Tensor) -> Any:
            return replace(rows, normalize=self.normalize).decode(scores[:, :width].contiguous())

        return Options(model.name, truncate, lambda rows: self.prepare(model, rows), decode)

    def prepare(self, model: ServedModel, rows: Sequence[str]) -> EmbeddingRows:
        """The sequences of texts. Raises HTTPError (422) for an unknown prompt."""
        loaded, pooling, name = model.predictor.loaded, model.embedder.pooling, self.prompt_name
        tokenizer, limit = loaded.tokenizer, loaded.limits.max_seq_length
        if name is not None:
            if name not in model.prompts:
                message = f"no prompt {name[:80]!r}; this model has {', '.join(model.prompts) or 'none'}"
                raise HTTPError(422, message, param="prompt_name")
            pooling = replace(pooling, prompt=model.prompts[name])
        tokens = tokenize(tokenizer, [pooling.text(row) for row in rows])
        length = np.minimum(tokens.length, limit - 2)
        cut = tokens.length - length
        start = tokens.start + cut if self.left else tokens.start
        frames = frame(tokenizer, tokens._replace(start=start, length=length))
        return EmbeddingRows(Inputs.unlabelled(frames, tokenizer, limit, cut), pooling.normalize)


def cosines(vectors: Tensor) -> list[float]:
    """(N - 1,) the cosine of each of (N, D) vectors and the first, which is left out, in float64."""
    unit = F.normalize(vectors.double(), dim=-1)
    values: list[float] = (unit[1:] @ unit[0]).clamp(-1, 1).tolist()
    return values


# ---- routes


async def embedded(request: Request, body: ModelRequest, texts: str | list[str], how: Embedding) -> Answers:
    """The vectors of one text or several."""
    service = service_of(request)
    options = how.options(service.find(body.model, "embed"), body.truncate)
    return await service.run(request, "embed", [texts] if isinstance(texts, str) else texts, options)


class EmbedRequest(TruncationRequest):
    """Texts to embed."""

    inputs: str | FailFastList[str] = Field(examples=["What is deep learning?"])
    prompt_name: str | None = None
    normalize: bool = True
    dimensions: StrictInt | None = None


@router.post("/embed")
async def embed(body: EmbedRequest, request: Request) -> Response:
    """A vector for each text, of length 1 unless `normalize` is false; `dimensions` keeps the first of its values."""
    how = Embedding(body.prompt_name, body.left, body.normalize, body.dimensions)
    answers = await embedded(request, body, body.inputs, how)
    return reply(answers.results, answers)


class EmbeddingsRequest(ModelRequest):
    """Texts to embed, as OpenAI's clients write them."""

    input: StrictStr | FailFastList[StrictStr]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """A vector of length 1 for each text, in their order: {object, data, model, usage}."""
    answers = await embedded(request, body, body.input, Embedding(dimensions=body.dimensions))
    vectors: Vectors = np.ascontiguousarray(answers.results, "<f4")  # (N, D)
    base = body.encoding_format == "base64"
    written = [base64.b64encode(row.tobytes()).decode() if base else row for row in vectors]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(written)]
    usage = {"prompt_tokens": answers.tokens, "total_tokens": answers.tokens}
    return reply({"object": "list", "data": data, "model": answers.model.name, "usage": usage}, answers)
