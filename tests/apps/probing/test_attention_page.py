"""The attention page: weights and statistics against direct computation, no text as markup, a real browser."""

import base64
import html.parser
import json
import math
import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest
import torch

from bertworks.apps.probing.attention import STATISTICS, attend, statistics
from bertworks.apps.probing.attention_page import page, quantised
from bertworks.apps.probing.model import ProbedModel
from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.cli import main
from bertworks.files import InputError
from support.tiny_task import tiny_folder

EVIL = '</script><script>document.body.dataset.evil="yes"</script> <img src=x onerror=alert(1)>'
EVIL += " @@DATA@@ @@SIZE@@ \u2028 &lt;"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("attention") / "model")


@pytest.fixture(scope="module")
def attention(folder):
    return attend(ProbedModel(folder, device="cpu"), "good film , a b", "bad c")


@pytest.fixture(scope="module")
def largest(attention):
    """BERT-BASE's 12 layers of 12 heads at 128 tokens; weights as uneven as those of trained heads."""
    scores = 2.5 * torch.randn(12, 12, 128, 128, generator=torch.Generator().manual_seed(1))
    tokens = ["[CLS]", *(f"token{i}" for i in range(1, 127)), "[SEP]"]
    more = {"weights": scores.softmax(-1).numpy(), "tokens": tokens, "segments": [0] * 128, "cut": 0}
    more["special"] = [token.startswith("[") for token in tokens]
    return type(attention)(**{**vars(attention), **more})


def data_of(text):
    """What the page has in its data element."""
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def stored(data):
    """(L, N, T, T) weights as the page's script reads them."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(data["weights"])), np.uint8)
    T = len(data["tokens"])
    return (raw.reshape(data["layers"], data["heads"], T, T) / 255.0) ** 2


# ---- numbers


@torch.no_grad()
def test_weights_are_those_of_the_encoder_and_come_back_from_the_page(folder, attention):
    encoding = load_tokenizer(folder).encode("good film , a b", "bad c")
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    encoder = load_encoder(folder)
    x = encoder.embeddings.norm(
        encoder.embeddings.word(ids)
        + encoder.embeddings.position.weight[: ids.shape[1]]
        + encoder.embeddings.token_type(types)
    )
    layer = encoder.layers[0]
    q, k = (project(x).view(1, -1, 2, 16).transpose(1, 2) for project in (layer.query, layer.key))
    np.testing.assert_allclose(attention.weights[0], (q @ k.transpose(2, 3) / 4).softmax(-1)[0], atol=1e-6)
    assert attention.weights.shape == (2, 2, 10, 10) and attention.segments == [0] * 7 + [1] * 3
    data = data_of(page(attention))
    assert data["tokens"] == encoding.tokens and data["segments"] == encoding.type_ids
    np.testing.assert_allclose(stored(data), attention.weights, atol=0.004)


def test_rounding_is_as_fine_as_the_page_says():
    weights = np.linspace(0, 1, 200_001, dtype=np.float32)
    back = (quantised(weights) / 255.0) ** 2
    assert np.abs(back - weights).max() <= 0.004
    assert np.abs(back - weights)[weights < 0.01].max() <= 0.0004


def test_statistics_by_hand(attention):
    found, tokens = statistics(attention), attention.tokens
    assert list(found) == ["entropy", "distance", "itself", "previous", "next", "[CLS]", "[SEP]"]
    assert set(found) == set(STATISTICS)
    T, rows = len(tokens), attention.weights[1][1].astype(float).tolist()
    expected = {
        "entropy": sum(-w * math.log(w) for row in rows for w in row) / T,
        "distance": sum(w * abs(i - j) for i, row in enumerate(rows) for j, w in enumerate(row)) / T,
        "itself": sum(rows[i][i] for i in range(T)) / T,
        "previous": sum(rows[i][i - 1] for i in range(1, T)) / (T - 1),
        "next": sum(rows[i][i + 1] for i in range(T - 1)) / (T - 1),
        "[CLS]": sum(row[0] for row in rows) / T,
        "[SEP]": sum(row[j] for row in rows for j in range(T) if tokens[j] == "[SEP]") / T,
    }
    assert tokens.count("[SEP]") == 2
    for name, value in expected.items():
        assert found[name][1, 1] == pytest.approx(value, abs=1e-6), name


def test_a_real_model_equals_transformers(minilm):
    transformers = pytest.importorskip("transformers")
    found = attend(ProbedModel(minilm, device="cpu"), "He sat on the bank.", "It was wet.")
    inputs = transformers.AutoTokenizer.from_pretrained(minilm)(
        "He sat on the bank.", "It was wet.", return_tensors="pt"
    )
    with torch.no_grad():
        theirs = transformers.BertModel.from_pretrained(minilm, attn_implementation="eager")(
            **inputs, output_attentions=True
        )
    np.testing.assert_allclose(found.weights, torch.cat(theirs.attentions), atol=1e-5)


# ---- the page


class Elements(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.names, self.attributes = [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs


def elements(text):
    parser = Elements()
    parser.feed(text)
    return parser.names


def test_no_text_becomes_markup(folder, attention):
    inside = ProbedModel(folder, device="cpu")
    evil = page(attend(inside, EVIL, max_length=32))
    assert elements(evil) == elements(page(attention))
    assert evil.count("<script") == 2 == evil.count("</script>") and "<img" not in evil
    tokens = attend(inside, "a", max_length=32)
    hostile = page(type(tokens)(**{**vars(tokens), "tokens": ["[CLS]", EVIL, "[SEP]"], "model": EVIL}))
    assert "<" not in hostile[hostile.index('id="data">') + 10 : hostile.index("</script>")]
    assert elements(hostile) == elements(evil) and data_of(hostile)["tokens"][1] == EVIL


def test_the_page_stands_alone_and_tells_its_size(attention):
    text = page(attention)
    parser = Elements()
    parser.feed(text)
    assert not [value for name, value in parser.attributes if name in ("src", "href")]
    assert "url(" not in text and "@import" not in text and "default-src 'none'" in text
    size = float(re.search(r"its size: ([\d.]+) MB", text)[1])
    assert size == pytest.approx(len(text.encode()) / 1e6, abs=0.005)


def test_bad_input(folder, tmp_path, capsys):
    inside = ProbedModel(folder, device="cpu")
    with pytest.raises(InputError, match="has no token"):
        attend(inside, " ")
    with pytest.raises(InputError, match="max_length = 99; expected 8 to 32"):
        attend(inside, "a", max_length=99)
    with pytest.raises(SystemExit):
        main(["probe", "attention", str(folder), "a", "--out", str(tmp_path / "x.png")])
    assert "expected a name that ends in .html" in capsys.readouterr().err
    main(["probe", "attention", str(folder), "a " * 60, "--out", str(tmp_path / "x" / "x.html")])
    assert "30 tokens did not fit" in capsys.readouterr().err
    assert data_of((tmp_path / "x" / "x.html").read_text())["cut"] == 30


# ---- in a browser


def opened(file, address=""):
    """The page's elements after its script has run."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs Chromium")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"]
    done = subprocess.run([*command, f"file://{file}{address}"], capture_output=True, text=True, timeout=120)
    assert 'data-ready="yes"' in done.stdout, done.stderr[-2000:]
    return done.stdout


