"""Tiny folders of every head, and a real server of them on a free port: what the tests of the dialects share."""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.models import ServedModel

NLI = ["contradiction", "entailment", "neutral"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def heads_of(folder: Path) -> dict[str, Path]:
    """A folder for each head, by the name of what it does; all have random weights."""
    from .tiny_task import tiny_folder

    base = tiny_folder(folder / "mlm")
    make = functools.partial(_save, folder, base)
    return {
        "mlm": base,
        "labels": make("labels", "classifier", ["one", "two", "three"]),
        "nli": make("nli", "classifier", NLI, {"kind": "pair"}),
        "ranker": make("ranker", "classifier", ["relevance"]),
        "value": make("value", "classifier", ["score"], {"kind": "regression", "text": ["text"]}),
        "several": make("several", "classifier", ["red", "green", "blue"], {"kind": "multilabel"}),
        "tags": make("tags", "tagger", TAGS),
        "span": make("span", "span", None),
        "choice": make("choice", "choice", None),
    }


def _save(folder: Path, base: Path, name: str, head: str, labels: list[str] | None, task: dict | None = None) -> Path:
    import torch

    from bertworks.checkpoint.folder import save_folder
    from bertworks.model.heads import build_model

    from .tiny_task import TINY

    model = build_model(TINY, (head,), labels=len(labels or "xx"), seed=3)
    with torch.no_grad():
        model.heads[head].weight.mul_(40)  # probabilities far from uniform
    save_folder(folder / name, model, base, labels=labels, max_length=24, task=task)
    return folder / name


def loaded(folders: dict[str, Path], *names: str) -> "dict[str, ServedModel]":
    """Served models by name; they compute in float32 on every processor."""
    from bertworks.apps.serve.models import ServedModel

    return {name: ServedModel.load(f"{name}={folders[name]}", "float32") for name in names}


@contextlib.contextmanager
def serving(
    models: "dict[str, ServedModel]", config: "ServeConfig | None" = None, key: str | None = None
) -> Iterator[str]:
    """The address of a server that answers on the loopback interface until the end of the block."""
    import uvicorn

    from bertworks.apps.serve.app import create_app

    app = create_app(models, config, [key] if key else None)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            app.state.service.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> "dict[str, ServedModel]":
    """A served model for each head."""
    pytest.importorskip("fastapi")
    folders = heads_of(tmp_path_factory.mktemp("heads"))
    return loaded(folders, *folders)


@pytest.fixture(scope="session")
def server_url(served) -> Iterator[str]:
    """The address of one server of all heads, for all tests."""
    pytest.importorskip("uvicorn")
    with serving(served) as address:
        yield address


@pytest.fixture(scope="session")
def http(server_url):
    """A client of that server."""
    import httpx

    with httpx.Client(base_url=server_url, timeout=60) as client:
        yield client
