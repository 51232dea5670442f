"""A new task of each kind is one literal: it learns what can be learned, and is judged by names, never by numbers."""

import csv
import json
import random
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_tokenizer, read_config
from bertworks.files import InputError
from bertworks.finetuning.run import finetune
from bertworks.inference.evaluation import evaluate
from bertworks.tasks.base import Example, LengthLimits, Task
from bertworks.tasks.classification import prepare
from bertworks.tasks.kinds import KINDS, load_data, own_table, own_task, read_rows
from bertworks.tokenizer import Tokenizer
from support.tiny_task import FINETUNING, tiny_folder

FILES = {"train": "train.csv", "dev": "dev.csv"}
TASKS = {  # the literals: all that a new task takes
    "single": Task("films", ("text",), "stars", labels=("poor", "fine"), raw_labels=("1", "5"), **FILES),
    "pair": Task("second", ("text", "other"), "stars", labels=("fine", "poor"), metrics=("f1", "matthews"), **FILES),
    "regression": Task("goodness", ("text",), "stars", "regression", metrics=("spearman", "pearson"), **FILES),
    "multilabel": Task(
        "letters", ("text",), "stars", "multilabel", ("x", "y", "z"), metrics=("micro_f1", "exact_match"), **FILES
    ),
}
SETS = {"good": "x", "bad": "y|x", "film": "", ",": "z"}


def row(kind, rng):
    """Texts and a label that they decide."""
    letters = [rng.choice("abcdef") for _ in range(rng.randint(1, 6))]
    word, other = rng.choice(["good", "bad"]), rng.choice(["good", "bad"])
    if kind == "single":
        return [f"{word} film, {' '.join(letters)}", "5" if word == "good" else "1"]
    if kind == "pair":  # only the second text counts
        return [f"{word} film", f"{other} film, {' '.join(letters)}", "fine" if other == "good" else "poor"]
    if kind == "regression":
        count = rng.randint(0, 4)
        return [" ".join(["good"] * count + ["bad"] * (4 - count)), str(count / 2)]
    word = rng.choice(list(SETS))
    return [f"{word} {' '.join(letters)}", SETS[word]]


def write_files(folder, kind):
    task = TASKS[kind]
    for name, count, seed in ((task.train, 240, 1), (task.dev, 60, 2)):
        rng = random.Random(seed)
        with open(folder / name, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*task.text, task.label])
            writer.writerows(row(kind, rng) for _ in range(count))


@pytest.fixture(scope="module", params=TASKS)
def finished(request, tmp_path_factory):
    """kind, folder of a finished run on it, its results, the rows of dev."""
    kind = request.param
    place = tmp_path_factory.mktemp(kind)
    write_files(place, kind)
    task = TASKS[kind]
    model = tiny_folder(place / "model", 99)
    config = replace(FINETUNING, epochs=24) if kind == "multilabel" else FINETUNING
    results = finetune(config, task, load_data(task, place), model, place / "run", quiet=True)
    return kind, place / "run", results, read_rows(task, place / task.dev)


def test_it_learns_and_is_judged_the_same_again(finished):
    kind, run, results, dev = finished
    first = TASKS[kind].metrics[0]
    assert results["metrics"][first] > 0.9 > results["majority"] + 0.1 and not results["collapsed"]
    result = evaluate(run, TASKS[kind], dev)
    assert result["metrics"] == pytest.approx(results["metrics"], abs=1e-6)
    assert result["predicted"] == results["predicted"] and result["truncation"] == results["truncation"]["dev"]
    settings = read_config(run / "model")[1]
    assert settings["bertworks_task"] == {"kind": kind, "name": TASKS[kind].name}
    assert tuple(settings["id2label"].values()) == (TASKS[kind].labels or ("stars",))


def test_labels_meet_by_name(finished):
    kind, run, _, dev = finished
    task = TASKS[kind]
    if kind == "regression":
        other = replace(task, label="score")  # it has one output, whatever it is called
    else:
        other = replace(
            task, labels=task.labels[::-1], raw_labels=task.raw_labels[::-1], metrics=KINDS[kind].metrics[:2]
        )
    again = replace(task, metrics=other.metrics)
    assert evaluate(run, other, dev)["metrics"] == pytest.approx(evaluate(run, again, dev)["metrics"], abs=1e-6)
    if kind != "regression":
        unknown = replace(task, labels=("other", *task.labels), raw_labels=())
        with pytest.raises(InputError, match=f"the data of {task.name} also has other"):
            evaluate(run, unknown, dev)


