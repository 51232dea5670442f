"""The page of `bertworks probe explain` in Chromium: its numbers, both languages, widths, themes, contrast."""

import pytest
import torch
from test_explain import predictor_of

from bertworks.apps.probing.explanation import explain
from bertworks.apps.probing.explanation_page import explain_page
from bertworks.tokenizer import Tokenizer
from support.browser import CONTRAST
from support.tiny_task import tiny_folder

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    """A model with uneven weights."""
    folder = tiny_folder(tmp_path_factory.mktemp("page") / "model")
    return predictor_of(folder, Tokenizer.load(folder), ("mlm", "nsp"), num_hidden_layers=2)


def opened(chromium, data, tmp_path, width=1280, theme="light", locale="en-US"):
    """The page after its script has run. An error of a script or a request fails the test."""
    file = tmp_path / "page.html"
    file.write_text(explain_page(data), encoding="utf-8")
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, locale=locale)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda request: None if request.url == file.as_uri() else wrong.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=20_000)
    assert wrong == []
    return page


def test_the_page_shows_the_models_numbers(chromium, predictor, tmp_path):
    data = explain(predictor, "good film , abc", "bad d")
    page, encoding = opened(chromium, data, tmp_path), predictor.tokenizer.encode("good film , abc", "bad d")
    page.select_option("select >> nth=0", index=1)
    page.select_option("select >> nth=1", index=1)
    page.click(".ex-tokens button >> nth=4")
    inputs = torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids])
    with torch.no_grad():
        weights = predictor.loaded.model.encoder(*inputs, attentions=True).attentions[1][0, 1, 4]
    shown = [float(text.split()[0]) for text in page.locator("td.ex-w .ex-number").all_inner_texts()]
    assert shown == pytest.approx((100 * weights).tolist(), abs=0.6) and max(shown) > 1.5 * min(shown)
    assert page.locator(".ex-query .ex-name").first.inner_text() == "query q of “a”"
    best = int(weights.argmax())
    assert f"“a” looks most at “{encoding.tokens[best]}” (" in page.inner_text(".ex-readout")
    page.hover(".ex-steps tbody tr >> nth=2")
    assert "Worked out: “a” looks at “film”" in page.inner_text(".ex-worked")
    assert f"= {100 * weights[2]:.1f} %" in page.inner_text(".ex-worked")
    score = data["next_sentence"]["score"]
    assert f"{100 * score:.0f} %" in page.inner_text(".ex-part-next_sentence") or score < 0.1
    assert page.locator(".ex-card").count() == len(data["masks"])


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
def test_width_contrast_and_languages(chromium, predictor, tmp_path, width, theme):
    data = explain(predictor, "good film , abc " * 4, "bad d " * 4)
    for locale, tokens, switch in (("en-US", "Tokens", "한국어"), ("ko-KR", "토큰", "English")):
        page = opened(chromium, data, tmp_path, width, theme, locale)
        assert page.evaluate("document.documentElement.lang") == locale[:2]
        assert page.locator("h2").first.inner_text().endswith(tokens) and page.inner_text("#language") == switch
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(CONTRAST) == []
        page.click("#language")
        assert not page.locator("h2").first.inner_text().endswith(tokens)
        assert page.evaluate("document.documentElement.scrollWidth") == width
