"""The demo: nothing leaks over the split, nothing is imported, and (slow) the whole of it in a minute."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bertworks.apps.demo.config import TaskConfig, default_config
from bertworks.apps.demo.report import report
from bertworks.apps.demo.run import SETTINGS, demo
from bertworks.apps.demo.tasks import package_rows, split_by_name
from bertworks.apps.demo.text import Document
from bertworks.config import to_toml
from bertworks.files import InputError, write_json
from bertworks.model.config import ModelConfig

PUBLISHED = Path(__file__).parents[3] / "docs/results/demo"


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


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
            write(
                root, f"{label}/m{i}.py", f'raise RuntimeError("imported")\ndef {label}{i}({word}):\n    """{text}"""\n'
            )
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
    trained = read + read_lines(out / "tags/train.jsonl") + read_lines(out / "tags/dev.jsonl")
    assert tags and not {row["source"] for row in trained} & {row["source"] for row in tags}
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


def test_the_published_report_is_made_of_the_published_results():
    results = json.loads((PUBLISHED / "results.json").read_text())
    assert report(results) == (PUBLISHED / "REPORT.md").read_text()