def test_a_model_of_another_kind_is_refused(finished):
    kind, run, _, dev = finished
    for other in TASKS.values():
        if {kind, other.kind} & {"regression", "multilabel"} and kind != other.kind:
            with pytest.raises(InputError, match=f"was fine-tuned for the kind {kind}; expected one for {other.kind}"):
                evaluate(run, other, dev)


# ---- collapsed runs


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(tiny_folder(tmp_path_factory.mktemp("tiny") / "model"))


def evaluated(tokenizer, task, labels, scores):
    rows = [Example("a", "b" if task.kind == "pair" else None, label, i) for i, label in enumerate(labels)]
    return KINDS[task.kind].prepare(tokenizer, rows, task, LengthLimits()).evaluate(torch.tensor(scores))


@pytest.mark.parametrize(
    ("kind", "labels", "same", "different", "majority"),
    [
        ("single", ["poor", "fine", "fine"], [[0.0, 1.0]] * 3, [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], 2 / 3),
        ("pair", ["poor", "fine", "fine"], [[0.1, 0.0]] * 3, [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], 1 / 2),
        ("regression", ["0", "1", "2"], [[1.0]] * 3, [[0.0], [1.0], [2.0]], 0.0),
        ("multilabel", ["x", "x|y", ""], [[1.0, -1, -1]] * 3, [[1.0, -1, -1], [1.0, 1, -1], [-1.0] * 3], 2 / 3),
    ],
)
def test_the_same_answer_everywhere(tokenizer, kind, labels, same, different, majority):
    task = TASKS[kind]
    same_label, right = (evaluated(tokenizer, task, labels, scores) for scores in (same, different))
    assert same_label.constant_predictions and not right.constant_predictions
    assert same_label.majority == right.majority == pytest.approx(majority)
    assert right.metrics[task.metrics[0]] == pytest.approx(1.0)
    assert same_label.metrics[task.metrics[0]] <= majority + 1e-9
    if kind != "regression":  # if all true answers are the same, so may be all given ones
        assert not evaluated(tokenizer, task, [labels[1]] * 3, same).constant_predictions


def test_predictions_are_told_with_their_lines(finished):
    kind, run, results, dev = finished
    told = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    assert [row["line"] for row in told] == [row.line for row in dev]
    if kind == "regression":
        assert np.corrcoef([row["label"] for row in told], [row["predicted"] for row in told])[0, 1] > 0.9
    else:
        sets = [[set(text.split("|")) for text in (row["label"], row["predicted"])] for row in told]
        assert [true for true, _ in sets] == [set(row.label.split("|")) for row in dev]
        share = np.mean([true == predicted for true, predicted in sets])
        metrics = results["metrics"]
        assert share == pytest.approx(metrics.get("accuracy", metrics.get("exact_match", share)))


def test_long_texts_beside_pairs_are_decoded_row_by_row(tmp_path):
    """A single text of any length is averaged over its windows, a pair is cut; each row reports its own tokens."""
    tokenizer = Tokenizer.load(tiny_folder(tmp_path / "model"))
    task, limits = Task("t", labels=("no", "yes")), LengthLimits(max_seq_length=8)
    texts = [Example("a"), Example("a b c d e f g h"), Example("a b c d", "e f")]
    rows = prepare(tokenizer, texts, task, limits, windowed=True)
    assert rows.windows.text.tolist() == [0, 1, 1, 2]
    assert rows.tokens.tolist() == [3, 16, 8] and rows.cut.tolist() == [0, 0, 1]
    scores = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = rows.decode(scores, {})
    chances = scores.softmax(-1).numpy()
    expected = [chances[0], chances[1:3].mean(0), chances[3]]
    assert [one["label"] for one in found] == ["yes", "no", "no"] and [one["windows"] for one in found] == [1, 2, 1]
    for one, row in zip(found, expected, strict=True):
        assert list(one["scores"].values()) == pytest.approx(row.tolist()) and one["score"] == pytest.approx(row.max())
    assert rows.decode(scores, {}, raw=True)[1]["scores"] == {"no": 1.0, "yes": 0.5}
    assert prepare(tokenizer, [Example("a b c d e f g h")], task, limits).cut.tolist() == [2]


def test_labels_in_another_unicode_form_are_the_same_labels():
    """A file of macOS beside one of another system: on the screen they are the same label."""
    task = own_task("single", ("text",), "label")
    composed, decomposed = "긍정", unicodedata.normalize("NFD", "긍정")
    rows = [{"text": f"{i}", "label": label} for i, label in enumerate([composed, "부정", decomposed])]
    with pytest.raises(InputError, match=r"labels .* and '\\uae0d\\uc815' are one value in two spellings"):
        own_table(task, rows, rows)
    assert own_table(task, rows[:2], rows[1:])[1].dev[1].label == composed
