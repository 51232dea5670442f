"""The demo's report.html: it loads nothing, and nothing of a text becomes markup."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from bertworks.apps.demo.page import page
from bertworks.apps.probing.model import Attention

EVIL = "<script>alert(1)</script>&\"'"
RESULTS = json.loads((Path(__file__).parents[3] / "docs/results/demo/results.json").read_text(encoding="utf-8"))
RESULTS["tasks"]["tags"]["labels"], RESULTS["machine"]["cpu"] = [EVIL], EVIL
RESULTS["masks"] = {"Return the [MASK] of it.": ["index 15%", f"{EVIL} 3%"]}
RECORDS = [{"kind": "train", "step": s, "tokens": 1800 * s, "mlm_loss": 9 - s / 700} for s in range(20, 2500, 20)]
RECORDS += [{"kind": "eval", "step": s, "mlm_loss": 8.9 - s / 700} for s in range(500, 2500, 500)]
ROWS = [{"words": ["Sort", EVIL, "by", "key"], "gold": ["O", "B-CODE", "O", "B-PARAM"], "predicted": ["O", "O"] * 2}]


def written(results=RESULTS):
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(5), size=(2, 4, 5)).astype(np.float32)
    tokens = ["[CLS]", "sort", EVIL, "key", "[SEP]"]
    found = Attention(EVIL, tokens, weights, 0)
    return page(results, RECORDS, found, ROWS, Path("runs/demo"))


class Reader(HTMLParser):
    """Checks that elements close in order, and collects their names and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_runs_nothing_of_a_text():
    text = written()
    reader = Reader()
    reader.feed(text)
    assert not reader.open and "script" not in {tag for tag, _ in reader.found}
    assert not any(key in ("src", "href") for _, attributes in reader.found for key in attributes)
    assert EVIL not in text and "@@" not in text and "url(" not in text
    assert "%3Cscript" not in text and text.count("&lt;script&gt;") >= 5
