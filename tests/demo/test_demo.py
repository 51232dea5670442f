"""The demo: what becomes of docstrings, that nothing leaks over the split, and (slow) the whole of it in a minute."""

import json
import random
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import bertworks.demo.evaluation as evaluation
from bertworks.checkpoint.folder import save_folder
from bertworks.demo.clock import Clock
from bertworks.demo.evaluation import Comparison, evaluate_heldout, read_task
from bertworks.demo.report import effect_of, report
from bertworks.demo.run import DemoConfig, default_config, demo
from bertworks.demo.text import (
    STDLIB,
    CollectConfig,
    Document,
    clean,
    collect,
    find_sources,
    give_aways,
    make_task,
    read_source,
    split_by_name,
    write_rows,
)
from bertworks.files import Diverged, InputError, write_json
from bertworks.model.config import ModelConfig
from bertworks.model.heads import build_model
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY

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
    assert median.text == (
        "Return the middle of the river, which is the place where boats go.\n"
        "The river is measured first. That takes some time, and boats must wait until it is done.\n"
        "The river whose middle is wanted by the caller."
    )
    assert boat.text.startswith("A boat that floats") and boat.text.count("\n") == 2
    assert median.source == "rivers/water.py:median"


def test_a_paragraph_that_comes_back_is_kept_once(tree):
    config = CollectConfig(min_document_chars=60)
    documents = list(collect(find_sources(tree, 100), config, workers=1))
    paragraphs = [p for d in documents for p in d.text.split("\n")]
    assert len(set(paragraphs)) == len(paragraphs)
    assert len({d.label for d in documents} & {"rivers", "copycat"}) == 1  # one is a copy of the other
    assert documents == list(collect(find_sources(tree, 100), config, workers=1))
    assert all(len(d.text) >= 60 for d in documents)
    fewer = list(collect(find_sources(tree, 100), replace(config, max_chars=1), workers=1))
    assert 0 < len(fewer) < len(documents)


CASES = [
    (":param x: the value that is to be doubled here\n:type x: int", ["the value that is to be doubled here"]),
    ("Args:\n    x (int, optional): The value that is to be doubled.", ["The value that is to be doubled."]),
    (
        "Wrapped lines of one paragraph\nbelong together, of course.",
        [
            "Wrapped lines of one paragraph belong together, of course.",
        ],
    ),
    ("See :func:`~numpy.linalg.svd` or ``x.y`` and *this* one.", ["See numpy.linalg.svd or x.y and this one."]),
    (
        "- the first of the two points\n- the second of the two points",
        [
            "the first of the two points",
            "the second of the two points",
        ],
    ),
    (
        "This is followed by code which goes::\n\n    x = some hidden code\n\nThen prose goes on as before.",
        [
            "This is followed by code which goes:",
            "Then prose goes on as before.",
        ],
    ),
    (
        "Before the table of many things.\n\n=====  =====\n| a very | long table row of words |\n+-----+-----+",
        [
            "Before the table of many things.",
        ],
    ),
    (".. note:: This is worth a sentence of its own.", ["This is worth a sentence of its own."]),
    (
        ".. math:: a formula that nobody reads\n\n   with a block of lines of its own\n\nAfter it there is some prose.",
        [
            "After it there is some prose.",
        ],
    ),
    ("The integral \\int_0^1 of the function over x.", []),
    ("too few words", []),
    ("A string that ends with the byte \0 is one of C.", []),
    ("Das können wir nicht lesen, es ist kein Englisch.", []),
    ("", []),
]


@pytest.mark.parametrize("docstring, paragraphs", CASES)
def test_cleaning(docstring, paragraphs):
    assert clean(textwrap.dedent(docstring)) == paragraphs


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
    rows = make_task(documents, {"train": 15, "dev": 30, "test": 600}, labels=3)
    names = {side: {d.name for d in found} for side, found in rows.items()}
    assert not names["train"] & names["dev"] and not names["train"] & names["test"] and not names["dev"] & names["test"]
    assert {side: len(found) for side, found in rows.items() if side != "test"} == {"train": 15, "dev": 30}
    assert len(rows["test"]) > 60
    assert all(len([d for d in rows["train"] if d.label == f"package{n}"]) == 5 for n in range(3))
    assert not any("package" in d.text or "np.array" in d.text for found in rows.values() for d in found)


