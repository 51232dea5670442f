"""Routes of the Open Inference Protocol (KServe v2), with tensors in JSON.

| head | inputs (BYTES, [N]) | outputs |
|---|---|---|
| labels | text, text_pair (may be left out) | label BYTES [N], scores FP32 [N, K] |
| tags | text | entities BYTES [N], each a JSON list |
| answers | question, context | answer BYTES [N], score FP32 [N], start and end INT64 [N] |
| masks | text | tokens BYTES [N], each a JSON list with a list for each mask |
| vectors | text | embedding FP32 [N, D], of length 1 |

`GET /v2/models/NAME` describes the tensors of a folder. The binary extension of the protocol is not served.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import Request, Response
from pydantic import BaseModel, Field
from torch import Tensor as Scores

from ..._version import __version__
from .bodies import Body, Many
from .errors import Refusal
from .limits import check_masks, check_once
from .models import ServedModel
from .pipelines import TOP_K
from .routes import RefusedKserve, check_ready, dialect, reply, service_of
from .service import Answers, Options
from .vectors import decoder

router = dialect("KServe v2", refused=RefusedKserve)

Dimension = Annotated[int, Field(ge=0)]
Outputs = dict[str, tuple[str, Any]]  # datatype, and an array or a list of texts, by the output's name


class Tensor(BaseModel):
    """Texts by the name of an input."""

    name: str
    shape: Annotated[Many[Dimension], Field(max_length=4)]
    datatype: str
    data: list[Any]


class OutputName(BaseModel):
    """An output that is asked for."""

    name: str


class InferParameters(Body):
    """Of a request; others are not looked at."""

    truncate: bool | None = None  # null: as the server was started


class InferRequest(Body):
    """Tensors to compute with."""

    inputs: Many[Tensor]
    id: str | None = None
    outputs: Many[OutputName] | None = None
    parameters: InferParameters = InferParameters()


@dataclass(frozen=True)
class Signature:
    """The tensors of a step."""

    inputs: tuple[str, ...]
    optional: int  # how many of the last inputs may be left out
    outputs: dict[str, tuple[str, tuple[int, ...]]]  # datatype, and the shape beside N
    write: Callable[[Sequence[Any]], Outputs]


def _labels(results: Sequence[Any]) -> Outputs:
    scores = np.array([list(one["scores"].values()) for one in results], np.float32)
    return {"label": ("BYTES", [one["label"] for one in results]), "scores": ("FP32", scores)}


def _answers(results: Sequence[Any]) -> Outputs:
    best = [answers[0] for answers in results]
    numbers = {name: ("INT64", np.array([one[name] for one in best], np.int64)) for name in ("start", "end")}
    scores = np.array([one["score"] for one in best], np.float32)
    return {"answer": ("BYTES", [one["text"] for one in best]), "score": ("FP32", scores), **numbers}


def _json(name: str) -> Callable[[Sequence[Any]], Outputs]:
    return lambda results: {name: ("BYTES", [orjson.dumps(one).decode() for one in results])}


SIGNATURES = {  # by the step; a folder has the first of them that its heads allow
    "classify": Signature(("text", "text_pair"), 1, {"label": ("BYTES", ()), "scores": ("FP32", (-1,))}, _labels),
    "tag": Signature(("text",), 0, {"entities": ("BYTES", ())}, _json("entities")),
    "answer": Signature(
        ("question", "context"),
        0,
        {"answer": ("BYTES", ()), "score": ("FP32", ()), "start": ("INT64", ()), "end": ("INT64", ())},
        _answers,
    ),
    "fill_mask": Signature(("text",), 0, {"tokens": ("BYTES", ())}, _json("tokens")),
    "embed": Signature(("text",), 0, {"embedding": ("FP32", (-1,))}, lambda vectors: {"embedding": ("FP32", vectors)}),
}


@router.get("/v2", response_model=Any)
async def server() -> Response:
    """Name and version of this server."""
    return reply({"name": "bertworks", "version": __version__, "extensions": []})


@router.get("/v2/health/live", response_model=Any)
async def live() -> Response:
    """200 while the process answers."""
    return reply({"live": True})


@router.get("/v2/health/ready", response_model=Any)
async def ready(request: Request) -> Response:
    """200 while requests are answered, 503 while shutting down."""
    check_ready(request)
    return reply({"ready": True})


@router.get("/v2/models/{name}", response_model=Any)
async def metadata(name: str, request: Request) -> Response:
    """The tensors of a folder."""
    model = service_of(request).find(name, "")
    signature = SIGNATURES[step_of(model)]
    inputs = [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in signature.inputs]
    outputs = [{"name": n, "datatype": kind, "shape": [-1, *more]} for n, (kind, more) in signature.outputs.items()]
    platform = {"platform": "bertworks", "versions": ["1"]}
    return reply({"name": model.name, **platform, "inputs": inputs, "outputs": outputs})


@router.get("/v2/models/{name}/ready", response_model=Any)
async def model_ready(name: str, request: Request) -> Response:
    """200 if the folder is served."""
    return reply({"name": service_of(request).find(name, "").name, "ready": True})


@router.post("/v2/models/{name}/infer", response_model=Any)
async def infer(name: str, body: InferRequest, request: Request) -> Response:
    """The outputs of a folder for some texts. `parameters.truncate`: cut what is too long."""
    service = service_of(request)
    model = service.find(name, "")
    step = step_of(model)
    signature = SIGNATURES[step]
    columns = columns_of(body.inputs, signature)
    rows: list[Any] = list(columns[0]) if len(signature.inputs) == 1 else list(zip(*columns, strict=True))
    check_outputs(body, signature)
    decode: Any = decoder(model) if step == "embed" else None
    if step == "fill_mask":
        check_masks(model, rows, TOP_K)
        decode = _filled
    options = Options(model=model.name, truncate=body.parameters.truncate, decode=decode)
    answers = await service.run(request, step, rows, options)
    return reply(response_of(answers, body, signature), answers)


def _filled(rows: Any, scores: Scores) -> Sequence[Any]:
    found: Sequence[Any] = rows.decode(scores, TOP_K)
    return found


def step_of(model: ServedModel) -> str:
    """The step that a folder is served with; one of sentence-transformers gives vectors."""
    steps = [step for step in SIGNATURES if step in model.steps]
    return "embed" if steps[0] == "fill_mask" and model.predictor.pooling else steps[0]


def columns_of(tensors: Sequence[Tensor], signature: Signature) -> list[list[str | None]]:
    """The texts of each input, in the order of the signature. Raises Refusal (422) for tensors of another form."""
    check_once((tensor.name for tensor in tensors), "inputs")
    given = {tensor.name: texts_of(tensor) for tensor in tensors}
    needed = signature.inputs[: len(signature.inputs) - signature.optional]
    if missing := [name for name in needed if name not in given]:
        raise Refusal(422, f"inputs: no tensor {missing[0]!r}; expected {', '.join(needed)}")
    if unknown := [name for name in given if name not in signature.inputs]:
        raise Refusal(422, f"inputs: {unknown[0][:80]!r} is no input; expected {', '.join(signature.inputs)}")
    sizes = {len(texts) for texts in given.values()}
    if len(sizes) > 1:
        raise Refusal(422, f"inputs: tensors of {' and '.join(map(str, sorted(sizes)))} texts; expected one number")
    return [list(given[name]) if name in given else [None] * sizes.copy().pop() for name in signature.inputs]


def texts_of(tensor: Tensor) -> list[str]:
    """The texts of a tensor, which may be nested. Raises Refusal (422) for anything but texts."""
    values, depth = tensor.data, 0
    while values and isinstance(values[0], list) and depth < 4:
        values, depth = [value for row in values for value in (row if isinstance(row, list) else [row])], depth + 1
    if tensor.datatype != "BYTES" or not all(isinstance(value, str) for value in values):
        raise Refusal(422, f"input {tensor.name[:80]!r}: expected the datatype BYTES, and texts in JSON as data")
    if prod(tensor.shape) != len(values):
        raise Refusal(422, f"input {tensor.name[:80]!r}: shape {tensor.shape}, but {len(values)} texts")
    return values


def check_outputs(body: InferRequest, signature: Signature) -> None:
    """Raises Refusal (422) if an output is asked for that there is not, or twice."""
    check_once((output.name for output in body.outputs or ()), "outputs")
    if unknown := [output.name for output in body.outputs or () if output.name not in signature.outputs]:
        expected = ", ".join(signature.outputs)
        raise Refusal(422, f"outputs: {unknown[0][:80]!r} is no output; expected some of {expected}")


def response_of(answers: Answers, body: InferRequest, signature: Signature) -> dict[str, Any]:
    """The outputs that are asked for, else all."""
    found = signature.write(answers.results)
    asked = list(found) if body.outputs is None else [output.name for output in body.outputs]
    outputs = [tensor_of(name, *found[name]) for name in asked]
    request = {} if body.id is None else {"id": body.id}
    return {"model_name": answers.model.name, "model_version": "1", **request, "outputs": outputs}


def tensor_of(name: str, datatype: str, values: Any) -> dict[str, Any]:
    """An output: its data is flat, row by row."""
    if isinstance(values, list):
        return {"name": name, "datatype": datatype, "shape": [len(values)], "data": values}
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(values.shape),
        "data": np.ascontiguousarray(values).ravel(),
    }