def told(dom):
    """The list of tokens under the head, as [(token, place, share)]."""
    items = re.findall(r"<li><b[^>]*>(.*?)</b> \((\d+)\) ([\d.]+) %</li>", dom)
    return [(html.unescape(token), int(place), float(share)) for token, place, share in items]


@pytest.mark.browser
def test_chromium_shows_the_weights(attention, tmp_path):
    (tmp_path / "page.html").write_text(page(attention), encoding="utf-8")
    dom = opened(tmp_path / "page.html", "#2-1-4")
    row = attention.weights[1, 0, 4]
    best = np.argsort(-row, kind="stable")[:8]
    found = told(dom)
    assert len(found) == 8 and dom.count('aria-label="head ') == 4 and "Head 2-1" in dom
    assert sorted(share for *_, share in found) == pytest.approx(sorted(100 * row[best]), abs=0.6)
    for token, place, share in found:
        assert token == attention.tokens[place] and share == pytest.approx(100 * row[place], abs=0.6)
    assert f"{statistics(attention)['entropy'][1, 0]:.2f}</td>" in dom


def test_a_page_of_the_largest_model_is_small(largest):
    text = page(largest)
    assert 0.5e6 < len(text.encode()) < 3e6
    np.testing.assert_allclose(stored(data_of(text)), largest.weights, atol=0.004)


@pytest.mark.browser
def test_chromium_shows_the_largest_model(largest, tmp_path):
    (tmp_path / "page.html").write_text(page(largest), encoding="utf-8")
    dom = opened(tmp_path / "page.html", "#12-12-127")
    assert dom.count('aria-label="head ') == 144 and "Head 12-12" in dom
    row = largest.weights[11, 11, 127]
    assert next(place for _, place, _ in told(dom)) == row.argmax() and len(told(dom)) == 8


@pytest.mark.browser
def test_chromium_follows_the_keys(attention, tmp_path):
    press = (
        "document.body.dataset.ready = 'yes'; for (const key of ['ArrowRight', 'ArrowDown', 'j', 'j', 'm', 't'])"
        " dispatchEvent(new KeyboardEvent('keydown', { key }));"
    )
    text = page(attention)
    assert text.count('document.body.dataset.ready = "yes";') == 1
    (tmp_path / "page.html").write_text(text.replace('document.body.dataset.ready = "yes";', press), encoding="utf-8")
    dom = opened(tmp_path / "page.html")
    assert "Head 2-2" in dom and f"2-2: {attention.tokens[1]} (1) looks at" in dom
    assert '<html lang="en" class="dark"' in dom and re.search(r'id="map" hidden', dom)


@pytest.mark.browser
def test_chromium_runs_nothing_of_a_text(folder, tmp_path):
    tokens = attend(ProbedModel(folder, device="cpu"), EVIL, max_length=32)
    hostile = type(tokens)(**{**vars(tokens), "tokens": [EVIL] * len(tokens.tokens), "model": EVIL})
    (tmp_path / "page.html").write_text(page(hostile), encoding="utf-8")
    dom = opened(tmp_path / "page.html", "#1-1-3-lines")
    assert "data-evil" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL) and "<img" not in dom
    assert told(dom)[0][0] == EVIL
