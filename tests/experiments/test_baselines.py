"""Baselines without an encoder, and the rows that a seed draws."""

import itertools
import random
from dataclasses import replace

import pytest

from bertworks.cli.study import baseline
from bertworks.experiments.baselines import STRENGTHS, BaselineConfig, fit_baseline
from bertworks.files import InputError
from bertworks.tasks.base import Data, Example, Task
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.sampling import draw_rows, hold_out_rows
from bertworks.tasks.selection import DividedRows
from bertworks.tasks.sentences import Tagged

NAMES = Task("names", ("word",), "tag", "tagging", metrics=("f1", "precision", "recall", "accuracy"))


def texts(count: int, seed: int) -> list[Example]:
    """The last word of a text determines its label; the other words are noise."""
    rng = random.Random(seed)
    noise = (" ".join(rng.choices(["the", "of", "and", "to"], k=4)) for _ in range(count))
    topics = ("court", "law"), ("goal", "sport")
    return [Example(f"{words} {topics[i % 2][0]}", None, topics[i % 2][1]) for i, words in enumerate(noise)]


def sentences(count: int, seed: int, document: int = 3) -> list[Tagged]:
    """A name is the capitalised word after `mr`; a capital elsewhere is none, and no name occurs twice."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        word = "".join(rng.choices("abcdefghij", k=8)).capitalize()
        before, tag = (("mr", "B-PER"), ("the", "O"))[rng.random() < 0.5]
        text = f"we saw {before} {word} again"
        units = [(0, 2), (3, 6), (7, 7 + len(before)), (8 + len(before), 16 + len(before))]
        rows.append(Tagged(text, (*units, (17 + len(before), len(text))), ("O", "O", "O", tag, "O"), i, i // document))
    return rows


# ---- rows drawn by a seed


def test_a_draw_is_a_function_of_its_seed_and_part_of_a_larger_one():
    rows = texts(100, 1)
    rows = [row._replace(line=i) for i, row in enumerate(rows)]
    few, again, other, more = (draw_rows(rows, n, seed) for n, seed in ((20, 1), (20, 1), (20, 2), (50, 1)))
    assert few == again != other and len(few) == 20 and {*few} < {*more}
    assert [row.line for row in few] == sorted(row.line for row in few)
    assert [row.line for row in few] != list(range(20))  # not the first ones
    assert draw_rows(rows, 0, 1) == draw_rows(rows, 100, 1) == rows


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("sizes", "divisible"),
    [
        ((1,) * 100, True),
        ((7,) * 14 + (2,), True),
        ((30, 20, 15, 10, 10, 5, 5, 3, 1, 1), True),
        *((sizes, False) for sizes in ((99, 1), (60, 40), (50, 50), (97, 1, 1, 1), (100,))),
    ],
)
def test_held_out_rows_are_whole_documents_unless_these_are_too_large_or_too_unequal(sizes, divisible, seed):
    documents = [i for i, size in enumerate(sizes) for _ in range(size)]
    rows = [row._replace(document=i) for row, i in zip(sentences(100, 1), documents, strict=True)]
    train, held_out = hold_out_rows(rows, seed)
    assert len(train) + len(held_out) == 100 and 10 <= len(held_out) <= 33
    assert hold_out_rows(rows, seed) == (train, held_out) != hold_out_rows(rows, seed + 1)
    if divisible:
        assert not {row.document for row in train} & {row.document for row in held_out}
    else:
        assert len(held_out) == 20
    assert [len(part) for part in hold_out_rows(rows[:2], 1)] == [1, 1]  # of one document, too
    assert hold_out_rows(rows[:1], 1) == (rows[:1], [])


# ---- baselines


def test_words_tell_topics_apart():
    data = Data(texts(40, 1), texts(30, 2), more={"test": texts(20, 3)})
    results = fit_baseline(Task("topics", ("text",)), data)
    assert results["metrics"] == {"accuracy": 1.0, "accuracy_test": 1.0}
    assert results["strength"] in STRENGTHS and not results["collapsed"]
    assert results["examples"] == {"train": 40, "dev": 30}


def test_the_command_scores_the_rows_that_finetune_evaluates(tmp_path, capsys):
    """No word occurs twice, so that only characters tell the labels apart."""
    table, ends = tmp_path / "own.csv", ("heit,noun", "los,adjective")
    words = [f"{a}{b}{ends[i % 2]}" for i, (a, b) in enumerate(itertools.product("abcdefgh", repeat=2))]
    table.write_text("\n".join(["text,label", *words]), encoding="utf-8")
    task, data = DividedRows(train=table, dev_share=0.25, split_seed=3).read_data()
    for units, expected in (("words", fit_baseline(task, data)["metrics"]["accuracy"]), ("characters", 1.0)):
        baseline(["--train", str(table), "--dev-share", "0.25", "--split-seed", "3", "--units", units])
        printed, counts = capsys.readouterr()
        assert printed.split()[:2] == ["accuracy", f"{expected:.4f}"] and f" {len(data.dev)} to evaluate on" in counts


def test_neighbours_and_shapes_find_unseen_names():
    results = fit_baseline(NAMES, Data(sentences(120, 1), sentences(60, 2)))
    assert results["metrics"]["f1"] == 1.0 and set(results["metrics"]) == set(NAMES.metrics)


def test_the_strength_is_chosen_by_held_out_training_rows():
    """Development rows of another topic change the metrics and not the choice."""
    train = texts(40, 1)
    flipped = [row._replace(label={"law": "sport", "sport": "law"}[row.label]) for row in texts(30, 2)]
    one, other = (fit_baseline(Task("topics", ("text",)), Data(train, dev)) for dev in (texts(30, 2), flipped))
    assert (one["strength"], one["kept_back"]) == (other["strength"], other["kept_back"])
    assert (one["metrics"]["accuracy"], other["metrics"]["accuracy"]) == (1.0, 0.0)
    assert one["kept_back"][f"{one['strength']:g}"] == max(one["kept_back"].values())


def test_a_single_label_is_predicted_everywhere():
    train = [row._replace(label="law") for row in texts(10, 1)]
    task = Task("topics", ("text",), labels=("law", "sport"))
    results = fit_baseline(task, Data(train, texts(30, 2)), BaselineConfig(seed=2))
    assert results["metrics"] == {"accuracy": 0.5} and results["collapsed"]


def test_what_two_texts_have_in_common_is_a_feature():
    """No word occurs in two rows; only whether both texts have the same one tells labels apart."""
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghij", k=8)) for _ in range(160)]
    rows = [Example(names[i], names[i + 80 * (i % 2)], str(i % 2)) for i in range(80)]
    task, data = Task("same", ("text", "other")), Data(rows[:50], rows[50:])
    words_alone, overlap = (fit_baseline(task, data, BaselineConfig(units=units)) for units in ("words", "overlap"))
    assert words_alone["metrics"]["accuracy"] < 0.9 and overlap["metrics"] == {"accuracy": 1.0}
    scored = [row._replace(label=str(4.0 - 3.5 * float(row.label or 0))) for row in rows]
    task = Task("alike", ("text", "other"), "score", "regression", metrics=("pearson",))
    results = fit_baseline(task, Data(scored[:50], scored[50:]), BaselineConfig(units="overlap"))
    assert results["metrics"]["pearson"] > 0.9 and not results["collapsed"]


def test_parts_of_words_are_features_of_characters():
    ends = [Example(word + ("heit", "los")[i % 2], None, ("noun", "adjective")[i % 2])
            for i, word in enumerate(a + b for a in "abcdefgh" for b in "abcdefgh")]  # fmt: skip
    data, task = Data(ends[:40], ends[40:]), Task("words", ("text",))
    words, characters = (fit_baseline(task, data, BaselineConfig(units=units)) for units in ("words", "characters"))
    assert words["metrics"]["accuracy"] < 0.7 and characters["metrics"] == {"accuracy": 1.0}


def test_a_task_without_a_baseline_is_refused():
    rows = texts(10, 1)
    with pytest.raises(InputError, match="squad1 is of the kind span; a baseline expects single, pair, regression"):
        fit_baseline(TASKS["squad1"], Data(rows, rows))
    rows = sentences(1, 1)
    with pytest.raises(InputError, match="names: 1 training rows; expected two or more"):
        fit_baseline(replace(NAMES, labels=("O", "B-PER", "I-PER")), Data(rows, rows))
