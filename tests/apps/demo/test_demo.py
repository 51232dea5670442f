"""The demo: what becomes of docstrings, that nothing leaks over the split, and (slow) the whole of it in a minute."""

import json
import math
import random
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from bertworks.apps.demo.config import TaskConfig, default_config
from bertworks.apps.demo.prose import clean, marked, unmarked
from bertworks.apps.demo.report import effect_of, report
from bertworks.apps.demo.run import SETTINGS, demo
from bertworks.apps.demo.tasks import SIDES, package_rows, read_tags, split_by_name, tagged, write_tags
from bertworks.apps.demo.text import STDLIB, CollectConfig, Document, collect, find_sources, read_source
from bertworks.config import to_toml
from bertworks.files import InputError, write_json
from bertworks.model.config import ModelConfig

PUBLISHED = Path(__file__).parents[3] / "docs/results/demo"
MODULE = '''
"""Tools for rivers and what swims in them. Bridges are found elsewhere, in a module of their own."""
raise RuntimeError("nobody may import this")

def median(x):
    """Return the middle of the river, which is the place where boats go.

    The river is measured first. That takes some time, and `boats` must wait until it is done.

    Parameters
    ----------
    x : array_like, optional
        The river whose middle is wanted by the caller.

    Examples
    --------
    >>> median(3)
    3
    """

try:
    class Boat:
        """A boat that floats on the river for as long as it has no holes in it."""
        def sail(self):
            """Sail down the river until the sea is reached or the night comes."""
        def _hidden(self):
            """Look for a harbour. The harbour is never far away in this part of the country."""
except ImportError:
    pass
'''


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    write(tmp_path, "site/rivers/__init__.py", "")
    write(tmp_path, "site/rivers/water.py", MODULE)
    write(tmp_path, "site/copycat/water.py", MODULE)
    write(tmp_path, "site/rivers/tests/test_water.py", MODULE)
    write(tmp_path, "site/rivers/test_water.py", MODULE)
    write(tmp_path, "site/pip/_vendor/water.py", MODULE)
    write(tmp_path, "site/rivers/broken.py", 'def f(:\n    """text"""')
    (tmp_path / "site/rivers/bytes.py").write_bytes(b'"""\xff Not UTF-8."""\n')
    (tmp_path / "site/rivers/nul.py").write_bytes(b'"""A nul \0 byte."""\n')
    write(tmp_path, "lib/statistics.py", MODULE.replace("river", "number"))
    write(tmp_path, "lib/site-packages/other.py", MODULE)
    return [(tmp_path / "lib", STDLIB), (tmp_path / "site", "")]


def test_sources_are_found_in_an_order_that_depends_on_their_names_alone(tree):
    sources = find_sources(tree, 100)
    assert {(s.label, s.where) for s in sources} == {
        ("rivers", "rivers/__init__.py"),
        ("rivers", "rivers/water.py"),
        ("rivers", "rivers/broken.py"),
        ("rivers", "rivers/bytes.py"),
        ("rivers", "rivers/nul.py"),
        ("copycat", "copycat/water.py"),
        (STDLIB, "statistics.py"),
    }
    assert find_sources(tree[::-1], 100) == sources
    assert find_sources(tree, 3) == sources[:3]


def test_documents_of_a_file_without_importing_it(tree):
    source = next(s for s in find_sources(tree, 100) if s.where == "rivers/water.py")
    module, median, boat = read_source(source)
    assert (module.name, median.name, boat.name) == ("water", "median", "boat")
    assert "\ue001boats\ue002 must wait" in median.text
    assert unmarked(median.text) == (
        "Return the middle of the river, which is the place where boats go.\n"
        "The river is measured first. That takes some time, and boats must wait until it is done.\n"
        "The river whose middle is wanted by the caller."
    )
    assert boat.text.startswith("A boat that floats") and boat.text.count("\n") == 2
    assert median.source == "rivers/water.py:median"


