"""Tiny folders of every head, clients of an application that serves some of them, and a real server of all."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.models import ServedModel

NLI = ["contradiction", "entailment", "neutral"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
HEADS = {  # name of the model: (head, labels, task); `mlm` has both pre-training heads
    "labels": ("classifier", ["one", "two", "three"], None),
    "reviews": ("classifier", ["bad", "good"], {"kind": "single", "name": "sst2"}),
    "nli": ("classifier", NLI, {"kind": "pair"}),
    "ranker": ("classifier", ["relevance"], None),
    "value": ("classifier", ["score"], {"kind": "regression", "text": ["text"]}),
    "several": ("classifier", ["red", "green", "blue"], {"kind": "multilabel"}),
    "tags": ("tagger", TAGS, None),
    "span": ("span", (), None),
    "choice": ("choice", (), None),
}


def heads_of(folder: Path) -> dict[str, Path]:
    """A folder for each of HEADS, and `mlm`; all have random weights."""
    from .tiny_task import headed_folder, tiny_folder

    base = tiny_folder(folder / "mlm")
    for name, (head, labels, task) in HEADS.items():
        headed_folder(folder / name, base, head, labels, task=task)
    return {name: folder / name for name in ("mlm", *HEADS)}


def wait_for(condition, seconds: float = 30) -> None:
    """Wait until a condition is true; a connection that is refused is no answer yet."""
    import httpx

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain")


def loaded(folders: dict[str, Path], *names: str) -> "dict[str, ServedModel]":
    """Served models by name; they compute in float32 on every processor."""
    from bertworks.apps.serve.models import ServedModel

    return {name: ServedModel.load(f"{name}={folders[name]}", "float32") for name in names}


def client_of(models: "dict[str, ServedModel]", key: str | None = None, **settings):
    """A client of an application in this process; settings are those of ServeConfig."""
    from fastapi.testclient import TestClient

    from bertworks.apps.serve.app import create_app
    from bertworks.apps.serve.config import ServeConfig

    app = create_app(models, ServeConfig(**settings), [key] if key else None)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@contextlib.contextmanager
def serving(models: "dict[str, ServedModel]", config: "ServeConfig | None" = None, key: str | None = None, app=None):
    """The address of a server, in a thread, that answers on the loopback interface until the end of the block."""
    from bertworks.apps.serve.app import create_app
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.server import accept, address_of, bind, server_of

    config = replace(config or ServeConfig(), port=0)
    app = app or create_app(models, config, [key] if key else None)
    with bind(config) as listener:
        accept(listener, config)
        app.state.server = server = server_of(app, config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield address_of(listener)
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            app.state.service.close()
            assert not thread.is_alive() and app.state.service.queue.join(20)


@pytest.fixture(scope="session")
def head_folders(tmp_path_factory) -> dict[str, Path]:
    return heads_of(tmp_path_factory.mktemp("heads"))


@pytest.fixture(scope="session")
def served(head_folders) -> "dict[str, ServedModel]":
    """A served model for each head."""
    pytest.importorskip("fastapi")
    return loaded(head_folders, *head_folders)


@pytest.fixture(scope="session")
def predictors(served):
    return {name: model.predictor for name, model in served.items()}


@pytest.fixture(scope="session")
def make_client(predictors):
    """Returns a function that gives a client of some of the models."""
    from bertworks.apps.serve.models import ServedModel

    def make(*names: str, key: str | None = None, prompts=None, **settings):
        return client_of({name: ServedModel(name, predictors[name], prompts) for name in names}, key, **settings)

    return make


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
