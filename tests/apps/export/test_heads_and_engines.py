"""Every head in several families, int8, other software's view of the folder, and advice."""

import importlib.util
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.apps.export.advice import Measured, advice, advise, serve_commands, table
from bertworks.apps.export.certificate import verify
from bertworks.apps.export.config import AdviceConfig, ExportConfig
from bertworks.apps.export.folder import export
from bertworks.apps.export.samples import Sample
from bertworks.apps.export.workers import Choice
from bertworks.checkpoint.pooling import Pooling, write_pooling
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.exported import OnnxFile
from bertworks.inference.predictor import Predictor
from support.export_folders import LONG, ONE, TEXTS, folder_of

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

FAMILIES = {
    "bert": ONE,
    "roberta": replace(ONE, family="roberta", position_offset=1, type_vocab_size=1, max_position_embeddings=33),
    "albert": replace(ONE, family="albert", embedding_size=8, shared_layers="all", hidden_act="gelu_new"),
    "distilbert": replace(ONE, family="distilbert", type_vocab_size=0),
    "rotary": replace(ONE, position_embedding_type="rotary"),
    "left": replace(ONE, direction="left"),
    "modernbert": replace(
        ONE,
        num_hidden_layers=2,
        family="modernbert",
        norm="pre",
        feed_forward="geglu",
        bias=False,
        position_embedding_type="rotary",
        attention_window=2,
        global_every=2,
        local_rope_theta=100.0,
        type_vocab_size=0,
        classifier_pooling="mean",
    ),
}
CASES = [
    ("bert", ("mlm", "nsp"), None),
    pytest.param("roberta", ("span",), {"kind": "span", "doc_stride": 4, "version_2": True}, marks=pytest.mark.heavy),
    pytest.param("albert", ("tagger",), {"kind": "tagging"}, marks=pytest.mark.heavy),
    pytest.param("distilbert", (), None, marks=pytest.mark.heavy),
    pytest.param("rotary", ("choice",), {"kind": "choice"}, marks=pytest.mark.heavy),
    pytest.param("left", ("mlm",), None, marks=pytest.mark.heavy),
    pytest.param("modernbert", ("classifier",), {"kind": "multilabel"}, marks=pytest.mark.heavy),
]


@pytest.mark.parametrize(
    ("family", "heads", "task"), CASES, ids=["mlm-nsp", "span", "tagger", "none", "choice", "left", "multilabel"]
)
def test_every_head_answers_like_its_source(tmp_path, monkeypatch, family, heads, task):
    labels = ["O", "B-X", "I-X"] if "tagger" in heads else ["one", "two", "three"]
    folder = folder_of(tmp_path / "m" / "model", FAMILIES[family], heads, labels, task)
    if not heads:
        write_pooling(folder, Pooling(("cls", "mean"), True, 20, prompt="a "), 16)
    certificate = export(folder, tmp_path / "out")
    assert certificate["difference"]["largest"] <= certificate["difference"]["limit"]
    difference, vectors = certificate["difference"], family in ("distilbert", "left")
    assert difference["equal_answers"] == (None if vectors else 1)
    assert not vectors or 1 - 1e-6 < difference["cosine_min"] <= difference["cosine_mean"] <= 1 + 1e-6
    run_examples(tmp_path / "out", monkeypatch)
    ours, theirs = Predictor(folder), Predictor(tmp_path / "out")
    expected, found = (Sample.of(one, [*TEXTS, LONG]).scores() for one in (ours, theirs))
    assert expected.shape == found.shape and expected.std(0).max() > 1e-3
    assert (expected - found).abs().max() <= 1e-4 * max(1, expected.abs().max())
    if task is None:
        np.testing.assert_allclose(ours.embed([*TEXTS, LONG]), theirs.embed([*TEXTS, LONG]), atol=1e-4)
        assert_sentences(tmp_path / "out", theirs)
    if "nsp" in heads:
        pairs = (["a b", LONG], ["good film", "c"])
        for a, b in zip(ours.next_sentence(*pairs), theirs.next_sentence(*pairs), strict=True):
            assert a["score"] == pytest.approx(b["score"], abs=1e-4)