def test_a_paragraph_that_comes_back_is_kept_once(tree):
    config = CollectConfig(min_document_chars=60)
    documents = list(collect(find_sources(tree, 100), config, workers=1))
    paragraphs = [unmarked(p) for d in documents for p in d.text.split("\n")]
    assert len(set(paragraphs)) == len(paragraphs)
    assert len({d.label for d in documents} & {"rivers", "copycat"}) == 1  # one is a copy of the other
    assert documents == list(collect(find_sources(tree, 100), config, workers=1))
    assert all(len(d.text) >= 60 for d in documents)


CASES = [
    (":param x: the value that is to be doubled here\n:type x: int", ["the value that is to be doubled here"]),
    ("Wrapped lines of one paragraph\nbelong together.", ["Wrapped lines of one paragraph belong together."]),
    ("See :func:`~numpy.linalg.svd` or ``x.y`` and *this* one.", ["See numpy.linalg.svd or x.y and this one."]),
    ("See::\n\n    x = some hidden code here\n\nThen prose goes on as before.", ["Then prose goes on as before."]),
    ("Before a table of many.\n\n=====  =====\n| a very | long row |\n+-----+-----+", ["Before a table of many."]),
    (".. math:: unread\n\n   a block of its lines\n\nAfter it there is some prose.", ["After it there is some prose."]),
    ("The integral \\int_0^1 of the function over x.", []),
    ("A string that ends with the byte \0 is one of C.", []),
    ("Das können wir nicht lesen, es ist kein Englisch.", []),
]


@pytest.mark.parametrize("docstring, paragraphs", CASES)
def test_cleaning(docstring, paragraphs):
    assert [unmarked(p) for p in clean(textwrap.dedent(docstring))] == paragraphs


def test_markup_becomes_marks():
    """Only what the markup sets apart is marked, and as a parameter only what the function has."""
    text = "If *axis* or `axis` is ``None``, see :func:`~np.sort` and `the docs <https://x.y>`_; *all* of axis."
    shown = marked(text, {"axis"}).replace("\ue000", "<P:").replace("\ue001", "<C:").replace("\ue002", ">")
    assert shown == "If <P:axis> or <P:axis> is <C:None>, see <C:np.sort> and the docs all of axis."
    assert "\ue000" not in marked(text, {"key"})


def test_marks_become_tags():
    words, tags = tagged(marked("Sort along `axis`, or raise a ``ValueError`` if it is not there.", {"axis"}))
    assert " ".join(words) == "Sort along axis , or raise a ValueError if it is not there ."
    assert [(word, tag) for word, tag in zip(words, tags, strict=True) if tag != "O"] == [
        ("axis", "B-PARAM"),
        ("ValueError", "B-CODE"),
    ]
    assert tagged(marked("Sort along `axis`, which is ``x + y`` in the end.", {"axis"})) is None  # several words
    assert tagged(marked("Sort along ``axis`` until the end of the list.", set())) is None  # no parameter
    assert tagged(marked("Sort along `axis`.", {"axis"})) is None  # too short


def functions(each=80):
    """Marked documents, each of a function with one parameter."""
    return [
        Document(
            "\n".join(
                marked(f"Take `{word}` number {i} and {j} to the river for a while, or return ``None``.", {word})
                for j, word in enumerate(("boat", "oar", "fish", "line"))
            ),
            "rivers", f"name{i}", f"rivers/{i}",
        )
        for i in range(each)
    ]  # fmt: skip