def test_too_few_documents_for_the_task_is_said():
    with pytest.raises(InputError, match="0 packages with 40 held-out documents"):
        make_task(made_up(each=9), {"train": 60, "dev": 9, "test": 9}, labels=3)


def test_names_of_packages_are_hidden():
    hidden = give_aways(["sklearn", "torch"])
    text = (
        "PyTorch calls torch.nn.functional.relu; scikit-learn and np.sum do not. The torchvision is lit, the lamp not."
    )
    assert " ".join(hidden.sub(" ", text).split()) == "calls ; and do not. The is lit, the lamp not."


TOPICS = {
    "rivers": "river boat water bridge harbour sail fish shore wave stream current flood",
    "kitchens": "kitchen bread oven butter spoon recipe flour dinner soup knife plate salt",
    "forests": "forest tree leaf moss deer branch shadow path mushroom root bark wolf",
}


def topic_tree(root, each=90):
    """Packages whose functions are documented with words of their own."""
    rng = random.Random(5)
    for label, words in TOPICS.items():
        for i in range(each):
            sentences = (
                f"The {' '.join(rng.choices(words.split(), k=4))} of the {rng.choice(words.split())} is not the last."
                for _ in range(8)
            )
            write(root, f"{label}/m{i}.py", f'def {label}{i}():\n    """{" ".join(sentences)}"""\n')
    return [(root, "")]


def test_the_clock_says_how_long_it_takes_and_limits_each_stage(tmp_path):
    now = [0.0]
    clock = Clock(5.0, tmp_path, lambda: now[0])
    assert clock.share_of_epochs == 1 and clock.plan().startswith("about 7 min 37 s in all, 5 min 00 s of them")
    clock.begin("reading")
    now[0] = 250.0  # ten times as long as on a machine without other work
    clock.begin("store")
    assert not clock.over()
    assert clock.left() == "15 min 20 s"  # 200 s, pre-training, 120 s, and 300 s, which is the limit
    now[0] += 301
    assert clock.over()
    clock.cut("reading"), clock.cut("reading"), clock.cut("evaluation")
    assert Clock(5.0, tmp_path).cuts() == ["reading", "evaluation"]
    short = Clock(0.2, tmp_path)
    assert short.limit == 60 and short.share_of_epochs == 0.3  # so that not time decides, where the machine is free


def test_reading_stops_when_it_is_told_to(tmp_path):
    roots = topic_tree(tmp_path, each=10)
    sources = find_sources(roots, 100)
    whole = list(collect(sources, CollectConfig(), workers=1))
    cut = list(collect(sources, CollectConfig(), workers=1, at=lambda done: done >= 12))
    assert cut == whole[: len(cut)] and 0 < len(cut) <= 12 < len(whole)


def test_a_script_without_a_guard_reads_with_workers(tmp_path):
    """Two chunks of files, so that there are processes; they must not run the script again."""
    topic_tree(tmp_path / "tree", each=50)
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom bertworks.demo.text import CollectConfig, collect, find_sources\n"
        f"sources = find_sources([(Path({str(tmp_path / 'tree')!r}), '')], 1000)\n"
        "print(len(list(collect(sources, CollectConfig(), workers=2))))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "150\n" and not done.stderr


