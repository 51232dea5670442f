"""The pipelines of transformers give `Predictor`'s answers on our folders, with rotary positions or learned ones."""

import json

import numpy as np
import pytest
import torch

from bertworks.apps.export.folder import export
from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.folder import save_folder
from bertworks.inference.evaluation import Evaluation
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tasks.base import Example
from bertworks.tasks.kinds import own_task
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from conftest import tiny_texts

transformers = pytest.importorskip("transformers")
TEXTS = tiny_texts(12)
SHORT = [" ".join(text.replace(".", "").split()[:6]) for text in TEXTS]  # within the model's positions
LABELS = ["law", "sport", "war"]
TAGS = ["O", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=100))


@pytest.fixture(params=["rotary", "learned", "position-heads"])
def make(request, tokenizer, tmp_path):
    """A folder with these heads."""

    def folder(*heads, labels=None):
        shape = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
        config = ModelConfig(
            vocab_size=tokenizer.vocab_size,
            max_position_embeddings=128,
            initializer_range=0.3,
            position_embedding_type="rotary" if request.param == "rotary" else "learned",
            start="position-heads" if request.param == "position-heads" else "normal",
            **shape,
        )
        model = build_model(config, heads, labels=len(labels or ()), seed=3)
        generator = torch.Generator().manual_seed(3)  # the same numbers with every torch, unlike truncated ones
        for parameter in model.heads.parameters():
            torch.nn.init.normal_(parameter, std=0.5, generator=generator)
        save_folder(tmp_path / "model", model, tokenizer, labels=labels)
        return tmp_path / "model"

    return folder


def pipeline(task: str, folder, **more):
    return transformers.pipeline(task, model=str(folder), device="cpu", **more)


def test_the_tokenizer_that_it_finds(make, tokenizer):
    theirs = transformers.AutoTokenizer.from_pretrained(make("mlm", "nsp"))
    pair = theirs(SHORT[0], SHORT[1])
    ours = tokenizer.encode(SHORT[0], SHORT[1])
    assert (pair["input_ids"], pair["token_type_ids"]) == (list(ours.ids), list(ours.type_ids))


def test_fill_mask(make):
    folder = make("mlm", "nsp")
    texts = [f"{text} [MASK] morning." for text in SHORT]
    ours, fill = Predictor(folder, device="cpu"), pipeline("fill-mask", folder)
    for text, (candidates,) in zip(texts, ours.fill_mask(texts, top_k=4), strict=True):
        expected = fill(text, top_k=4)
        assert [found["id"] for found in candidates] == [one["token"] for one in expected]
        np.testing.assert_allclose(
            [one["score"] for one in candidates], [one["score"] for one in expected], rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_text_classification(pairs, make):
    folder = make("classifier", labels=LABELS)
    classify = pipeline("text-classification", folder)
    seconds = SHORT[::-1] if pairs else None
    found = Predictor(folder, device="cpu").classify(SHORT, pairs=seconds)
    given = [{"text": a, "text_pair": b} for a, b in zip(SHORT, seconds, strict=True)] if seconds else SHORT
    for ours, theirs in zip(found, classify(given), strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)


PROBLEMS = [
    (["relevance"], None),
    (["relevance"], "multi_label_classification"),
    (["relevance"], "regression"),
    (LABELS, None),
    (LABELS, "multi_label_classification"),
]


@pytest.fixture
def foreign(tokenizer, tmp_path):
    """A classifier of other software with these labels: config.json has no word of ours."""

    def folder(labels, **settings):
        names = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
        torch.manual_seed(1)
        config = transformers.BertConfig(vocab_size=tokenizer.vocab_size, **shape, **names, **settings)
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "theirs")
        tokenizer.save(tmp_path / "theirs")
        return tmp_path / "theirs"

    return folder


@pytest.mark.parametrize("form", ["theirs", "converted", "exported"])
@pytest.mark.parametrize(("labels", "problem"), PROBLEMS)
def test_the_scores_of_a_classifier_of_other_software(foreign, tmp_path, labels, problem, form):
    folder = source = foreign(labels, problem_type=problem)
    if form == "converted":
        convert(source, folder := tmp_path / "ours")
        classify = pipeline("text-classification", folder, top_k=None)  # what is written means the same
    else:
        classify = pipeline("text-classification", source, top_k=None)
    if form == "exported":
        pytest.importorskip("onnxruntime")
        export(source, folder := tmp_path / "onnx")
    found = Predictor(folder, device="cpu").classify(SHORT[:2], SHORT[2:4], all_scores=True)
    theirs = classify([{"text": a, "text_pair": b} for a, b in zip(SHORT[:2], SHORT[2:4], strict=True)])
    for ours, expected in zip(found, theirs, strict=True):
        assert ours["scores"] == pytest.approx({one["label"]: one["score"] for one in expected}, abs=1e-4)
        assert problem == "multi_label_classification" or ours["label"] == expected[0]["label"]


