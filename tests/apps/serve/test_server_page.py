"""The page at `/` and the routes that only it needs: complete, strict about where it asks, and equal to the library."""

import base64
import hashlib
import json
import re

import pytest

pytest.importorskip("fastapi")

from bertworks.apps.probing.explanation import explain
from bertworks.apps.serve import page as page_module
from bertworks.apps.serve import server
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.page import page
from bertworks.apps.serve.status import languages_of
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support.served import client_of
from support.tiny_task import tiny_folder

TWO = ["a good film , good", "bad good ."]


@pytest.fixture(scope="module")
def client(make_client):
    return make_client("mlm")


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    parts = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    (script,), (style,) = (re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL) for tag in ("script", "style"))
    assert parts["default-src"] == "'none'" and parts["connect-src"] == "'self'"
    assert parts["script-src"] == hashed(script) and parts["style-src"] == hashed(style)
    assert "@@" not in answer.text


def test_the_page_names_no_other_host_and_makes_no_markup_of_texts():
    html = page().html.replace("http://www.w3.org/2000/svg", "")  # the name of a namespace
    assert not re.findall(r"https?://|//[a-z]+\.[a-z]|innerHTML|outerHTML|insertAdjacentHTML|document\.write", html)
    assert not re.findall(r"eval\(|new Function|srcdoc", html)


def words(language):
    """The keys of a language's texts."""
    text = (page_module.files("bertworks.apps.serve") / "page" / "texts.js").read_text(encoding="utf-8")
    block = re.search(rf"^  {language}: {{(.*?)^  }},", text, re.DOTALL | re.MULTILINE)[1]
    return re.findall(r"(\w+): \"((?:[^\"\\]|\\.)*)\"", block)


def test_every_text_that_the_page_shows_exists_in_both_languages():
    english, korean = (dict(words(language)) for language in ("en", "ko"))
    assert len(english) > 60 and english.keys() == korean.keys()
    for key, text in english.items():
        assert sorted(re.findall(r"{\d}", text)) == sorted(re.findall(r"{\d}", korean[key])), key
        assert text != korean[key] or key == "keys"  # the name of two keys of the keyboard
    used = re.findall(r"say\((?:[^()\"]*\? )?\"(\w+)\"(?: : \"(\w+)\")?", page().html)
    assert {name for pair in used for name in pair if name} <= english.keys()


def test_examples_of_a_run_are_shown_only_if_requested(tmp_path, monkeypatch, capsys):
    tiny_folder(tmp_path / "run" / "model")
    rows = [{"text": "ein Satz", "pair": "noch einer", "label": "a"}, {"question": "q?", "context": "c"}]
    file = tmp_path / "run" / "examples.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    served = []
    monkeypatch.setattr(server, "serve", lambda app, *_: served.append(app.state.service.models))
    for requested, folder, expected in ((True, "run", rows), (False, "run", []), (True, "run/model", [])):
        server.run_server([f"x={tmp_path / folder}"], ServeConfig(port=0, examples=requested))
        answer = client_of(served[-1]).get("/models").json()
        assert answer["models"][0]["examples"] == expected and answer["key"] is False
        assert ("its page shows development examples" in capsys.readouterr().out) == bool(expected)


def test_models_say_what_they_can_and_in_which_languages(client):
    (found,) = client.get("/models").json()["models"]
    assert found["name"] == "mlm" and {"fill_mask", "embed", "explain"} <= set(found["can"])
    assert found["languages"] == []  # a vocabulary of letters
    korean = Tokenizer.train(["선생님은 창문을 열고 편지를 읽었다."] * 5, TokenizerConfig(vocab_size=100))
    assert languages_of(korean) == ["ko"]


# ---- the next sentence and explanations


def test_the_next_sentence_and_explanations_are_the_librarys(client, predictors):
    predictor = predictors["mlm"]
    answer = client.post("/next-sentence", json={"a": TWO[0], "b": TWO[1]})
    assert answer.json() == predictor.next_sentence(*TWO)
    found = client.post("/explain", json={"a": TWO[0], "b": TWO[1]})
    assert found.json() == json.loads(json.dumps(explain(predictor, *TWO) | {"model": "mlm"}))
    assert found.headers["x-compute-tokens"] == str(len(found.json()["tokens"]))
    alone = client.post("/explain", json={"a": "good"}).json()
    assert alone["pair"] is None and "[CLS]" in [token["text"] for token in alone["tokens"]]
