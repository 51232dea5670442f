"""`bertworks serve --engine compiled`: every graph is compiled before the server says that it is ready."""

import re

import pytest
import torch

import bertworks.inference.engines as engines
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import load_models
from bertworks.apps.serve.service import Service
from bertworks.files import InputError
from bertworks.inference.engines import Computing
from bertworks.model.rectangular import STATES

OUTPUTS = {"mlm": {STATES, "nsp"}, "tags": {STATES, "tagger"}, "span": {STATES, "span"}, "choice": {STATES, "choice"}}


@pytest.fixture
def compiled(monkeypatch):
    """Replaces the compiler; the outputs and numbers of sequences of every batch that its graphs have computed."""
    seen = []

    def compile_module(module, dynamic):
        def graph(*batch):
            seen.append((*module.outputs, min(len(batch[0]), 2)))
            return module(*batch)

        return graph

    monkeypatch.setattr(engines, "can_compile", lambda: True)
    monkeypatch.setattr(torch, "compile", compile_module)
    return seen


def service_of(folders, *names):
    models = load_models([f"{name}={folders[name]}" for name in names], Computing(engine="compiled"))
    return Service(models, ServeConfig())


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_graph_is_compiled_before_the_server_is_ready(head_folders, compiled, name):
    service, lines = service_of(head_folders, name), []
    service.warm_up(lambda line: lines.append((line, {*compiled})))
    service.close()
    (first, before), (last, after) = lines
    assert first == f"compiling {name} for this processor, which takes a minute or more" and before == set()
    assert re.fullmatch(rf"compiled {name} in \d+ s", last)
    assert {(output, n) for output in OUTPUTS[name] for n in (1, 2)} <= after == {*compiled}
    assert service.models[name].info["engine"] == "compiled"


def test_a_compiler_that_fails_is_named(head_folders, compiled, monkeypatch):
    def graph(*batch):
        raise RuntimeError("line 1\nline 2")

    monkeypatch.setattr(torch, "compile", lambda module, dynamic: graph)
    service = service_of(head_folders, "labels")
    message = r"labels: it could not be compiled \(RuntimeError: line 1\); leave --engine out"
    with pytest.raises(InputError, match=message):
        service.warm_up()
    service.close()
