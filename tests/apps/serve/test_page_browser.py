"""The server's page in Chromium: every tab, both languages, light and dark, wide and narrow, with hostile texts.

Run with -m browser. The models are tiny and know nothing; what they answer is tested elsewhere.
"""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

import bertworks
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import ServedModel
from bertworks.checkpoint.folder import save_folder
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support.browser import CONTRAST
from support.served import serving

pytestmark = pytest.mark.browser
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SHAPE |= {"max_position_embeddings": 128}
EVIL = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
TABS = {
    "masked": ["masks", "next", "similar", "attention"],
    "labels": ["labels", "similar", "attention"],
    "tags": ["entities", "similar", "attention"],
    "span": ["answer", "similar", "attention"],
    "choice": ["choose", "similar", "attention"],
}
HEADS = {  # head, labels, task
    "labels": ("classifier", [EVIL, "neutral", "긍정"], {"kind": "single"}),
    "tags": ("tagger", ["O", "B-<b>PER</b>", "I-<b>PER</b>", "B-LOC", "I-LOC"], None),
    "span": ("span", None, {"kind": "span", "version_2": True}),
    "choice": ("choice", None, {"kind": "choice"}),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server of a model for each head, with a vocabulary made of the page's own examples."""
    folder = tmp_path_factory.mktemp("page")
    texts = (Path(bertworks.__file__).parent / "apps" / "serve" / "page" / "texts.js").read_text(encoding="utf-8")
    tokenizer = Tokenizer.train(texts.split("\n") * 2, TokenizerConfig(vocab_size=1500))
    shape = ModelConfig(vocab_size=tokenizer.vocab_size, **SHAPE)
    save_folder(folder / "masked", build_model(shape, seed=1), tokenizer)
    for name, (head, labels, task) in HEADS.items():
        model = build_model(shape, (head,), labels=len(labels or "xx"), seed=3)
        model.heads[head].weight.data.mul_(20)
        save_folder(folder / name, model, folder / "masked", labels=labels, task=task)
    models = {name: ServedModel.load(f"{name}={folder / name}") for name in TABS}
    with serving(models, ServeConfig(root_path="/bert")) as found:
        yield found


class Visit:
    """A page in one language, colour scheme and width, and what it did."""

    def __init__(self, chromium, address, language="en", scheme="light", width=1280, below=""):
        locale = {"en": "en-US", "ko": "ko-KR"}[language]
        self.context = chromium.new_context(
            locale=locale, color_scheme=scheme, viewport={"width": width, "height": 844}, reduced_motion="reduce"
        )
        self.page, self.address, self.width = self.context.new_page(), address, width
        self.errors, self.asked, self.models = [], [], set()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self.note)
        self.page.goto(address + below)  # the server removes its root path itself, as a proxy may
        self.page.wait_for_selector("[role=tab]")

    def note(self, request):
        """Remember where the page asked, and which model."""
        self.asked.append(request.url)
        if request.method == "POST":
            in_path = re.search("/models/([^/]+)/", request.url)
            self.models.add(in_path[1] if in_path else request.post_data_json.get("model"))

    def go(self, model, tab):
        """Show a tab and wait for its answer."""
        self.page.evaluate(f"location.hash = '#{model}/{tab}'")
        self.page.wait_for_selector(f"#tab-{tab}[aria-selected=true]")
        self.settle()

    def settle(self):
        self.page.wait_for_selector("[aria-busy=true]", state="detached")
        self.page.wait_for_selector(".result .body > *, .result .empty, .explain")

    def check(self):
        """Nothing is wrong with what is shown."""
        assert self.errors == []
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width
        assert all(url.startswith((self.address, "data:")) for url in self.asked), self.asked
        assert self.page.evaluate("window.hit") is None


@pytest.fixture
def visit(chromium, address):
    with contextlib.ExitStack() as opened:

        def start(*view):
            found = Visit(chromium, address, *view)
            opened.callback(found.context.close)
            return found

        yield start


