"""The page at `/` and the routes that only it needs: complete, strict about where it asks, and equal to the library."""

import base64
import hashlib
import json
import re
from typing import get_args

import numpy as np
import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from bertworks.apps.probing.config import WordConfig
from bertworks.apps.probing.explanation import explain
from bertworks.apps.probing.model import ProbedModel
from bertworks.apps.probing.similarity import compare_word
from bertworks.apps.serve import page as page_module
from bertworks.apps.serve.app import create_app
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import ServedModel
from bertworks.apps.serve.page import languages_of, page
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.tasks.kinds import KINDS
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig
from bertworks.training.objectives import ObjectiveName
from support.tiny_task import tiny_folder

TWO = ["a good film , good", "bad good ."]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return Predictor(tiny_folder(tmp_path_factory.mktemp("page") / "model"), device="cpu")


def client_of(predictor, key=None, **settings):
    app = create_app({"tiny": ServedModel("tiny", predictor)}, ServeConfig(**settings), [key] if key else None)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else(predictor):
    answer = client_of(predictor).get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    parts = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    (script,), (style,) = (re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL) for tag in ("script", "style"))
    assert parts["default-src"] == "'none'" and parts["connect-src"] == "'self'"
    assert parts["script-src"] == hashed(script) and parts["style-src"] == hashed(style)
    assert "@@" not in answer.text


def test_the_page_names_no_other_host_and_makes_no_markup_of_texts():
    html = page().html.replace("http://www.w3.org/2000/svg", "")  # the name of a namespace
    assert not re.findall(r"https?://|//[a-z]+\.[a-z]", html)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc", html)


def words(language):
    """The keys of a language's texts."""
    text = (page_module.files("bertworks.apps.serve") / "page" / "texts.js").read_text(encoding="utf-8")
    block = re.search(rf"^  {language}: {{(.*?)^  }},", text, re.DOTALL | re.MULTILINE)[1]
    return re.findall(r"(\w+): \"((?:[^\"\\]|\\.)*)\"", block)


def test_both_languages_have_the_same_texts_with_the_same_gaps():
    english, korean = (dict(words(language)) for language in ("en", "ko"))
    assert len(english) > 60 and english.keys() == korean.keys()
    for key, text in english.items():
        assert sorted(re.findall(r"{\d}", text)) == sorted(re.findall(r"{\d}", korean[key])), key
    same = {key for key in english if english[key] == korean[key]}
    assert same == {"keys"}, same  # the name of two keys of the keyboard


def test_every_text_that_is_shown_exists_and_every_text_is_shown():
    script = page().html
    used = set(re.findall(r"say\((?:[^()\"]*\? )?\"(\w+)\"(?: : \"(\w+)\")?", script))
    names = {name for pair in used for name in pair if name}
    assert names <= dict(words("en")).keys(), names - dict(words("en")).keys()
    unused = [key for key in dict(words("en")) if not re.search(rf"[\"`.*]{key}[\"`]", script)]
    tabs = set(re.findall(r"\bid: \"(\w+)\"", script))
    unused = [key for key in unused if not any(key in (tab, f"{tab}Why", f"{tab}Run") for tab in tabs)]
    families = [start for start in ("metric_", "error_", "errorWhy_") if f"`{start}${{" in script]
    assert [key for key in unused if not key.startswith(tuple(families))] == []


def test_every_metric_has_a_name_in_both_languages():
    metrics = {metric for kind in KINDS.values() for metric in kind.metrics}
    metrics |= {"loss", "task_loss", "soft_loss", "cosine_loss"}
    terms = {term for name in get_args(ObjectiveName) for term in name.split("+")}
    metrics |= {f"{term}_{what}" for term in terms for what in ("loss", "accuracy")}
    for language in ("en", "ko"):
        known = dict(words(language))
        assert {f"metric_{metric}" for metric in metrics} <= known.keys(), language


def test_examples_are_read_from_the_folder_that_is_served(tmp_path):
    tiny_folder(tmp_path / "run" / "model")
    rows = [{"text": "ein Satz", "pair": "noch einer", "label": "a"}, {"question": "q?", "context": "c"}]
    file = tmp_path / "run" / "examples.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for folder, expected in ((tmp_path / "run", rows), (tmp_path / "run" / "model", [])):
        app = create_app({"x": ServedModel.load(f"x={folder}")})
        answer = TestClient(app, base_url="http://127.0.0.1").get("/models").json()
        assert answer["models"][0]["examples"] == expected and answer["key"] is False
    file.write_text('{"text": 3}\n')
    with pytest.raises(InputError, match=r"examples.jsonl, line 1: text = 3; expected a text"):
        ServedModel.load(f"x={tmp_path / 'run'}")


