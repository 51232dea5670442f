"""Served models with every head, tiny, and clients of them."""

import pytest

TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
HEADS = {  # name of the model: (head, labels, task)
    "single": ("classifier", ["one", "two", "three"], {"kind": "single"}),
    "reviews": ("classifier", ["bad", "good"], {"kind": "single", "name": "sst2"}),
    "pair": ("classifier", ["no", "yes"], {"kind": "pair"}),
    "value": ("classifier", ["value"], {"kind": "regression"}),
    "several": ("classifier", ["a", "b"], {"kind": "multilabel"}),
    "tags": ("tagger", TAGS, {"kind": "tagging"}),
    "span": ("span", [], {"kind": "span", "doc_stride": 4, "version_2": True}),
    "choice": ("choice", [], {"kind": "choice"}),
}


@pytest.fixture(scope="session")
def head_folders(tmp_path_factory):
    """A folder for each of HEADS, and `tiny` with both pre-training heads."""
    import torch

    from bertworks.checkpoint.folder import save_folder
    from bertworks.inference.predictor import Predictor
    from bertworks.model.heads import build_model
    from support.tiny_task import TINY, tiny_folder

    root = tmp_path_factory.mktemp("serve")
    found = {"tiny": tiny_folder(root / "tiny")}
    tokenizer = Predictor(found["tiny"], device="cpu").tokenizer
    for name, (head, labels, task) in HEADS.items():
        model = build_model(TINY, (head,), labels=len(labels), seed=4)
        with torch.no_grad():
            for key, weight in model.heads.named_parameters():
                weight.mul_(30 if key.endswith("weight") else 1)  # so that scores differ
        found[name] = root / name
        save_folder(found[name], model, tokenizer, labels=labels or None, max_length=24, task=task)
    return found


@pytest.fixture(scope="session")
def predictors(head_folders):
    from bertworks.inference.predictor import Predictor

    return {name: Predictor(folder, device="cpu") for name, folder in head_folders.items()}


@pytest.fixture(scope="session")
def make_client(predictors):
    """Returns a function that gives a client of some of the models; settings are those of ServeConfig."""
    from fastapi.testclient import TestClient

    from bertworks.apps.serve.app import create_app
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.models import ServedModel

    def make(*names: str, key: str | None = None, prompts=None, **settings) -> TestClient:
        models = {name: ServedModel(name, predictors[name], prompts) for name in names}
        app = create_app(models, ServeConfig(**settings), [key] if key else None)
        return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)

    return make


@pytest.fixture(scope="session")
def all_client(make_client):
    """A client of all models."""
    return make_client(*HEADS, "tiny")