@pytest.mark.parametrize(
    "view", [("en", "light", 1280), ("ko", "dark", 390)], ids=lambda view: "-".join(map(str, view))
)
def test_every_tab_answers_in_every_view(visit, view):
    found = visit(*view)
    page = found.page
    assert page.evaluate("document.documentElement.lang") == view[0]
    for model, tabs in TABS.items():
        found.settle()
        found.models.clear()
        for tab in tabs if model == "masked" else tabs[:1]:
            found.go(model, tab)
            assert page.locator(".error").count() == 0, page.locator(".error").all_inner_texts()
            assert page.evaluate("[...document.querySelectorAll('[role=tab]')].map(tab => tab.id.slice(4))") == tabs
            korean = re.search("[가-힣]", page.locator(".lead h2").inner_text())
            assert bool(korean) == (view[0] == "ko")
            found.check()
            assert page.evaluate(CONTRAST) == [], (model, tab)
        assert found.models == {model}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_errors_are_in_the_language_of_the_page(visit, language):
    """A refused request, and a link to a model that is missing; a message of the server is marked as English."""
    found = visit(language, "light", 1280, "/bert/")
    page = found.page
    found.go("labels", "labels")
    busy = {"status": 429, "json": {"error": "12.0 seconds have queued"}, "headers": {"Retry-After": "7"}}
    page.route("**/pipeline/**", lambda route: route.fulfill(**busy))
    page.click("button.run")
    page.wait_for_selector(".error[role=alert]")
    shown = [page.locator(".error").inner_text()]
    page.evaluate("location.hash = '#gone/labels'")
    page.wait_for_selector("main > .error")
    shown.append(page.locator("main > .error").inner_text())
    assert all(word in shown[0] for word in ("12.0 seconds", "7")) and "gone" in shown[1]
    assert all(bool(re.search("[가-힣]", text)) == (language == "ko") for text in shown)
    assert page.locator(".error q:not([lang=en])").count() == 0 and page.evaluate(CONTRAST) == []


def fill(page, values):
    for name, value in values.items():
        page.fill(f"[name={name}]", value)
    page.click("button.run")


def test_markup_in_texts_labels_and_errors_stays_text(visit):
    found = visit()
    page = found.page
    asked = {
        ("masked", "masks"): {"text": f"{EVIL} [MASK]"},
        ("masked", "next"): {"first": EVIL, "follows": EVIL},
        ("labels", "labels"): {"text": EVIL},
        ("tags", "entities"): {"text": f"Angela Merkel {EVIL} Berlin"},
        ("span", "answer"): {"question": EVIL, "context": f"{EVIL} in Berlin"},
        ("choice", "choose"): {"text": EVIL, "choices": f"{EVIL}\n{EVIL} b"},
        ("masked", "similar"): {"texts": f"{EVIL}\n{EVIL} b"},
        ("masked", "attention"): {"text": EVIL, "second": EVIL},
    }
    for (model, tab), values in asked.items():
        found.go(model, tab)
        fill(page, values)
        found.settle()
        assert page.locator("#main img, #main script, #main iframe").count() == 0
        assert page.locator(".error").count() == 0, (tab, page.locator(".error").all_inner_texts())
        found.check()
    found.go("labels", "labels")
    assert EVIL in page.locator(".result").inner_text()  # the name of a label
    page.route("**/embed", lambda route: route.fulfill(status=422, json={"error": EVIL}))
    found.go("masked", "similar")
    page.click("button.run")
    assert EVIL in page.locator(".error").inner_text()
    assert page.evaluate("window.hit") is None


# ---- what a user of the page needs besides answers


@pytest.fixture
def address_with_key(head_folders):
    with serving({"it's": ServedModel.load(f"it's={head_folders['nli']}")}, key="correct-horse") as found:
        yield found


HARD = 'it\'s a "test" of $HOME `x` \\n, 😀 한국어,\nin two lines'


def test_the_shown_commands_give_the_shown_answer(chromium, address_with_key, monkeypatch):
    """The page opens for its password alone, and the commands read the key from the environment."""
    import httpx

    monkeypatch.setitem(sys.modules, "requests", httpx)  # its `post` has the same arguments
    monkeypatch.setenv("BERTWORKS_API_KEY", "correct-horse")
    with contextlib.ExitStack() as opened:
        pages = []
        for password in ("wrong-horse", "correct-horse"):
            login = {"username": "any", "password": password}
            pages.append(opened.enter_context(chromium.new_context(http_credentials=login)).new_page())
        assert pages[0].goto(address_with_key).status == 401
        page = pages[1]
        page.goto(address_with_key)
        page.wait_for_selector(".api")
        fill(page, {"text": HARD, "second": HARD[::-1]})
        page.click(".api summary")
        page.wait_for_selector(".api .segmented")
        shown = []
        for number in range(3):
            page.locator(".api .segmented button").nth(number).click()
            shown.append(page.locator(".api pre").text_content())
        curl, python, answer = shown
        printed: list = []
        exec(python, {"print": printed.append})
        done = subprocess.run(["bash", "-c", f"{curl} -s"], capture_output=True, text=True, check=True)
    scores = [[one["score"] for one in rows[0]] for rows in (json.loads(answer), json.loads(done.stdout), printed[0])]
    assert len(scores[0]) == 3 and scores[1:] == [pytest.approx(scores[0], rel=1e-2)] * 2