@pytest.mark.parametrize(("task", "dev", "test"), [((60, 30), 30, {150}), ((30, 120), 105, {*range(100, 107)})])
def test_rows_of_tags_share_no_name_and_no_name_has_many(tmp_path, task, dev, test):
    """The second: as in an environment whose packages mark few parameters, dev and test get half each."""
    write_tags(functions(), TaskConfig(*task, 500, 1.0, (1,)), tmp_path)
    rows = read_tags(tmp_path).rows
    names = {side: {row.text.split()[3] for row in rows[side]} for side in SIDES}
    assert (len(rows["train"]), len(rows["dev"])) == (task[0], dev) and len(rows["test"]) in test
    assert not names["train"] & names["dev"] and not (names["train"] | names["dev"]) & names["test"]
    assert all("`" not in row.text and "\ue000" not in row.text for row in rows["test"])
    assert rows["test"][0].tags.count("B-PARAM") == 1


def made_up(packages=3, each=60):
    """Documents whose names several packages share."""
    return [
        Document(f"The {label} text {i}, from numpy.linalg and np.array.", label, f"name{i % 45}", f"{label}/{i}")
        for label in [f"package{n}" for n in range(packages)]
        for i in range(each)
    ]


def test_no_name_is_on_two_sides():
    documents = made_up()
    train, held_out = split_by_name(documents, 0.4)
    assert len(train) + len(held_out) == len(documents) and train and held_out
    assert not {d.name for d in train} & {d.name for d in held_out}
    rows = package_rows(documents, TaskConfig(15, 30, 600, 1.0, (1,)), labels=3)
    names = {side: {d.name for d in found} for side, found in rows.items()}
    assert not names["train"] & names["dev"] and not names["train"] & names["test"] and not names["dev"] & names["test"]
    assert {side: len(found) for side, found in rows.items() if side != "test"} == {"train": 15, "dev": 30}
    assert len(rows["test"]) > 60
    assert all(len([d for d in rows["train"] if d.label == f"package{n}"]) == 5 for n in range(3))
    assert not any("package" in d.text or "np.array" in d.text for found in rows.values() for d in found)


TOPICS = {
    "rivers": "river boat water bridge harbour sail fish shore wave stream current flood",
    "kitchens": "kitchen bread oven butter spoon recipe flour dinner soup knife plate salt",
    "forests": "forest tree leaf moss deer branch shadow path mushroom root bark wolf",
}


def topic_tree(root, each=90):
    """Packages whose functions are documented with words of their own."""
    rng = random.Random(5)
    for label, words in TOPICS.items():
        words = words.split()
        for i in range(each):
            sentences = (f"The {' '.join(rng.choices(words, k=5))} is not the last." for _ in range(8))
            word, three = rng.choice(words), " ".join(rng.choices(words, k=3))
            about = f"If `{word}` is given, the {three} will all be of that sort, else they are ``None`` as before."
            text = f"{' '.join(sentences)}\n\n    {about}"
            write(root, f"{label}/m{i}.py", f'def {label}{i}({word}):\n    """{text}"""\n')
    return [(root, "")]


def tiny():
    """A demo of seconds."""
    config = default_config()
    model = ModelConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, start="position-heads",
    )  # fmt: skip
    phases = (replace(config.pretrain.phases[0], length=64),)
    loop = replace(config.pretrain.loop, log_every=2)
    pretrain = replace(config.pretrain, model=model, phases=phases, loop=loop, eval_batches=1)
    tags, packages = (TaskConfig(30, dev, test, 1.0, (1, 2)) for dev, test in ((20, 40), (30, 60)))
    few = {"tokens": 30_000, "workers": 1, "held_out": 0.6, "labels": 3, "rates": (1e-3,)}
    return replace(config, **few, tags=tags, packages=packages, pretrain=pretrain)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.heavy
