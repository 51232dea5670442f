"""Every head in several families, int8, other software's view of the folder, and the comparison of engines."""

import multiprocessing
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertworks.apps.export.certificate import verify
from bertworks.apps.export.comparison import ENGINES, Comparison, Engine, Measured, compare, table
from bertworks.apps.export.folder import export
from bertworks.apps.export.samples import Sample
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import ServedModel
from bertworks.apps.serve.service import Service
from bertworks.checkpoint.pooling import Pooling, write_pooling
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.exported import OnnxFile
from bertworks.inference.predictor import Predictor
from support.encoder_options import ALBERT, OPTIONS
from support.export_folders import LONG, ONE, TEXTS, folder_of

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

FAMILIES = {
    "bert": ONE,
    "roberta": replace(ONE, family="roberta", position_offset=1, type_vocab_size=1, max_position_embeddings=33),
    "albert": replace(ONE, **ALBERT, hidden_act="gelu_new"),
    "distilbert": replace(ONE, **OPTIONS["distilbert"]),
    "rotary": replace(ONE, **OPTIONS["rotary"]),
    "left": replace(ONE, direction="left"),
    "modernbert": replace(ONE, num_hidden_layers=2, classifier_pooling="mean", **OPTIONS["modernbert"]),
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
        write_pooling(folder, Pooling("max", True, 20, prompt="a "), 16)
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
        models = [ServedModel("model", predictor) for predictor in (ours, theirs)]
        assert list(models[1].steps) == ["fill_mask", "embed", "next_sentence"]
        assert [Service({"model": model}, ServeConfig()).batch_tokens for model in models] == [512, 1]
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


# ---- int8


@pytest.mark.heavy
@pytest.mark.parametrize("head", ["classifier", "mlm"])
def test_int8_is_close(tmp_path, head):
    source = folder_of(tmp_path / "m" / "model", replace(ONE, hidden_size=32), heads=(head,), scale=5.0)
    certificate = export(source, tmp_path / "out", "int8")
    assert {*certificate["graph"]["outputs"].values()} == {"onnx/model_quantized.onnx"}
    assert [path.name for path in (tmp_path / "out/onnx").iterdir()] == ["model_quantized.onnx"]
    assert verify(tmp_path / "out")["largest"] == pytest.approx(certificate["difference"]["largest"], rel=0.01)
    expected, found = (Sample.of(Predictor(one), TEXTS).scores() for one in (source, tmp_path / "out"))
    # not float32, and not something else; a processor without VNNI saturates sums of two products
    assert 1e-5 < (expected - found).abs().max() < 0.5 * expected.abs().max()
    assert b"DynamicQuantizeLinear" in (tmp_path / "out/onnx/model_quantized.onnx").read_bytes()


# ---- other software


@pytest.mark.heavy
def test_sentence_transformers_takes_the_graph_as_it_is(tmp_path):
    """Its own check says that nothing is left to export; its pooling of our states gives our vectors."""
    utils = pytest.importorskip("sentence_transformers.backend.utils")
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer

    folder = folder_of(tmp_path / "m" / "model", heads=())
    write_pooling(folder, Pooling("mean", True, 20), 16)
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


@pytest.mark.parametrize(
    ("speedups", "equal", "expected"),
    [
        ([3.0, 3.3, 2.9], 0.995, "bfloat16"),
        ([3.0, 3.3, 2.9], 0.98, "ONNX int8"),  # too many other answers
        ([3.0, 3.3, 2.1], 0.995, "bfloat16"),
        ([1.9, 2.0, 1.8], 0.995, "ONNX int8"),
        ([1.9, 2.2, 1.8], 0.995, "bfloat16"),  # the rounds overlap
    ],
)
def test_the_simplest_of_the_fastest_engines_is_recommended(speedups, equal, expected):
    def measured(number, speedups, equal=1.0):
        single = [9.0, 3.0 - number / 10, 0.1]
        return Measured(ENGINES[number], {"equal_answers": equal, "answers": 24}, speedups, speedups, single)

    engines = [measured(0, [1.0]), measured(1, speedups, equal), measured(3, [2.1, 2.4, 2.2])]
    assert Comparison(engines, {}, 24, Path("runs/a")).recommended.engine.name == expected
    assert Comparison([*engines[:1], measured(1, [0.9, 1.2])], {}, 24, Path()).recommended.engine.name == "float32"
    assert Comparison(engines, {}, 24, Path()).quickest.engine.name == "ONNX int8"
    engines[2].difference["equal_answers"] = 0.98
    quickest = Comparison(engines, {}, 24, Path()).quickest.engine.name
    assert quickest == ("bfloat16" if equal > 0.99 else "float32")


@pytest.mark.heavy
def test_engines_are_compared_within_the_time(tmp_path, capsys, monkeypatch):
    source = folder_of(tmp_path / "m" / "model", task={"kind": "single"})
    waits = Engine("waits", "", precision="waits")
    statuses = []  # of the measuring process, when it is killed in case it still runs
    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "kill", lambda self: statuses.append(self.exitcode))
    found = compare(source, seconds=60, engines=[*ENGINES[:2], waits])
    assert statuses == [0]  # it ended by itself, and left no semaphores behind
    first, second = found.measured
    assert first.difference["largest"] == 0 < second.difference["largest"] < 0.5
    assert len(first.throughput) == len(second.speedups) == 5 and {*first.speedups} == {1.0}
    assert len(second.single) == 100 and "precision = 'waits'" in found.left_out["waits"]
    notes = table(found).notes
    assert (
        notes[-1].strip() == f"bertworks serve {source} --precision {found.recommended.engine.precision}"
        and f"{found.quickest.engine.name} has the shortest time of one text" in notes[-2]
        and "Left out: waits" in notes[0]
    )
    assert "measuring bfloat16" in capsys.readouterr().err
    with pytest.raises(InputError, match="float32: not finished within the time limit; give a larger --seconds"):
        compare(source, seconds=0.01)


@pytest.mark.parametrize(
    "line",
    ["MODEL --compare --out OUT", "MODEL --seconds 9 --out OUT", "MODEL --verify MODEL", "--verify OUT --texts T", ""],
)
def test_flags_of_another_mode_are_refused(line, tmp_path):
    with pytest.raises(SystemExit):
        main(["export", *line.replace("MODEL", str(tmp_path)).split()])
