"""The demo: no text is in training and test, nothing is imported, and the whole of it in a minute."""

import json
import random
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bertworks.apps.demo import run as demo_run
from bertworks.apps.demo.config import DemoConfig, demo_recipe
from bertworks.apps.demo.page import page
from bertworks.apps.demo.prose import unmarked
from bertworks.apps.demo.run import demo
from bertworks.apps.demo.tables import final_text, held_out_rows
from bertworks.apps.demo.tasks import tagged
from bertworks.apps.demo.text import collect, find_sources
from bertworks.checkpoint.folder import save_folder
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY, VOCAB

TOPICS = {
    "rivers": "river boat water bridge harbour sail fish shore wave stream current flood",
    "kitchens": "kitchen bread oven butter spoon recipe flour dinner soup knife plate salt",
    "forests": "forest tree leaf moss deer branch shadow path mushroom root bark wolf",
}


def write_tree(root, each):
    """Packages with functions and classes, documented with words of their own, that cannot be imported."""
    rng = random.Random(5)
    for label, words in TOPICS.items():
        words = words.split()
        for i in range(each):
            lines, word = ['raise RuntimeError("imported")'], rng.choice(words)
            for kind, verb in ((f"class {label.title()}{i}:", "A kind of"), (f"def {label}{i}({word}):", "Return the")):
                six, three = (" ".join(rng.choices(words, k=k)) for k in (6, 3))
                sentences = " ".join(f"The {' '.join(rng.choices(words, k=5))} is not the last." for _ in range(8))
                marked = f"If `{word}` is given, the {three} will all be of that sort, else ``None`` as before."
                lines += [kind, f'    """{verb} {six} number.\n\n    {sentences}\n\n    {marked}"""']
            path = root / label / f"m{i}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [root]


def random_model(folder):
    """A model folder in place of the bundled encoder."""
    vocab = folder.with_suffix(".txt")
    vocab.write_text("\n".join(VOCAB) + "\n")
    model = build_model(replace(TINY, max_position_embeddings=64), seed=1)
    save_folder(folder, model, Tokenizer.load(vocab, lowercase=True))
    return folder


def tiny(model):
    """The settings of a demo of seconds."""
    shape = ModelConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, start="position-heads",
    )  # fmt: skip
    recipe = replace(demo_recipe(), model=shape, eval_batches=1)
    few = {"train": 30, "dev": 20, "test": 30, "epochs": 1.0, "rates": (1e-3, 3e-3), "seeds": (1, 2)}
    return DemoConfig(str(model), minutes=0.2, recipe=recipe, held_out=0.5, workers=1, **few)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


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


def check_page(text):
    """The page loads nothing and runs nothing."""
    reader = Reader()
    reader.feed(text)
    assert not reader.open and "script" not in {tag for tag, _ in reader.found}
    assert not any(key in ("src", "href") for _, attributes in reader.found for key in attributes)
    assert "@@" not in text and "url(" not in text


DOCSTRING = """Return the median of :func:`sorted` values along `axis`.

    The values are sorted first, as `numpy.median` does, and {0} is not changed by it at all.

    >>> median([1, 2, 3])
    2

    Parameters
    ----------
    axis : int, optional
        The axis along which the median of the many values will be computed here.
    """


def test_prose_is_extracted_once(tmp_path):
    for name, what in (("a", "*axis*"), ("b", "the input")):
        (tmp_path / f"{name}.py").write_text(f'def median(axis):\n    """{DOCSTRING.format(what)}"""\n')
    (tmp_path / "broken.py").write_text('def median(axis:\n    """Not Python."""\n')
    documents = [one for of_file in collect(find_sources([tmp_path], 9), workers=1) for one in of_file]
    assert [(one.name, one.source) for one in documents] == [("median", "b.py:median")]
    first, second, third = documents[0].text.split("\n")
    assert tagged(first)[1] == ["O", "O", "O", "O", "B-CODE", "O", "O", "B-PARAM", "O"]
    assert "numpy.median" in unmarked(second) and ">>>" not in documents[0].text
    assert third == "The axis along which the median of the many values will be computed here."