@pytest.mark.parametrize("stored", ["file", "sentence_transformers", "sbert_ce_default_activation_function"])
@pytest.mark.parametrize(("labels", "activation"), [(["a"], "Identity"), (["a"], "Sigmoid"), (LABELS, "Sigmoid")])
def test_the_scores_of_a_cross_encoder(foreign, tmp_path, labels, activation, stored):
    library = pytest.importorskip("sentence_transformers", reason="needs the package sentence-transformers")
    function = getattr(torch.nn, activation)()
    theirs = library.CrossEncoder(str(foreign(labels)), activation_fn=function, device="cpu")
    theirs.save_pretrained(str(tmp_path / "cross"))
    if stored != "file":  # as versions before 6 write it
        for file in tmp_path.glob("cross/*sentence*"):
            file.unlink()
        (tmp_path / "cross/modules.json").unlink(missing_ok=True)
        name = f"{type(function).__module__}.{activation}"
        config = json.loads((tmp_path / "cross/config.json").read_text())
        config[stored] = {"activation_fn": name} if stored == "sentence_transformers" else name
        (tmp_path / "cross/config.json").write_text(json.dumps(config))
    ours = Predictor(tmp_path / "cross", device="cpu").classify(SHORT[:2], SHORT[2:4], all_scores=True)
    expected = theirs.predict([*zip(SHORT[:2], SHORT[2:4], strict=True)]).reshape(2, -1)
    if stored == "file":
        pytest.importorskip("onnxruntime")
        export(tmp_path / "cross", tmp_path / "onnx")
        exported = Predictor(tmp_path / "onnx").classify(SHORT[:2], SHORT[2:4], all_scores=True)
        np.testing.assert_allclose([[*one["scores"].values()] for one in exported], expected, atol=1e-4)
    np.testing.assert_allclose([[*one["scores"].values()] for one in ours], expected, atol=1e-5)


@pytest.mark.parametrize("problem", [None, "regression"])
def test_numbers_are_judged_by_what_a_single_output_answers(foreign, problem):
    folder = foreign(["score"], problem_type=problem)
    task = own_task("regression", ("a", "b"), "label")
    rows = [Example(a, b, str(i % 3)) for i, (a, b) in enumerate(zip(SHORT[:5], SHORT[5:10], strict=True))]
    evaluation = Evaluation.prepare(Predictor(folder).loaded, task, rows)
    answers = Predictor(folder).classify(SHORT[:5], SHORT[5:10])
    assert evaluation.scores()[:, 0].tolist() == pytest.approx([one["score"] for one in answers], abs=1e-5)


def test_token_classification(make):
    folder = make("tagger", labels=TAGS)
    tag = pipeline("token-classification", folder, aggregation_strategy="first")
    found = Predictor(folder, device="cpu").tag(SHORT)
    assert sum(map(len, found)) > 5
    for ours, theirs in zip(found, tag(SHORT), strict=True):
        expected = [(e["entity_group"], e["start"], e["end"]) for e in theirs if e["entity_group"] != "O"]
        assert [(e["type"], e["start"], e["end"]) for e in ours] == expected


@pytest.mark.parametrize("heads", [(), ("mlm", "nsp")], ids="+".join)
def test_features_and_sentence_vectors(heads, make):
    folder = make(*heads)
    ours = Predictor(folder, device="cpu")
    extract = pipeline("feature-extraction", folder)
    vectors = [np.array(rows[0]) for rows in extract(SHORT)]  # (L, D) each, special tokens too
    np.testing.assert_allclose(ours.embed(SHORT), [v.mean(0) for v in vectors], rtol=0, atol=1e-5)
    np.testing.assert_allclose(ours.embed(SHORT, pooling="cls"), [v[0] for v in vectors], rtol=0, atol=1e-5)
    library = pytest.importorskip("sentence_transformers", reason="needs the package sentence-transformers")
    np.testing.assert_allclose(
        library.SentenceTransformer(str(folder), device="cpu").encode(SHORT), ours.embed(SHORT), rtol=0, atol=1e-5
    )
