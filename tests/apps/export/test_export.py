"""Exported folders: ONNX Runtime gives the answers of the source, and the certificate notices changes."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.apps.export.certificate import file_sums, limit_of, verify
from bertworks.apps.export.folder import export
from bertworks.apps.export.samples import shipped_texts
from bertworks.checkpoint.folder import load_model
from bertworks.checkpoint.locate import is_export, new_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.tasks.base import Example, Task
from support.export_folders import LONG, TEXTS, folder_of
from support.tiny_task import VOCAB

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("classifier") / "model", task={"kind": "single"})


@pytest.fixture(scope="module")
def kept(source):
    out = source.with_name("onnx")
    rows = [Example(text, None, label) for text, label in zip(TEXTS, ["no", "yes", "no", "yes"], strict=True)]
    export(source, out, dev=(Task("films", ("text",), kind="single", labels=("no", "yes")), rows))
    return out


@pytest.fixture
def exported(kept, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(kept, tmp_path / "onnx")


def certify(folder, **changes):
    """Make the folder's certificate list its files as they are, with these fields changed."""
    found = json.loads((folder / "certificate.json").read_text()) | changes
    (folder / "certificate.json").write_text(json.dumps(found | {"export": {"files": file_sums(folder)}}))


def padded(sizes=(5, 1, 9), length=9, seed=0):
    """A batch of mixed lengths."""
    generator = torch.Generator().manual_seed(seed)
    real = torch.arange(length) < torch.tensor(sizes)[:, None]
    ids = torch.randint(5, len(VOCAB), real.shape, generator=generator) * real
    types = torch.randint(0, 2, real.shape, generator=generator) * real
    return {"input_ids": ids, "attention_mask": real, "token_type_ids": types}


# ---- one folder, exported once