def run_examples(folder, monkeypatch):
    """Run the Python examples of the card as they are, in the exported folder."""
    blocks = re.findall("```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    monkeypatch.chdir(folder)
    for block in blocks:
        if "sentence_transformers" not in block or importlib.util.find_spec("optimum"):
            exec(block, {})


def assert_sentences(folder, predictor):
    """The graph's own sentence_embedding is what `embed` gives, with the folder's pooling."""
    session = ort.InferenceSession(str(folder / "onnx/model.onnx"), providers=["CPUExecutionProvider"])
    embedder = predictor.embedder()
    batch = embedder.prepare(TEXTS).inputs.batch(np.arange(len(TEXTS)))
    feed = {value.name: batch[value.name].long().numpy() for value in session.get_inputs()}
    assert ("token_type_ids" in feed) == (predictor.model.config.type_vocab_size > 1)
    np.testing.assert_allclose(session.run(["sentence_embedding"], feed)[0], predictor.embed(TEXTS), atol=1e-4)


def test_masks_are_scored_few_sequences_at_a_time(monkeypatch):
    """Scores of the whole vocabulary at every token would fill the memory."""
    from bertworks.inference import exported

    model = folder_model(("mlm",))
    V = model.config.vocab_size
    graph = {"outputs": {"logits": "f"}, "to": "onnx", "precision": "float32", "capability": ""}
    engine = exported.Exported(None, model, graph)
    ids = torch.arange(12).view(4, 3)
    scores = torch.rand(12, V)
    passes = []

    class Runner:
        def run(self, inputs, names):
            passes.append(len(inputs[0]))
            return [scores[inputs[0]]]

    engine._open["f", os.getpid()] = Runner()
    monkeypatch.setattr(exported, "_LOGITS", 2 * 3 * V)
    batch = {name: ids for name in exported.INPUTS}
    cells = torch.tensor([9, 1, 2, 4])
    assert engine.masked(batch, cells).equal(scores[cells]) and passes == [2, 1]


def folder_model(heads):
    from bertworks.model.heads import build_model

    return build_model(ONE, heads, seed=1)


# ---- int8


@pytest.mark.heavy
def test_int8_is_close_dynamic_and_static(tmp_path):
    source = folder_of(tmp_path / "m" / "model", replace(ONE, hidden_size=32), task={"kind": "single"}, scale=5.0)
    (tmp_path / "rows.txt").write_text("\n".join([*TEXTS, "film b c", "", "bad bad"]))
    expected = Sample.of(Predictor(source), TEXTS).scores()
    for name, config in {
        "dynamic": ExportConfig(precision="int8"),
        "static": ExportConfig(precision="int8", calibrate=tmp_path / "rows.txt"),
    }.items():
        certificate = export(source, tmp_path / name, config)
        assert certificate["graph"]["outputs"] == {"logits": "onnx/model_quantized.onnx"}
        assert certificate.get("calibration", {}).get("texts") == (6 if name == "static" else None)
        assert [path.name for path in (tmp_path / name / "onnx").iterdir()] == ["model_quantized.onnx"]
        assert verify(tmp_path / name)["largest"] == pytest.approx(certificate["difference"]["largest"], rel=0.01)
        gap = (expected - Sample.of(Predictor(tmp_path / name), TEXTS).scores()).abs().max()
        assert 1e-5 < gap < 0.3 * expected.abs().max()  # not float32, and not something else
        graph = (tmp_path / name / "onnx/model_quantized.onnx").read_bytes()
        assert (b"DynamicQuantizeLinear" in graph) == (name == "dynamic") and b"Quantize" in graph


# ---- other software


@pytest.mark.heavy
def test_sentence_transformers_takes_the_graph_as_it_is(tmp_path):
    """Its own check says that nothing is left to export; its pooling of our states gives our vectors."""
    utils = pytest.importorskip("sentence_transformers.backend.utils")
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer

    folder = folder_of(tmp_path / "m" / "model", heads=())
    write_pooling(folder, Pooling(("mean",), True, 20), 16)
    out = tmp_path / "out"
    export(folder, out)
    found, named = utils.backend_should_export(out, True, {}, "model.onnx", "*.onnx", "ONNX")
    assert not found and named == {"subfolder": "onnx", "file_name": "model.onnx"}
    session = OnnxFile(out / "onnx/model.onnx", [], "").session
    rows = AutoTokenizer.from_pretrained(out)(TEXTS, padding=True, truncation=True, max_length=20, return_tensors="np")
    vectors = session.run(["sentence_embedding"], {value.name: rows[value.name] for value in session.get_inputs()})[0]
    np.testing.assert_allclose(vectors, SentenceTransformer(str(folder)).encode(TEXTS), atol=1e-4)
    np.testing.assert_allclose(vectors, Predictor(out).embed(TEXTS), atol=1e-4)


# ---- advice


def measured(name, rates, equal=1.0, metrics=None, single=2.0):
    return Measured(name, rates, [single], {}, {"equal_answers": equal, "answers": 24}, metrics or {})


def test_advice_follows_from_the_rounds():
    slow, fast = measured("float32", [10.0, 11.0, 9.0]), measured("bfloat16", [30.0, 33.0, 29.0], 0.995, single=1.5)
    assert advice([slow, fast], 0.99, 0) == (
        "On this machine use bfloat16: 3.0 times the throughput of float32, 1.5 ms for one text, 99.5% of 24 answers "
        "equal."
    )
    near = measured("ONNX int8", [28.0, 31.0, 29.5], 1.0)
    assert advice([slow, fast, near], 0.99, 0).startswith("No clear winner among ONNX int8 and bfloat16")
    assert "use bfloat16, the simplest" in advice([slow, fast, near], 0.99, 0)
    left_out = advice([slow, measured("b", [30.0, 31.0], 0.9)], 0.99, 0)
    assert "use float32 as it is" in left_out
    assert left_out.endswith(
        " b is faster (3.0 times float32), but it agrees less (90.0% of 24 answers equal) than the 99.0% that were "
        "asked for."
    )
    assert "use b: 3.0 times" in advice([slow, measured("b", [30.0, 31.0, 30.0], 0.9)], 0.9, 0)


def test_advice_ends_with_the_commands_to_type():
    assert serve_commands("float32", "runs/a") == ["bertworks serve runs/a --precision float32"]
    assert serve_commands("compiled bfloat16", Path("my runs")) == [
        "bertworks serve 'my runs' --precision bfloat16 --engine compiled"
    ]
    for engine, how in (
        ("ONNX float32", ""),
        ("ONNX int8", " --precision int8"),
        ("bfloat16 package", " --to torch --precision bfloat16"),
    ):
        out = f"runs/a-{engine.replace(' ', '-').lower()}"
        assert serve_commands(engine, "runs/a") == [
            f"bertworks export runs/a{how} --out {out}",
            f"bertworks serve {out}",
        ]


def test_advice_on_labelled_rows_needs_a_score_within_the_interval():
    slow = measured("float32", [10.0, 11.0, 9.0], metrics={"accuracy": 0.9})
    for score, chosen in ((0.89, "int8"), (0.85, "float32")):
        fast = measured("int8", [30.0, 31.0, 30.0], 0.5, {"accuracy": score})
        found = advice([slow, fast], 0.99, 400)
        assert f"use {chosen}" in found, score
        assert ("its accuracy of 0.8500 is too far below that of float32, 0.9000" in found) == (score == 0.85)


@pytest.mark.heavy
def test_advise_measures_two_engines(tmp_path, monkeypatch, capsys):
    """Without exports and compilers, which the next test has."""
    both = lambda folder, *_: [Choice("float32", folder), Choice("bfloat16", folder, "bfloat16")]  # noqa: E731
    monkeypatch.setattr("bertworks.apps.export.advice._choices", both)
    report = advise(folder_of(tmp_path / "m" / "model", task={"kind": "single"}), AdviceConfig(rounds=2, singles=2))
    first, second = report["engines"].values()
    assert first["difference"]["largest"] == 0 < second["difference"]["largest"] < 0.5
    assert len(second["texts_per_second_rounds"]) == 2 and second["memory_mb"] > 50 and not second["metrics"]
    said = capsys.readouterr().err
    assert "bfloat16: loading" in said and "measuring 2 engines: 2 rounds" in said
    assert any("2 interleaved rounds over 24 texts, repeated to 96." in note for note in table(report).notes)
    assert f"use {report['chosen']}" in report["advice"]
    assert table(report).notes[-1].strip() == serve_commands(report["chosen"], tmp_path / "m" / "model")[0]
    assert any("logits, before the softmax" in note for note in table(report).notes)


@pytest.mark.slow
def test_advise_measures_every_engine_and_fits_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    source = folder_of(tmp_path / "m" / "model", task={"kind": "single"})
    (tmp_path / "dev.csv").write_text("text,label\ngood film,yes\nbad film,no\ngood,yes\n")
    rows = f"--dev {tmp_path / 'dev.csv'} --kind single --json {tmp_path / 'a.json'} --rounds 2 --singles 2"
    main(["advise", str(source), *rows.split()])
    shown = capsys.readouterr().out.splitlines()
    assert (
        max(map(len, shown[:-7])) <= 80
        and shown[-1].strip() == json.loads((tmp_path / "a.json").read_text())["commands"][-1]
    )
    report = json.loads((tmp_path / "a.json").read_text())
    engines = report["engines"]
    assert {"float32", "bfloat16", "ONNX float32", "ONNX int8"} <= engines.keys() and not report["left_out"]
    assert shown[-1] == report["advice"]
    for name, one in engines.items():
        assert len(one["texts_per_second_rounds"]) == 2 and one["texts_per_second"] > 0 and one["memory_mb"] > 50
        assert one["metrics"]["accuracy"] in (0, 1 / 3, 2 / 3, 1)
        assert (one["difference"]["largest"] == 0) == (name == "float32")
    assert engines["ONNX float32"]["difference"]["largest"] < 1e-4 < engines["ONNX int8"]["difference"]["largest"]
    assert table(report).rows


def test_advice_is_for_model_folders(tmp_path):
    (tmp_path / "certificate.json").write_text("{}")
    with pytest.raises(InputError, match="is an export"):
        advise(tmp_path)
    for wrong in ({"rounds": 1}, {"singles": 0}, {"equal": 2.0}):
        with pytest.raises(InputError, match="expected 2 or more"):
            AdviceConfig(**wrong)


# ---- compiled packages


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_compiled_package_answers_like_its_source(tmp_path, monkeypatch, precision):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = folder_of(tmp_path / "m" / "model", heads=("mlm",))
    certificate = export(source, tmp_path / "out", ExportConfig("torch", precision))
    files = {"logits": "torch/scores.pt2", "last_hidden_state": "torch/vectors.pt2"}
    assert certificate["graph"]["outputs"] == files and verify(tmp_path / "out")
    ours, theirs = Predictor(source), Predictor(tmp_path / "out")
    near = 1e-4 if precision == "float32" else 0.1
    np.testing.assert_allclose(ours.embed([*TEXTS, LONG]), theirs.embed([*TEXTS, LONG]), atol=near)
    expected, found = (Sample.of(one, TEXTS).scores() for one in (ours, theirs))
    assert (expected - found).abs().max() < near * max(1, expected.abs().max())


def test_advice_on_a_folder_without_a_model_is_refused_before_it_begins(tmp_path, capfd):
    with pytest.raises(InputError, match=r"config\.json"):
        advise(tmp_path)
    assert "exporting" not in capfd.readouterr().err
