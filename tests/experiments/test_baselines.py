"""Baselines without an encoder, and the rows that a seed draws."""

import random
from dataclasses import replace

import pytest

from bertworks.experiments.baselines import STRENGTHS, BaselineConfig, fit_baseline, shape_of
from bertworks.files import InputError
from bertworks.tasks.base import Data, Example, Task
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.sampling import draw_rows, hold_out_rows
from bertworks.tasks.sentences import Tagged

NAMES = Task("names", ("word",), "tag", "tagging", metrics=("f1", "precision", "recall", "accuracy"))


def texts(count: int, seed: int, seen: list[str] | None = None) -> list[Example]:
    """A text is about the word that it has; the other words say nothing."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        label = ("law", "sport")[i % 2]
        noise = rng.choices(["the", "of", "and", "to"], k=4)
        rows.append(Example(" ".join([*noise, {"law": "court", "sport": "goal"}[label]]), None, label))
    return rows


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


def test_documents_are_drawn_whole_but_for_the_last():
    drawn = draw_rows(sentences(300, 1, document=10), 42, 1)
    sizes = sorted(sum(row.document == one for row in drawn) for one in {row.document for row in drawn})
    assert sizes == [2, 10, 10, 10, 10]


@pytest.mark.parametrize("document", [1, 7])
def test_rows_that_are_kept_back_share_no_document_with_the_others(document):
    rows = sentences(100, 1, document)
    kept, back = hold_out_rows(rows, 1)
    assert len(kept) + len(back) == 100 and 17 <= len(back) <= 23
    assert not {row.document for row in kept} & {row.document for row in back}
    assert hold_out_rows(rows, 1) == (kept, back) != hold_out_rows(rows, 2)
    assert [len(part) for part in hold_out_rows(rows[:2], 1)] == [1, 1]  # of one document, too
    assert hold_out_rows(rows[:1], 1) == (rows[:1], [])


@pytest.mark.parametrize("sizes", [(99, 1), (60, 40), (50, 50), (97, 1, 1, 1), (100,)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_documents_that_are_too_large_or_too_unequal_are_split_row_by_row(sizes, seed):
    rows = [row._replace(document=i) for row, i in zip(sentences(100, 1), numbers(sizes), strict=True)]
    kept, back = hold_out_rows(rows, seed)
    assert (len(kept), len(back)) == (80, 20)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_whole_documents_of_unequal_sizes_are_kept_back_where_they_can_be(seed):
    sizes = (30, 20, 15, 10, 10, 5, 5, 3, 1, 1)
    rows = [row._replace(document=i) for row, i in zip(sentences(100, 1), numbers(sizes), strict=True)]
    kept, back = hold_out_rows(rows, seed)
    assert 10 <= len(back) <= 33 and len(kept) + len(back) == 100
    assert not {row.document for row in kept} & {row.document for row in back}


def numbers(sizes: tuple[int, ...]) -> list[int]:
    """The number of each row's document."""
    return [i for i, size in enumerate(sizes) for _ in range(size)]


# ---- baselines


def test_words_tell_topics_apart():
    data = Data(texts(40, 1), texts(30, 2), more={"test": texts(20, 3)})
    found = fit_baseline(Task("topics", ("text",)), data)
    assert found["metrics"] == {"accuracy": 1.0, "accuracy_test": 1.0}
    assert found["strength"] in STRENGTHS and found["examples"] == {"train": 40, "dev": 30} and not found["collapsed"]


def test_neighbours_and_shapes_find_names_that_were_never_seen():
    found = fit_baseline(NAMES, Data(sentences(120, 1), sentences(60, 2)))
    assert found["metrics"]["f1"] == 1.0 and set(found["metrics"]) == set(NAMES.metrics)


def test_the_strength_is_chosen_by_training_rows_that_were_kept_back():
    """Development rows of another topic change the metrics and not the choice."""
    train = texts(40, 1)
    flipped = [row._replace(label={"law": "sport", "sport": "law"}[row.label]) for row in texts(30, 2)]
    one, other = (fit_baseline(Task("topics", ("text",)), Data(train, dev)) for dev in (texts(30, 2), flipped))
    assert (one["strength"], one["kept_back"]) == (other["strength"], other["kept_back"])
    assert (one["metrics"]["accuracy"], other["metrics"]["accuracy"]) == (1.0, 0.0)
    assert one["kept_back"][f"{one['strength']:g}"] == max(one["kept_back"].values())


def test_one_label_alone_is_answered_everywhere():
    train = [row._replace(label="law") for row in texts(10, 1)]
    task = Task("topics", ("text",), labels=("law", "sport"))
    found = fit_baseline(task, Data(train, texts(30, 2)), BaselineConfig(seed=2))
    assert found["metrics"] == {"accuracy": 0.5} and found["collapsed"]


def test_what_no_baseline_can_do_is_said():
    rows = [row._replace(pair="b") for row in texts(10, 1)]
    with pytest.raises(InputError, match="mrpc is of the kind pair; a baseline expects single or tagging"):
        fit_baseline(TASKS["mrpc"], Data(rows, rows))
    rows = sentences(1, 1)
    with pytest.raises(InputError, match="names: 1 training rows; expected two or more"):
        fit_baseline(replace(NAMES, labels=("O", "B-PER", "I-PER")), Data(rows, rows))
    with pytest.raises(ValueError, match="max_iter"):
        BaselineConfig(max_iter=0)


def test_shapes():
    assert [shape_of(word) for word in ("F16-like", "U.S.", "1,000", "McDonald", "서울")] == [
        "X0-x", "X.X.", "0,0", "XxXx", "x",
    ]  # fmt: skip
