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
from pydantic import BaseModel, StrictInt, StrictStr

from .bodies import Body, Count, Many
from .embedding import EmbeddingInput, rows_of
from .errors import Refusal
from .routes import dialect, reply, service_of
from .service import Answers, Options
from .vectors import Vectors, decoder, embedder_of

router = dialect("OpenAI")

Ids = Many[StrictInt]


class EmbeddingsRequest(Body):
    """Texts, or rows of token ids, to embed."""

    input: StrictStr | Many[StrictStr] | Ids | Many[Ids]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    truncate: bool | None = None  # not of OpenAI: cut what is too long


class Embedding(BaseModel):
    """The vector of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """The vectors of all inputs, in their order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    """A folder that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "bertworks"


class Models(BaseModel):
    """All folders that are served."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.post("/v1/embeddings", response_model=EmbeddingsResponse)
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """A vector of length 1 for each input."""
    service = service_of(request)
    model = service.find(body.model, "embed")
    rows = rows_of(body.input)
    prepare = partial(EmbeddingInput().prepare, embedder_of(model), model.prompts)
    decode = decoder(model, dimensions=body.dimensions)
    options = Options(model=model.name, truncate=body.truncate, prepare=prepare, decode=decode)
    answers = await service.run(request, "embed", rows, options)
    return reply(response_of(answers, body.encoding_format), answers)


@router.get("/v1/models", response_model=Models)
async def models(request: Request) -> Response:
    """The folders that are served."""
    service = service_of(request)
    listed = [Model(id=name, created=int(service.started)).model_dump() for name in service.models]
    return reply({"object": "list", "data": listed})


@router.get("/v1/models/{name:path}", response_model=Model)
async def model(name: str, request: Request) -> Response:
    """One folder that is served."""
    service = service_of(request)
    if name not in service.models:
        raise Refusal(404, f"no model {name[:80]!r}; loaded: {', '.join(service.models)}", param="model")
    return reply(Model(id=name, created=int(service.started)).model_dump())


# ---- from vectors to the response


def response_of(answers: Answers, encoding_format: str) -> dict[str, Any]:
    """The vectors in OpenAI's form."""
    vectors: Vectors = np.asarray(answers.results, "<f4")  # (N, D)
    write = base64_of if encoding_format == "base64" else np.ascontiguousarray
    data = [{"object": "embedding", "index": i, "embedding": write(row)} for i, row in enumerate(vectors)]
    usage = {"prompt_tokens": answers.tokens, "total_tokens": answers.tokens}
    return {"object": "list", "data": data, "model": answers.model.name, "usage": usage}


def base64_of(vector: Vectors) -> str:
    """The bytes of a vector, little-endian float32, in base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