def test_a_slow_machine_cuts_fine_tuning_and_evaluation_short(tmp_path, tiny_store, monkeypatch):
    shape = replace(TINY, vocab_size=tiny_store.vocab_size)
    model = build_model(shape, seed=1)
    save_folder(tmp_path / "pretrain/model", model, Tokenizer.load(tiny_store.path / "tokenizer"))
    for name in ("heldout", "store"):
        (tmp_path / name).symlink_to(tiny_store.path)
    config = replace(default_config(), rates=(1e-3, 3e-3), seeds=(1,))
    config = replace(config, finetune=replace(config.finetune, epochs=60.0, max_seq_length=16))
    now = [0.0]
    clock = Clock(5.0, tmp_path, lambda: now[0])
    phases = (replace(config.pretrain.phases[0], length=16),)
    clock.begin("evaluation")
    now[0] = 301.0
    found = evaluate_heldout(tmp_path, replace(config.pretrain, phases=phases), clock)
    assert found["pairs"] == 4 * 64
    assert clock.cuts() == ["evaluation, after 4 of 40 batches"]
    # An update takes 2 seconds, the rest of a run 4: 12 of the 30 planned updates fit into each of the four runs.
    for name in ("train", "dev", "test"):
        write_rows(tmp_path / "task" / f"{name}.jsonl", [Document(f"river {x}", x, "f", "m.py") for x in "ab" * 4])
    task, rows = read_task(tmp_path / "task")
    comparison = Comparison(config.finetune, config.rates, config.seeds, tmp_path, task, rows, clock)
    budgets, slow = [], 2.0

    def slowly(recipe, task, data, model, out, quiet):
        out.mkdir(parents=True, exist_ok=True)
        budgets.append((recipe.random_init, recipe.loop.steps, recipe.loop.hours))
        now[0] += 4.0 + slow * recipe.loop.steps
        results = {"metrics": {"accuracy": 0.5}, "seconds": slow * recipe.loop.steps}
        write_json(out / "results.json", results)
        return results

    monkeypatch.setattr(evaluation, "evaluate_finetuned", lambda *_: {"metrics": {"accuracy": 0.5}})
    monkeypatch.setattr(evaluation, "finetune", slowly)
    clock.limit = 4 * (4 + 2 * 12)
    assert comparison.run(str)["steps"] == 12 < 30
    assert budgets == [(True, 8, 0), *[(False, 12, 0)] * 3, *[(True, 12, 0)] * 3]
    assert clock.cuts()[1:] == ["fine-tuning, to 12 of 30 updates in every run of both sides"]
    slow = 0.0  # no longer busy; a rerun keeps to what both sides were promised
    assert comparison.run(str)["steps"] == 12
    assert {steps for _, steps, _ in budgets[7:]} == {12}
    assert not (tmp_path / "finetune" / "trial").exists()


def test_a_failed_run_ends_the_demo_with_its_message(tmp_path, monkeypatch):
    """It is run again when the command is; without it there is no comparison."""
    tried = []

    def diverging(recipe, *rest, **more):
        tried.append(recipe.loop.seed)
        raise Diverged("loss or gradient not finite in 11 steps in a row")

    monkeypatch.setattr(evaluation, "finetune", diverging)
    monkeypatch.setattr(Comparison, "steps", lambda self: 12)
    config = default_config()
    comparison = Comparison(
        config.finetune, (1e-3,), (1, 2), tmp_path, None, {"train": [], "dev": []}, Clock(5.0, tmp_path)
    )
    for _ in range(2):
        with pytest.raises(InputError, match=r"pre-trained weights, learning rate 0\.001, seed 1 failed: loss or"):
            comparison.run(str)
    assert tried == [1, 1]


