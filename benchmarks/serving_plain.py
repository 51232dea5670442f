"""A plain embedding server, as a user of FastAPI writes it: the rivals in serving.py.

    MODEL=FOLDER ENGINE="sentence-transformers, bfloat16" GRAPHS=FOLDER TOKENS=40 THREADS=2 uvicorn serving_plain:app

ENGINE is one of inference.py; those of ONNX Runtime open a file in GRAPHS. Routes that are not `async` run in
FastAPI's pool of threads, so several requests may be in the model at a time; TOKENS limits how many.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import torch
from fastapi import FastAPI
from pydantic import BaseModel

from inference_engines import build

torch.set_num_threads(int(os.environ.get("THREADS", torch.get_num_threads())))
embed = build(os.environ["ENGINE"], Path(os.environ["MODEL"]), Path(os.environ["GRAPHS"]))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Set the size of the pool."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = int(os.environ.get("TOKENS", "40"))
    yield


app = FastAPI(lifespan=lifespan)


class Body(BaseModel):
    """What OpenAI's clients send."""

    input: str | list[str]
    model: str = "model"


@app.get("/health")
def health() -> dict[str, str]:
    """Whether it answers."""
    return {"status": "ok"}


@app.post("/v1/embeddings")
def embeddings(body: Body) -> dict[str, Any]:
    """A vector for each text."""
    texts = [body.input] if isinstance(body.input, str) else body.input
    data = [{"object": "embedding", "index": i, "embedding": vector.tolist()} for i, vector in enumerate(embed(texts))]
    return {"object": "list", "model": body.model, "data": data}