def test_the_whole_demo_and_one_that_its_limit_stops(tmp_path, capsys):
    """The limit changes the time, not the numbers: a rerun continues, and both ways give the same results."""
    roots, config, out = topic_tree(tmp_path / "tree"), tiny(), tmp_path / "demo"
    results = demo(config, out, roots)
    said, errors = capsys.readouterr()
    assert {task: {*found["sides"]} for task, found in results["tasks"].items()} == {
        task: {"pre-trained", "random"} for task in ("tags", "packages")
    }
    assert results["tasks"]["packages"]["labels"] == sorted(TOPICS) and results["tasks"]["tags"]["linear"]["test"] > 0.5
    assert max(results["heldout"]["mlm_loss"], results["heldout"]["unigram_entropy"]) < math.log(300)
    for task in results["tasks"].values():
        low, high = task["gain_interval"]
        assert low <= task["gain"] <= high
    for name in ("report.html", "plots/tags.svg", "plots/pretraining.png", "pretrain/model/config.json"):
        assert (out / name).exists(), name
    read, tested, tags = (
        read_lines(out / name) for name in ("documents/train.jsonl", "packages/test.jsonl", "tags/test.jsonl")
    )
    assert tested and not {row["name"] for row in read} & {row["name"] for row in tested}
    assert tags and not {row["source"] for row in read} & {row["source"] for row in tags}
    assert not errors and "mlm_loss" not in said and max(map(len, said.split("what to try")[0].splitlines()[1:])) <= 120
    assert demo(config, out, []) == results  # finished: nothing is done again
    assert "The random weights too have position heads" in (out / "REPORT.md").read_text()

    stopped = tmp_path / "stopped"
    assert demo(replace(config, minutes=1e-6), stopped, roots) is None
    assert "in step 3 of 7 (pre-train): too early for a comparison" in capsys.readouterr().out
    steps = [line["step"] for line in read_lines(stopped / "pretrain/log.jsonl")]
    assert max(steps) <= 3 and not (stopped / "results.json").exists()
    again = demo(config, stopped, [], quiet=True)
    assert again["tasks"] == results["tasks"] and again["heldout"] == results["heldout"]


def test_a_finished_demo_is_not_shown_for_other_settings_or_from_changed_results(tmp_path):
    config, results = default_config(), json.loads((PUBLISHED / "results.json").read_text())
    (tmp_path / SETTINGS).write_text(to_toml(config))
    write_json(tmp_path / "results.json", results)
    assert demo(replace(config, minutes=1.0, workers=3), tmp_path, quiet=True) == results
    fewer = replace(config.tags, train=300)
    for other, message in (
        (replace(config, tags=fewer), r"a demo with tags\.train = 400 \(given: 300\); give the same settings, or anot"),
        (replace(config, labels=5, held_out=0.3), r"held_out = 0\.2 \(given: 0\.3\), labels = 8 \(given: 5\)"),
    ):
        with pytest.raises(InputError, match=message):
            demo(other, tmp_path, quiet=True)
    results["tasks"]["tags"]["seeds"] = ["x"]
    write_json(tmp_path / "results.json", results)
    with pytest.raises(InputError, match=r"results.json: tasks.tags.seeds\[0\] = 'x'; expected an int"):
        demo(config, tmp_path, quiet=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not an empty folder"):
        demo(config, tmp_path / "other", quiet=True)


def test_the_gain_is_told_with_its_interval_over_the_seeds():
    sides = {"pre-trained": {"test": [0.55, 0.5, 0.6]}, "random": {"test": [0.5, 0.52, 0.5]}}
    task = {"seeds": [1, 2, 3], "gain": 0.0433, "sides": sides}
    assert effect_of(task) == "+4.3 points (95 % over 3 seeds: -10.6 to +19.3, which shows no effect)"
    sides["random"]["test"], task["gain"] = [0.5, 0.46, 0.55], 0.0467
    assert effect_of(task) == "+4.7 points (95 % over 3 seeds: +3.2 to +6.1)"
    sides["pre-trained"]["test"], sides["random"]["test"] = [0.55], [0.5]
    assert effect_of(task) == "+4.7 points (no interval over seeds)"


def test_the_published_report_is_made_of_the_published_results():
    results = json.loads((PUBLISHED / "results.json").read_text())
    assert report(results) == (PUBLISHED / "REPORT.md").read_text()
