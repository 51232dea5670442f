"""Multiple choice: features of every sequence, a new task by one literal, and its folder used again."""

import csv
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_tokenizer, read_config
from bertworks.files import InputError, read_json
from bertworks.finetuning.run import finetune
from bertworks.inference.evaluation import evaluate
from bertworks.tasks.base import LengthLimits, Task
from bertworks.tasks.choice import CHOICE, Choice
from bertworks.tasks.kinds import load_data, read_rows
from support.tiny_task import FINETUNING, tiny_folder

TASK = Task("endings", ("begin", "go"), "right", "choice", ("A", "B", "C"), choices=("one", "two", "three"),
            train="train.csv", dev="dev.csv")  # fmt: skip


def write_files(folder):
    """Of three endings one is good."""
    for name, count, seed in ((TASK.train, 160, 1), (TASK.dev, 60, 2)):
        rng = random.Random(seed)
        with open(folder / name, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["begin", "go", "one", "two", "three", "right"])
            for _ in range(count):
                right = rng.randrange(3)
                words = [f"{'good' if i == right else 'bad'} {rng.choice('abcdef')}" for i in range(3)]
                writer.writerow([" ".join(rng.choices("abcdef", k=rng.randint(1, 5))), "film", *words, "ABC"[right]])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with model/, the two tables, and run/, a finished run on them."""
    place = tmp_path_factory.mktemp("choice")
    write_files(place)
    finetune(FINETUNING, TASK, load_data(TASK, place), tiny_folder(place / "model", 99), place / "run", quiet=True)
    return place


def test_it_learns_and_is_judged_the_same_again(place):
    results = read_json(place / "run/results.json")
    assert results["metrics"]["accuracy"] > 0.95 > results["majority"] + 0.4 and not results["collapsed"]
    result = evaluate(place / "run", TASK, read_rows(TASK, place / TASK.dev))
    assert result["metrics"] == pytest.approx(results["metrics"], abs=1e-6)
    assert result["predicted"] == results["predicted"] and sum(result["predicted"].values()) == 60
    settings = read_config(place / "run/model")[1]
    assert settings["architectures"] == ["BertForMultipleChoice"] and settings["bertworks_task"]["kind"] == "choice"


def test_the_order_of_the_choices_does_not_matter(place):
    """Each choice is scored by itself: the columns in another order, and even fewer of them, are right all the same."""
    rows = read_rows(TASK, place / TASK.dev)
    before = evaluate(place / "run", TASK, rows)["metrics"]["accuracy"]
    turned = replace(TASK, choices=TASK.choices[::-1], labels=TASK.labels[::-1])
    assert evaluate(place / "run", turned, read_rows(turned, place / TASK.dev))["metrics"]["accuracy"] == before
    two = [row._replace(choices=row.choices[:2]) for row in rows if row.label < 2]
    assert evaluate(place / "run", TASK, two)["metrics"]["accuracy"] > 0.95
    mixed = [rows[0], rows[1]._replace(choices=rows[1].choices[:2])]
    with pytest.raises(InputError, match=r"rows with \[2, 3\] choices; expected one number"):
        evaluate(place / "run", TASK, mixed)


def test_features(tmp_path):
    """[CLS] text [SEP] beginning and choice [SEP], cut like any pair; a row is cut as much as its worst choice."""
    tokenizer = load_tokenizer(tiny_folder(tmp_path / "model"))
    rows = [Choice("a b", ("c d", "e"), 1, 2), Choice("a b c d", ("e f g h", "e"), 0, 3)]
    inputs = CHOICE.prepare(tokenizer, rows, TASK, LengthLimits(max_seq_length=8)).inputs
    assert len(inputs) == 2 and inputs.choices == 2 and inputs.cut.tolist() == [0, 3]
    batch = inputs.batch(np.array([1, 0]))
    assert batch["input_ids"].shape == (4, 8) and batch["labels"].tolist() == [0, 1]
    words = [" ".join(tokenizer.vocab[i] for i in ids) for ids in batch["input_ids"].tolist()]
    assert words == [
        "[CLS] a b c [SEP] e f [SEP]",
        "[CLS] a b c d [SEP] e [SEP]",
        "[CLS] a b [SEP] c d [SEP] [PAD]",
        "[CLS] a b [SEP] e [SEP] [PAD] [PAD]",
    ]
    assert batch["token_type_ids"].tolist()[2] == [0, 0, 0, 0, 1, 1, 1, 0]


def test_the_same_choice_everywhere(tmp_path):
    tokenizer = load_tokenizer(tiny_folder(tmp_path / "model"))
    rows = [Choice("a", ("b", "c"), label, i) for i, label in enumerate((0, 1, 1))]
    prepared = CHOICE.prepare(tokenizer, rows, replace(TASK, choices=("one", "two")), LengthLimits())
    same = prepared.evaluate(torch.tensor([[1.0], [0.0]] * 3))
    assert same.constant_predictions and same.majority == pytest.approx(2 / 3)
    assert same.metrics["accuracy"] == pytest.approx(1 / 3)
    assert not prepared.evaluate(torch.tensor([[1.0], [0.0], [0.0], [1.0], [0.0], [1.0]])).constant_predictions
    assert same.predicted == {"0": 3, "1": 0}
