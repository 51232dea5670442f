"""Routes of OpenAI's API: vectors and the list of models.

The Python and JavaScript clients ask for base64 (little-endian float32) unless the caller chooses a format; without
`encoding_format` the answer has lists of numbers. `input` may be token ids of the model's own tokenizer.

Shapes: N inputs, D width of a vector.
"""

import base64
from functools import partial
from typing import Any, Literal

import numpy as np
from fastapi import Request, Response
from pydantic import StrictInt, StrictStr

from .bodies import Body, Count, Many
from .embedding import EmbeddingInput, Vectors, decoder, rows_of
from .errors import Refusal
from .routes import dialect, reply, service_of
from .service import Options, Service

router = dialect("OpenAI")

Ids = Many[StrictInt]


class EmbeddingsRequest(Body):
    """Texts, or rows of token ids, to embed."""

    input: StrictStr | Many[StrictStr] | Ids | Many[Ids]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    truncate: bool | None = None  # not of OpenAI: cut what is too long


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """A vector of length 1 for each input, in their order: {object, data, model, usage}."""
    service = service_of(request)
    model = service.find(body.model, "embed")
    prepare = partial(EmbeddingInput().prepare, model.embedder, model.prompts)
    options = Options(model.name, body.truncate, prepare, decoder(model.embedder, dimensions=body.dimensions))
    answers = await service.run(request, "embed", rows_of(body.input), options)
    vectors: Vectors = np.asarray(answers.results, "<f4")  # (N, D)
    write = base64_of if body.encoding_format == "base64" else np.ascontiguousarray
    data = [{"object": "embedding", "index": i, "embedding": write(row)} for i, row in enumerate(vectors)]
    usage = {"prompt_tokens": answers.tokens, "total_tokens": answers.tokens}
    return reply({"object": "list", "data": data, "model": model.name, "usage": usage}, answers)


def base64_of(vector: Vectors) -> str:
    """The bytes of a vector, little-endian float32, in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The folders that are served."""
    service = service_of(request)
    return reply({"object": "list", "data": [described(service, name) for name in service.models]})


@router.get("/v1/models/{name:path}")
async def model(name: str, request: Request) -> Response:
    """One folder that is served."""
    service = service_of(request)
    if name not in service.models:
        raise Refusal(404, f"no model {name[:80]!r}; loaded: {', '.join(service.models)}", param="model")
    return reply(described(service, name))


def described(service: Service, name: str) -> dict[str, Any]:
    """A folder as OpenAI describes a model."""
    return {"id": name, "object": "model", "created": int(service.started), "owned_by": "bertworks"}
