"""Each check of labelled data finds its planted case, and good data has no findings."""

import random
from dataclasses import replace

import numpy as np
import pytest

from bertworks.checkpoint.folder import load_tokenizer
from bertworks.files import InputError
from bertworks.reporting.run_files import TRAINED_ON
from bertworks.tasks.base import Example, Task
from bertworks.tasks.checks import check_labelled_data, hashes_of, seen_in_training
from bertworks.tasks.choice import Choice
from bertworks.tasks.questions import Question
from bertworks.tasks.sentences import Tagged
from conftest import WORDS
from support.tiny_task import tiny_folder

TASK = Task("own", ("text",))


def texts(count, seed=1, words=12):
    """Texts that share hardly any two words in a row."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=words)) for _ in range(count)]


def examples(count, seed=1, label=lambda i: ("good", "bad")[i % 2]):
    return [Example(text, label=label(i), line=i + 2) for i, text in enumerate(texts(count, seed))]


TRAIN, DEV = examples(240), examples(120, 2)


def found(train=TRAIN, dev=DEV, task=TASK, **reader):
    return [(one.check, one.severity, one.evidence) for one in check_labelled_data(task, train, dev, **reader)]


def test_good_data_has_no_findings(tmp_path):
    assert found() == []
    assert found(tokenizer=load_tokenizer(tiny_folder(tmp_path / "model"))) == []
    values = examples(240, label=lambda i: str(i % 5))
    assert found(values, [], replace(TASK, kind="regression")) == []
    several = examples(240, label=lambda i: ("a|b", "b", "a")[i % 3])
    assert found(several, [], replace(TASK, kind="multilabel")) == []


PLANTED = {
    "few examples": (TRAIN[:150], DEV, "few examples", "warning", "150 training examples: "),
    "few development examples": (TRAIN, DEV[:50], "few examples", "warning",
                                 "50 development examples: 95 % interval of an accuracy of 50 %: ± 14 points"),
    "unbalanced": (examples(240, label=lambda i: "bad" if i % 13 else "good"), [], "labels", "warning",
                   "label 'bad' has 221 of 240 training examples, 'good' 19"),
    "a label in dev alone": (TRAIN, examples(120, 2, lambda i: ("good", "bad", "fair")[i % 3]), "labels", "error",
                             "labels in the development examples alone, which no model can predict: 'fair'"),
    "empty": ([*TRAIN, *(Example(text, label="bad", line=900) for text in ("...", " ", "?!"))], [], "empty texts",
              "warning", "texts without a letter or digit: 3 of 243 (lines 900, 900, 900)"),
    "twice": ([*TRAIN, *(row._replace(text=row.text.upper() + "!", line=900) for row in TRAIN[:3])], [], "duplicates",
              "warning", "training examples that repeat an earlier one with its label: 3 of 243 (lines 900, 900, "),
    "two labels": ([*TRAIN, TRAIN[0]._replace(label="bad", line=900)], [], "conflicting labels", "note",
                   "training examples that have the text of an earlier one, and another label: 1 of 241 (line 900)"),
    "train in dev": (TRAIN, [*DEV, *TRAIN[:2]], "train/dev overlap", "warning",
                     "development examples that are also in train: 2 of 122 (lines 2, 3)"),
    "dev is train": (TRAIN, TRAIN[:120], "train/dev overlap", "error",
                     "development examples that are also in train: 120 of 120 (lines 2, 3, 4, ...)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name):
    train, dev, check, severity, evidence = PLANTED[name]
    [(*one, text)] = found(train, dev)
    assert one == [check, severity]
    assert text.startswith(evidence.rstrip("'"))


def test_words_that_the_vocabulary_lacks_are_found(tmp_path):
    tokenizer = load_tokenizer(tiny_folder(tmp_path / "model"))
    korean = [row._replace(text=f"{row.text} 영화 아주") for row in TRAIN]
    [hit] = found(korean, tokenizer=tokenizer)
    assert hit[:2] == ("vocabulary", "warning") and "of the subwords are [UNK]; missing characters: " in hit[2]


def test_other_kinds_of_tasks():
    """Questions overlap by their contexts, choices have no classes, tagged sentences repeat, values may be constant."""
    span = Task("q", ("question", "context"), kind="span")
    with pytest.raises(InputError, match=r"text: 1 column \(word\); expected 2 for the kind 'span'"):
        Task("q", ("word",), kind="span")
    with pytest.raises(InputError, match="label: the column 'word' is among the text columns"):
        Task("q", ("word",), label="word")
    asked = [Question(str(i), "Who?", text) for i, text in enumerate(texts(220))]
    other = [Question(str(i), "Who?", text) for i, text in enumerate(texts(110, 2))]
    assert found(asked, other, span) == []
    [hit] = found(asked, [*other, asked[3]._replace(question="Where?")], span)
    assert hit[:2] == ("train/dev overlap", "note")
    assert hit[2].startswith("development contexts that are also in train: 1 of 111 ")
    choice = Task("c", ("text",), kind="choice", choices=("a", "b"))
    some, many = ([Choice(text, ("one", "two"), 0) for text in texts(n, n)] for n in (110, 220))
    assert found(many, some, choice) == []
    tagging = Task("t", ("word",), kind="tagging")
    train = [Tagged(text, (), (), i) for i, text in enumerate([*texts(219), texts(1)[0]])]
    assert found(train, [Tagged(text, (), (), i) for i, text in enumerate(texts(110, 2))], tagging) == []
    assert [hit[:2] for hit in found(train, train[:110], tagging)] == [("train/dev overlap", "error")]


def test_examples_that_a_run_was_trained_on_are_recognised_by_their_words(tmp_path):
    """Whatever the task is called, and whichever file they come from."""
    np.save(tmp_path / TRAINED_ON, hashes_of(TASK, TRAIN))
    [one] = seen_in_training(tmp_path, Task("another", ("sentence",)), [*DEV, *TRAIN[:40]])
    assert one.severity == "warning"
    assert one.evidence.startswith(f"training examples of {tmp_path} among the evaluated ones: 40 of 160; ")
    assert seen_in_training(tmp_path, TASK, DEV) == seen_in_training(tmp_path, TASK, [*DEV, *TRAIN[:5]]) == []
    assert seen_in_training(tmp_path / "earlier version", TASK, TRAIN) == []
    (tmp_path / TRAINED_ON).write_bytes(b"x")
    with pytest.raises(InputError, match="not an array of hashes"):
        seen_in_training(tmp_path, TASK, DEV)