def test_fine_tuning_has_its_updates_where_the_machine_is_free(tmp_path):
    clock = Clock(5.0, tmp_path)
    assert clock.fitting(375, step=0.04, rest=0.5, runs=10) == 375
    assert clock.fitting(375, step=0.2, rest=0.5, runs=10) == 147
    assert clock.fitting(375, step=9.0, rest=60.0, runs=10) == 10
    assert clock.fitting(6, step=9.0, rest=60.0, runs=10) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": 3}, "field task is 3; expected a table"),
        ({"seeds": ["x"]}, r"field seeds\[0\] is 'x'; expected an int"),
    ],
)
def test_results_of_a_demo_that_were_changed_are_named(tmp_path, change, message):
    side = {"rate": 1.0, "dev": {}, "test": [], "mean": 0.5, "sd": 0.1}
    results = {"task": {"sides": {"pre-trained": side, "random": side}, "majority": 0.2, "gain": 0.1}}
    results |= {"pretraining": {"seconds": 3.0}, "masks": {"a [MASK]": ["b"]}, "seeds": [1]}
    write_json(tmp_path / "demo.json", {"minutes": DemoConfig().minutes})
    write_json(tmp_path / "results.json", results)
    assert demo(DemoConfig(), tmp_path, quiet=True) == results
    shutil.copytree(tmp_path, tmp_path / "[/b]")
    demo(DemoConfig(), tmp_path / "[/b]")  # a folder's name is no markup
    write_json(tmp_path / "results.json", results | change)
    with pytest.raises(InputError, match=f"results.json: {message}"):
        demo(DemoConfig(), tmp_path, quiet=True)


@pytest.mark.slow
def test_the_whole_demo(tmp_path, capsys):
    config = default_config()
    model = ModelConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    phases = (replace(config.pretrain.phases[0], length=64),)
    config = replace(
        config,
        minutes=0.1,
        workers=1,
        held_out=0.6,
        labels=3,
        train_examples=30,
        dev_examples=30,
        rates=(1e-3,),
        seeds=(1, 2),
        pretrain=replace(config.pretrain, model=model, phases=phases),
        finetune=replace(config.finetune, epochs=2.0),
    )
    results = demo(config, tmp_path / "demo", topic_tree(tmp_path / "tree"))
    assert set(results["task"]["sides"]) == {"pre-trained", "random"} and results["task"]["labels"] == sorted(TOPICS)
    assert results["heldout"]["mlm_loss"] < results["heldout"]["unigram_entropy"] + 0.5
    assert 0.5 <= results["heldout"]["nsp_guess"] < 0.8
    low, high = results["task"]["gain_interval"]
    assert low <= results["task"]["gain"] <= high
    for name in ("REPORT.md", "results.json", "plots/gain.svg", "plots/pretraining.png", "pretrain/model/config.json"):
        assert (tmp_path / "demo" / name).is_file(), name
    seen, tested = (
        {json.loads(line)["name"] for line in (tmp_path / "demo" / name).read_text().splitlines()}
        for name in ("documents/train.jsonl", "task/test.jsonl")
    )
    assert seen and tested and not seen & tested
    said = capsys.readouterr().out
    assert "what to try next" in said and "majority class" in said
    assert demo(config, tmp_path / "demo", []) == results  # finished: nothing is done again
    with pytest.raises(InputError, match=r"a demo of 0\.1 minutes"):
        demo(replace(config, minutes=9.0), tmp_path / "demo")


def test_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="not an empty folder"):
        demo(DemoConfig(), tmp_path, quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


def test_the_embedded_recipe_is_valid():
    config = default_config()
    assert config.pretrain.phases[0].length <= config.pretrain.model.max_position_embeddings
    assert len(config.rates) == 3 and config.train_examples == 200


def test_the_gain_is_told_with_its_interval_over_the_seeds():
    sides = {"pre-trained": {"test": [0.55, 0.5, 0.6]}, "random": {"test": [0.5, 0.52, 0.5]}}
    results = {"seeds": [1, 2, 3], "task": {"gain": 0.0433, "sides": sides}}
    assert effect_of(results) == "+4.3 points (95 % over 3 seeds: -10.6 to +19.3, which shows no effect)"
    sides["random"]["test"], results["task"]["gain"] = [0.5, 0.46, 0.55], 0.0467
    assert effect_of(results) == "+4.7 points (95 % over 3 seeds: +3.2 to +6.1)"
    sides["pre-trained"]["test"], sides["random"]["test"] = [0.55], [0.5]
    assert effect_of(results) == "+4.7 points (no interval over seeds)"


def test_the_published_report_is_made_of_the_published_results():
    folder = Path(__file__).parents[2] / "docs/results/demo"
    assert report(json.loads((folder / "results.json").read_text())) == (folder / "REPORT.md").read_text()