def test_models_say_what_they_can_and_in_which_languages(predictor):
    (found,) = client_of(predictor).get("/models").json()["models"]
    assert found["name"] == "tiny" and {"fill_mask", "embed", "states"} <= set(found["can"])
    assert found["languages"] == []  # a vocabulary of letters
    korean = Tokenizer.train(["선생님은 창문을 열고 편지를 읽었다."] * 5, TokenizerConfig(vocab_size=100))
    assert languages_of(korean) == ["ko"]
    assert languages_of(Tokenizer.load(predictor.folder)) == [] and len(SPECIAL_TOKENS) == 5


# ---- one word in two sentences


def test_a_word_is_compared_as_the_library_does(predictor):
    client = client_of(predictor)
    answer = client.post("/compare-word", json={"word": "good", "sentences": TWO})
    expected = compare_word(ProbedModel(predictor.folder, device="cpu"), "good", TWO, WordConfig())
    found = answer.json()
    assert found["layers"] == expected["layers"] and found["baseline_pairs"] == expected["baseline_pairs"]
    np.testing.assert_allclose(found["similarity"], expected["similarity"], atol=2e-6)
    np.testing.assert_allclose(found["baseline"], expected["baseline"], atol=2e-6)
    assert answer.headers["x-compute-tokens"] == str(found["tokens"])


def test_a_word_that_is_missing_is_refused_without_a_path(predictor):
    client = client_of(predictor)
    for word, sentences, status in (
        ("bad", ["good .", "a good"], 422),
        ("good", ["good"], 422),
        ("good", ["a good"] * 33, 422),
        ("good", ["a good " * 30] * 2, 413),
    ):
        answer = client.post("/compare-word", json={"word": word, "sentences": sentences})
        assert answer.status_code == status, answer.text
        assert str(predictor.folder) not in answer.text
    assert (
        "the word 'bad'" in client.post("/compare-word", json={"word": "bad", "sentences": ["good .", "a good"]}).text
    )


# ---- the next sentence and explanations


def test_the_next_sentence_and_explanations_are_the_librarys(predictor):
    client = client_of(predictor)
    answer = client.post("/next-sentence", json={"a": TWO[0], "b": TWO[1]})
    assert answer.json() == predictor.next_sentence(*TWO)
    found = client.post("/explain", json={"a": TWO[0], "b": TWO[1]})
    assert found.json() == json.loads(json.dumps(explain(predictor, *TWO) | {"model": "tiny"}))
    assert found.headers["x-compute-tokens"] == str(len(found.json()["tokens"]))
    alone = client.post("/explain", json={"a": "good"}).json()
    assert alone["pair"] is None and "[CLS]" in [token["text"] for token in alone["tokens"]]


# ---- curves


def records(count):
    train = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, count + 1)]
    return [*train, {"kind": "eval", "step": count, "loss": 0.5}]


def test_curves_follow_the_log(tmp_path, predictor):
    run = tmp_path / "first"
    client = client_of(predictor, run=run)
    assert client.get("/curves").json() == {"run": "first", "finished": False, "version": "", "records": []}
    run.mkdir()
    log = run / "log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records(3)))
    found = client.get("/curves").json()
    assert found["records"] == records(3) and not found["finished"]
    assert client.get("/curves", params={"seen": found["version"]}).json()["records"] is None
    log.write_text("".join(json.dumps(record) + "\n" for record in records(4)))
    assert client.get("/curves", params={"seen": found["version"]}).json()["records"] == records(4)
    (run / "results.json").write_text("{}")
    assert client.get("/curves").json()["finished"]
    log.write_text('{"kind": 3}\n')
    answer = client.get("/curves")
    assert answer.status_code == 424 and str(tmp_path) not in answer.text and "first/log.jsonl, line 1" in answer.text
    assert client.get("/models").json()["run"] is True
    assert client_of(predictor).get("/models").json()["run"] is False
    assert client_of(predictor).get("/curves").status_code == 404