def test_the_graph_takes_any_batch_and_names_its_axes(kept, source):
    session = ort.InferenceSession(str(kept / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    assert shapes == {**{name: ["batch_size", "sequence_length"] for name in inputs}, "logits": ["batch_size", 2]}
    model = load_model(source)
    for sizes, length in (((1,), 1), ((5, 1, 9), 9), ((32, 3), 32)):
        batch = padded(sizes, length)
        found = session.run(None, {name: value.long().numpy() for name, value in batch.items()})[0]
        with torch.no_grad():
            expected = model.heads["classifier"](model.encode(batch).pooled)
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert len(sizes) == 1 or expected.std(0).max() > 0.1


def test_a_forked_process_opens_a_session_of_its_own(kept, monkeypatch):
    predictor = Predictor(kept)
    before = predictor.classify("a b")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert predictor.classify("a b") == before and len(predictor.loaded.engine._open) == 2


def test_an_exported_folder_answers_like_its_source(kept, source):
    texts = [*TEXTS, LONG]
    ours, theirs = Predictor(source), Predictor(kept)
    for a, b in zip(ours.classify(texts, all_scores=True), theirs.classify(texts, all_scores=True), strict=True):
        assert a["label"] == b["label"] and a["tokens"] == b["tokens"]
        assert a["scores"] == pytest.approx(b["scores"], abs=1e-4)
    assert "engine='onnx'" in repr(theirs)
    with pytest.raises(InputError, match="exported with logits; it has no last_hidden_state"):
        theirs.embed("a")
    with pytest.raises(InputError, match="has no tagger"):
        theirs.tag("a")


def test_the_certificate_says_what_was_measured(kept, source):
    certificate = json.loads((kept / "certificate.json").read_text())
    difference, scores = certificate["difference"], certificate["scores"]
    assert difference["largest"] < 1e-4 and difference["equal_answers"] == 1
    assert difference["texts"] == len(shipped_texts()) == 24
    assert {"config.json", "model.safetensors"} <= certificate["source"]["files"].keys()
    files = {"onnx/model.onnx", "tokenizer.json", "README.md", "reference.safetensors"}
    assert files <= certificate["export"]["files"].keys()
    assert scores["before"] == pytest.approx(scores["after"]) and scores["rows"] == 4
    assert certificate["machine"]["onnxruntime"] == ort.__version__
    assert str(source.parent) not in (kept / "certificate.json").read_text() + (kept / "README.md").read_text()
    graph = (kept / "onnx/model.onnx").read_bytes()
    assert b".py" not in graph and b"site-packages" not in graph


def test_an_untouched_export_is_verified(kept, capsys):
    assert verify(kept)["largest"] < 1e-4
    main(["export", "--verify", str(kept)])
    shown = capsys.readouterr().out
    assert "files as certified" in shown and "logits, before the softmax" in shown


def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(bytes(data))


def swap(folder):
    settings = json.loads((folder / "config.json").read_text())
    settings["id2label"] = {"0": "yes", "1": "no"}
    (folder / "config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap, r"altered: config\.json"),
        (lambda folder: flip(folder / "onnx/model.onnx"), r"altered: onnx/model\.onnx"),
        (lambda folder: flip(folder / "reference.safetensors"), r"altered: reference\.safetensors"),
        (lambda folder: (folder / "onnx/model.onnx").unlink(), r"missing: onnx/model\.onnx"),
        (lambda folder: (folder / "added_tokens.json").write_text("{}"), r"not of this export: added_tokens\.json"),
        (lambda folder: (folder / "modules.json").write_text("[]"), r"modules"),
    ],
)
def test_an_export_whose_files_changed_is_not_used(exported, change, message, capsys):
    change(exported)
    with pytest.raises(InputError, match=message):
        Predictor(exported)
    for verb in ("serve FOLDER --port 0", "doctor FOLDER", "export --verify FOLDER"):
        with pytest.raises(SystemExit) as end:
            main(verb.replace("FOLDER", str(exported)).split())
        printed = capsys.readouterr()
        assert end.value.code and re.search(message, " ".join((printed.out + printed.err).split()))


def test_scores_that_differ_more_than_certified_are_noticed(exported):
    file = exported / "certificate.json"
    found = json.loads(file.read_text())
    found["difference"]["limit"] = found["difference"]["largest"] / 4
    file.write_text(json.dumps(found))
    with pytest.raises(InputError, match="certified are at most"):
        verify(exported)


@pytest.mark.parametrize(
    ("change", "message"), [({"graph": 3}, r"certificate\.json"), ({"format": 99}, "newer"), ({"export": {}}, "again")]
)
def test_a_certificate_that_cannot_be_read_is_refused(exported, change, message):
    file = exported / "certificate.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        Predictor(exported).classify("a")


@pytest.mark.parametrize("damage", ["empty", "no name"])
def test_onnx_runtime_prints_nothing_beside_our_message(exported, capfd, damage):
    graph = exported / "onnx/model.onnx"
    start, _, end = graph.read_bytes().rpartition(b"logits")
    graph.write_bytes(b"" if damage == "empty" else start + b"lo\xff\xfets" + end)  # its message is no UTF-8 then
    certify(exported)
    with pytest.raises(InputError, match=r"model\.onnx: .*; export again"):
        Predictor(exported).classify("a")
    assert capfd.readouterr() == ("", "")


def test_without_onnxruntime_the_extra_is_named(kept, source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install 'bertworks\[export\]'"):
        Predictor(kept).classify("a")
    with pytest.raises(InputError, match=r"pip install 'bertworks\[export\]'"):
        export(source, tmp_path / "out")


@pytest.mark.parametrize("linked", [False, True])
def test_only_an_earlier_export_is_replaced(source, kept, tmp_path, monkeypatch, capsys, linked):
    """Through a link its target is replaced."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        export(source, tmp_path / "full")
    earlier = shutil.copytree(kept, tmp_path / "earlier")
    (earlier / "old.txt").write_text("")
    monkeypatch.setattr("bertworks.apps.export.folder.write_onnx", lambda module, path: copied(kept, path))
    out = tmp_path / "link" if linked else earlier
    if linked:
        out.symlink_to(earlier, target_is_directory=True)
    main(["export", str(source), "--out", str(out)])
    assert capsys.readouterr().err == f"replacing the earlier export {out}\n"
    assert verify(earlier) and not (earlier / "old.txt").exists() and out.is_symlink() == linked
    assert {path.name for path in tmp_path.iterdir()} == {"earlier", "full", out.name}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("step", ["written", "earlier aside", "in place"])
def test_a_kill_leaves_one_whole_folder(kept, tmp_path, monkeypatch, step):
    out = shutil.copytree(kept, tmp_path / "out")
    (out / "old.txt").write_text("")
    rename, renamed = Path.rename, []

    def killed(path, target):
        if step == "written":
            os._exit(9)
        moved = rename(path, target)
        renamed.append(path)
        if len(renamed) == (1 if step == "earlier aside" else 2):
            os._exit(9)
        return moved

    def again():
        with new_folder(out, replaces=is_export) as staging:
            shutil.copytree(kept, staging)

    if (child := os.fork()) == 0:
        try:
            monkeypatch.setattr(Path, "rename", killed)
            again()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    [hidden] = tmp_path.glob(".out.*.new")
    old = hidden / "out.earlier" if step == "earlier aside" else out
    assert is_export(old) and (old / "old.txt").exists() == (step != "in place")
    again()
    assert verify(out) and not (out / "old.txt").exists()


def test_an_export_that_cannot_be_put_in_place_gives_the_earlier_one_back(kept, tmp_path, monkeypatch):
    out, rename = shutil.copytree(kept, tmp_path / "out"), Path.rename
    (out / "old.txt").write_text("")

    def refused(path, target):
        if target == out and not path.name.endswith(".earlier"):
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError), new_folder(out, replaces=is_export) as staging:
        shutil.copytree(kept, staging)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (out / "old.txt").exists()


def copied(kept, path):
    path.parent.mkdir(parents=True)
    shutil.copy(kept / "onnx/model.onnx", path)


def test_a_failed_export_leaves_nothing(source, tmp_path, monkeypatch):
    other = folder_of(tmp_path / "m" / "model", task={"kind": "single"}, scale=31.0)
    monkeypatch.setattr(
        "bertworks.apps.export.folder.write_onnx", lambda module, path: copied(source.with_name("onnx"), path)
    )
    with pytest.raises(InputError, match=r"differ by up to .* nothing was written"):
        export(other, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_the_limit_of_float32_grows_with_the_scores():
    assert limit_of({"largest": 1e-6, "largest_score": 0.5}, "float32") == pytest.approx(1e-4)
    assert limit_of({"largest": 5e-4, "largest_score": 20.0}, "float32") == pytest.approx(2e-3)
    assert limit_of({"largest": 0.2, "largest_score": 1.0}, "int8") == pytest.approx(0.3)
    for largest in (2e-4, float("nan")):
        with pytest.raises(InputError, match="nothing was written"):
            limit_of({"largest": largest, "largest_score": 1.0}, "float32")


@pytest.mark.parametrize("name", ["../secret.txt", "/dev/null", "onnx/none.onnx"])
def test_only_files_of_the_folder_are_opened(exported, name):
    (exported.parent / "secret.txt").write_text("mine")
    graph = json.loads((exported / "certificate.json").read_text())["graph"]
    certify(exported, graph={**graph, "outputs": {"logits": name}})
    with pytest.raises(InputError, match=f"no file {name}, which certificate"):
        Predictor(exported).classify("a")