@pytest.mark.heavy
def test_the_whole_demo(tmp_path, capsys, monkeypatch):
    roots, config, out = write_tree(tmp_path / "tree", 60), tiny(random_model(tmp_path / "model")), tmp_path / "demo"
    pretrain, interrupted = demo_run.pretrain, []

    def stop_once(*given, **settings):  # as Ctrl-C does: the run is saved and is not finished
        if not interrupted:
            settings["on_record"] = lambda record: interrupted.append(record) or True
        return pretrain(*given, **settings)

    monkeypatch.setattr(demo_run, "pretrain", stop_once)
    with pytest.raises(KeyboardInterrupt):
        demo(config, out, roots)
    assert not (out / "results.json").exists()
    results = demo(replace(config, minutes=9.0), out, [])  # resumed, with the budget that pre-training began with
    scores = results["tags"]["scores"]
    assert {*scores} == {"encoder", "encoder-random", "own", "own-random"}
    assert len(scores["own"]["test"]) == 2 and len(scores["encoder"]["test"]) in (1, 2)
    assert results["pretraining"]["seconds"] < 10 and len(results["masks"]) == len(results["own_masks"]) == 3
    assert interrupted and read_lines(out / "pretrain/log.jsonl")[0]["step"] == interrupted[0]["step"]

    names = [{row["name"] for row in read_lines(out / f"documents/{part}.jsonl")} for part in ("train", "heldout")]
    assert not names[0] & names[1]  # class Rivers1 and def rivers1 are in the same part
    parts = {name: {row["source"] for row in read_lines(out / f"{name}.jsonl")} for name in (
        "documents/train", "documents/heldout", "tags/train", "tags/dev", "tags/test"
    )}  # fmt: skip
    assert parts["documents/train"] and not parts["documents/train"] & parts["documents/heldout"]
    assert parts["tags/train"] | parts["tags/dev"] | parts["tags/test"] <= parts["documents/heldout"]
    assert not parts["tags/train"] & parts["tags/test"] and not parts["tags/dev"] & parts["tags/test"]
    row = read_lines(out / "tags/test.jsonl")[0]
    assert {"B-PARAM", "B-CODE"} & {*row["tags"]} and not {"`", "``"} & {*row["words"]}

    check_page((out / "report.html").read_text())
    printed = capsys.readouterr().out
    assert "small BERT, random initialization" in printed and str(out / "report.html") in printed
    assert demo(config, out, []) == results  # finished: nothing is done again
    with pytest.raises(InputError, match=r"a demo with seeds = .* \(given: .*\); give the same settings, or another"):
        demo(replace(config, seeds=(1,)), out, quiet=True)

    evil = "<script>alert(1)</script>&\"'"
    changed = results | {"name": evil, "masks": {f"The [MASK] {evil}": [f"{evil} 3%"]}}
    changed["machine"] = results["machine"] | {"cpu": evil}
    rows = [{"words": [evil], "gold": ["B-CODE"], "predicted": ["O"]}]
    text = page(changed, read_lines(out / "pretrain/log.jsonl"), rows, out)
    check_page(text)
    assert evil not in text and text.count("&lt;script&gt;") >= 4


@pytest.mark.heavy
def test_without_an_encoder_and_time_a_small_bert_is_compared(tmp_path, capsys):
    config, out = tiny(tmp_path / "missing"), tmp_path / "demo"
    results = demo(replace(config, minutes=0.01), out, write_tree(tmp_path / "tree", 60))
    assert results["model"] is None and {*results["tags"]["scores"]} == {"own", "own-random"}
    assert len(results["tags"]["scores"]["own"]["test"]) == 1  # no time for the second seed
    printed = capsys.readouterr().out
    assert "not installed, and no model folder. Only a small BERT" in printed
    assert "tokens of pre-training are too few" in printed and "Raises an error if the [MASK]" not in printed
    assert "mini" not in final_text(results, out)  # no encoder was compared
    check_page((out / "report.html").read_text())


def test_next_sentences_are_shown_where_they_are_above_the_baseline():
    held = {"mlm_accuracy": 0.3, "mlm_baseline": 0.06, "mlm_loss": 4.3, "unigram_entropy": 6.4}
    held |= {"nsp_baseline": 0.6, "nsp_least": 0.62}
    for accuracy, shown in ((0.61, 2), (0.63, 3)):
        assert len(held_out_rows(held | {"nsp_accuracy": accuracy})) == shown


def test_too_little_text_and_other_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"labelled examples in the docstrings .* expected 80"):
        demo(tiny("mini"), tmp_path / "demo", write_tree(tmp_path / "tree", 2), quiet=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not an empty folder"):
        demo(tiny("mini"), tmp_path / "other", quiet=True)
    for line, fault in (("schema = 1", "recipe schema is 1; expected"), ("minute = 3.0", "minute")):
        (tmp_path / "other/demo.toml").write_text(line + "\n")
        with pytest.raises(InputError, match=rf"demo\.toml: .*{fault}.*; a demo of another version; give another"):
            demo(tiny("mini"), tmp_path / "other", quiet=True)
