"""Every head in several families, int8, other software's view of the folder, and the comparison of engines."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.apps.export.certificate import verify
from bertworks.apps.export.comparison import ENGINES, Comparison, Engine, Measured, compare, serve_commands, table
from bertworks.apps.export.config import ExportConfig
from bertworks.apps.export.folder import export
from bertworks.apps.export.samples import Sample
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
    graph = {"outputs": {"logits": "f"}, "to": "onnx", "precision": "float32"}
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


@pytest.mark.heavy
def test_static_int8_of_a_masked_lm_whose_output_is_tied_to_its_embeddings(tmp_path):
    source = folder_of(tmp_path / "m" / "model", replace(ONE, hidden_size=32), heads=("mlm",), scale=5.0)
    (tmp_path / "rows.txt").write_text("\n".join(TEXTS))
    certificate = export(source, tmp_path / "out", ExportConfig(precision="int8", calibrate=tmp_path / "rows.txt"))
    assert 1e-5 < certificate["difference"]["largest"] < 0.5


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
    session = OnnxFile(out / "onnx/model.onnx").session
    rows = AutoTokenizer.from_pretrained(out)(TEXTS, padding=True, truncation=True, max_length=20, return_tensors="np")
    vectors = session.run(["sentence_embedding"], {value.name: rows[value.name] for value in session.get_inputs()})[0]
    np.testing.assert_allclose(vectors, SentenceTransformer(str(folder)).encode(TEXTS), atol=1e-4)
    np.testing.assert_allclose(vectors, Predictor(out).embed(TEXTS), atol=1e-4)


# ---- the comparison of engines


def measured(name, rates, equal=1.0, single=2.0):
    return Measured(name, {"equal_answers": equal, "answers": 24}, rates, [single])


def test_the_recommendation_follows_from_the_rounds():
    slow, fast = measured("float32", [10.0, 11.0, 9.0]), measured("bfloat16", [30.0, 33.0, 29.0], 0.995, single=1.5)
    near, other = measured("ONNX int8", [28.0, 31.0, 29.5]), measured("b", [30.0, 31.0], 0.9)
    assert Comparison([slow, fast], {}, 24).recommendation == (
        "Use bfloat16: 3.0 times the throughput of float32, 1.5 ms for one text, 99.5% of 24 answers equal."
    )
    overlapping = Comparison([slow, fast, near], {}, 24).recommendation
    assert overlapping.startswith("No clear winner among bfloat16 and ONNX int8: ")
    assert overlapping.endswith("use bfloat16, the simplest.")
    differs = Comparison([slow, other], {}, 24).recommendation
    assert differs.startswith("Use float32: ") and differs.endswith(
        " b is faster (3.0 times float32), but its answers differ too much: 90.0% of 24 answers equal."
    )


@pytest.mark.parametrize(
    ("engine", "commands"),
    [
        ("float32", ["bertworks serve 'my runs' --precision float32"]),
        ("compiled bfloat16", ["bertworks serve 'my runs' --precision bfloat16 --engine compiled"]),
        (
            "ONNX int8",
            [
                "bertworks export 'my runs' --precision int8 --out 'my runs-onnx-int8'",
                "bertworks serve 'my runs-onnx-int8'",
            ],
        ),
    ],
)
def test_the_commands_of_an_engine(engine, commands):
    assert serve_commands(engine, Path("my runs")) == commands


@pytest.mark.heavy
def test_engines_are_compared(tmp_path, capsys):
    source = folder_of(tmp_path / "m" / "model", task={"kind": "single"})
    found = compare(source, seconds=600, engines=ENGINES[:2])
    first, second = found.measured
    assert first.difference["largest"] == 0 < second.difference["largest"] < 0.5
    assert len(first.throughput) == len(second.throughput) == 5 and len(second.single) == 100 and not found.left_out
    notes = table(found, source).notes
    assert notes[-1].strip() == serve_commands(found.fastest[0].name, source)[0] and found.recommendation in notes
    assert "bfloat16: preparing" in capsys.readouterr().err


@pytest.mark.heavy
def test_an_engine_that_is_not_ready_is_ended_with_the_time(tmp_path):
    """It waits for a file that nobody writes."""
    source = folder_of(tmp_path / "m" / "model", task={"kind": "single"})
    os.mkfifo(tmp_path / "texts.txt")
    waits = Engine("waits", exported=ExportConfig("int8", tmp_path / "texts.txt"))
    found = compare(source, seconds=30, engines=[ENGINES[0], waits])
    assert [one.name for one in found.measured] == ["float32"] and found.measured[0].throughput
    assert found.left_out == {"waits": "not finished within the time limit; give a larger --seconds"}
    with pytest.raises(InputError, match="float32: not finished within the time limit; give a larger --seconds"):
        compare(source, seconds=0.01, engines=[ENGINES[0], waits])


@pytest.mark.slow
def test_every_engine_is_compared_and_the_table_fits_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    source = folder_of(tmp_path / "m" / "model", task={"kind": "single"})
    found = compare(source, seconds=600)
    assert [one.name for one in found.measured] == [engine.name for engine in ENGINES] and not found.left_out
    differences = {one.name: one.difference["largest"] for one in found.measured}
    assert differences.pop("float32") == 0 and all(differences.values())
    assert differences["ONNX float32"] < 1e-4 < differences["ONNX int8"]
    main(["export", str(source), "--compare", "--seconds", "600"])
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown[:-7])) <= 80 and any("bertworks serve" in line for line in shown)


@pytest.mark.parametrize(("certificate", "message"), [("{}", "is an export"), ("", r"config\.json")])
def test_only_model_folders_are_compared(tmp_path, certificate, message, capfd):
    if certificate:
        (tmp_path / "certificate.json").write_text(certificate)
    with pytest.raises(InputError, match=message):
        compare(tmp_path)
    assert "preparing" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "line",
    ["MODEL --compare --out OUT", "MODEL --seconds 9 --out OUT", "MODEL --verify MODEL", "--verify OUT --texts T", ""],
)
def test_flags_of_another_mode_are_refused(line, tmp_path):
    with pytest.raises(SystemExit):
        main(["export", *line.replace("MODEL", str(tmp_path)).split()])
