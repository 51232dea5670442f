"""What exports do without weights: the server answers with what they have; verbs that need weights refuse them."""

import json
import shutil

import pytest

from bertworks.apps.export.certificate import file_sums
from bertworks.checkpoint.folder import load_model, parts_in
from bertworks.experiments.specs import user_model
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from support.export_folders import folder_of


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of an exported classifier with an empty graph, and beside it its source and labelled rows."""
    source = folder_of(tmp_path_factory.mktemp("weights") / "model", task={"kind": "single"})
    out = shutil.copytree(source, source.with_name("onnx"), ignore=shutil.ignore_patterns("*.safetensors"))
    parts = sorted(parts_in(load_model(source)))
    graph = {"to": "onnx", "precision": "float32", "parts": parts, "labels": 2}
    graph["outputs"] = {"logits": "onnx/model.onnx"}
    (out / "onnx").mkdir()
    (out / "onnx/model.onnx").touch()
    (out / "certificate.json").write_text(
        json.dumps({"format": 1, "graph": graph, "export": {"files": file_sums(out)}})
    )
    (source.parent / "rows.csv").write_text("text,label\ngood film,yes\nbad film,no\n")
    return out


def serve(folder):
    pytest.importorskip("fastapi")
    from bertworks.apps.serve.models import load_models
    from support.served import client_of

    return client_of(load_models([f"it={folder}"]))


def test_an_exported_classifier_is_served(classifier, capsys):
    from bertworks.apps.serve.server import show

    client = serve(classifier)
    assert client.get("/models").json()["models"][0]["can"] == ["classify"]
    for route, body, why in (
        ("/explain", {"a": "a"}, "it is an export, which has no weights"),
        ("/embed", {"inputs": "a"}, "it was exported with logits"),
    ):
        answer = client.post(route, json=body)
        assert answer.status_code == 424 and why in answer.text and str(classifier) not in answer.text, answer.text
    assert client.get("/info").json()["model_type"].keys() == {"classifier"}
    show(client.app.state.service, "http://127.0.0.1:8080", "", 1.0)
    assert "float32, onnx" in capsys.readouterr().out


VERBS = [
    "features EXPORT SENTENCES --out OUT.safetensors",
    "probe explain EXPORT film --out OUT.html",
    "probe word EXPORT film SENTENCES",
    "probe neighbours EXPORT film --data SENTENCES",
    "probe heads EXPORT --dev ROWS --kind single",
    "probe layers EXPORT --train ROWS --dev ROWS",
    "finetune --model EXPORT --train ROWS --dev ROWS --out OUT",
    "finetune --model SOURCE --teacher EXPORT --train ROWS --dev ROWS --out OUT",
    "convert EXPORT OUT",
    "distill --loop.steps 1 --teacher EXPORT --corpus STORE --out OUT",
    "export EXPORT --out OUT",
    "export EXPORT --compare",
]


@pytest.mark.parametrize("line", VERBS)
def test_verbs_that_need_weights_refuse_an_export(classifier, tmp_path, line, refused):
    (tmp_path / "sentences.txt").write_text("good film\nbad film\n")
    named = {"EXPORT": classifier, "SOURCE": classifier.with_name("model"), "ROWS": classifier.parent / "rows.csv"}
    outs = {f"OUT{ending}": tmp_path / f"out{ending}" for ending in ("", ".safetensors", ".html")}
    named |= {"SENTENCES": tmp_path / "sentences.txt"} | outs
    message = refused(*(named.get(word, word) for word in line.split()))
    assert "is an export, which has no weights; use the model folder" in message
    assert "tokenizing" not in message and not (tmp_path / "out").exists()


def test_an_export_keeps_its_precision_and_its_device_and_starts_no_study(classifier):
    with pytest.raises(InputError, match="is an export, which has no weights"):
        user_model(classifier)
    with pytest.raises(InputError, match="which has a precision of its own; leave precision out"):
        Predictor(classifier, precision="bfloat16")
    with pytest.raises(InputError, match="for CPUs"):
        Predictor(classifier, device="cuda")
    assert Predictor(classifier, precision="auto").loaded.engine.precision == "float32"
