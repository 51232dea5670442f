"""Features against the original's (run_classifier.py), padding, order of examples."""

import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest

from bertworks.files import InputError
from bertworks.tasks.base import Example, LengthLimits, Task
from bertworks.tasks.choice import Choice
from bertworks.tasks.choice import prepare as prepare_choices
from bertworks.tasks.classification import prepare
from bertworks.tasks.inputs import Inputs, Order
from bertworks.tokenizer import Tokenizer
from support.shared_data import shared
from support.tiny_task import tiny_folder


def featurise(tokenizer, examples, labels, length) -> Inputs:
    task = Task("t", labels=tuple(labels))
    return prepare(tokenizer, examples, task, LengthLimits(max_seq_length=length)).inputs


@pytest.mark.parametrize("length", [32, 128])
@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased"])
def test_equal_to_the_original(name, length):
    oracle = shared("oracle/fine_tuning")
    with gzip.open(oracle / "examples.jsonl.gz", "rt", encoding="utf-8") as file:
        given = [json.loads(line) for line in file]
    expected = np.load(oracle / f"features_{name}_{length}.npz")
    tokenizer = Tokenizer.load(shared(f"data/vocab/{name}.txt"), lowercase="uncased" in name)
    for labels in {tuple(row["label_list"]) for row in given}:
        rows = np.array([i for i, row in enumerate(given) if tuple(row["label_list"]) == labels])
        examples = [Example(given[i]["text_a"], given[i]["text_b"], given[i]["label"]) for i in rows]
        inputs = featurise(tokenizer, examples, labels, length)
        batch = inputs.batch(np.arange(len(rows)), length)
        assert np.array_equal(batch["input_ids"], expected["input_ids"][rows])
        assert np.array_equal(batch["attention_mask"].long(), expected["input_mask"][rows])
        assert np.array_equal(batch["token_type_ids"], expected["segment_ids"][rows])
        assert np.array_equal(batch["labels"], expected["label_id"][rows])
        assert ((inputs.cut > 0) <= (inputs.lengths == length)).all()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer.load(tiny_folder(tmp_path_factory.mktemp("tiny") / "model"))


def test_what_is_cut_is_counted(tokenizer):
    examples = [Example("a b c d e f"), Example("a b"), Example("a b c d", "e f g h")]
    inputs = featurise(tokenizer, examples, (), 6)
    assert inputs.lengths.tolist() == [6, 4, 6] and inputs.cut.tolist() == [2, 0, 5]
    assert inputs.truncation() == {"examples": 2, "tokens": 7}
    assert inputs.batch(np.array([2]))["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]


def test_no_examples_no_labels_and_an_unknown_one(tokenizer):
    assert len(featurise(tokenizer, [], ("x",), 8)) == 0
    assert featurise(tokenizer, [Example("a")], ("x",), 8).labels.tolist() == [-100]
    with pytest.raises(InputError, match="line 7: label 'y'; expected one of 'x'"):
        featurise(tokenizer, [Example("a", None, "y", 7)], ("x",), 8)


@pytest.mark.parametrize(("examples", "size", "group"), [(100, 8, 16), (96, 8, 4), (5, 8, 16), (37, 10, 1)])
def test_every_epoch_reads_every_example_once(examples, size, group):
    lengths = np.random.default_rng(0).integers(3, 40, examples)
    updates = 3 * examples // size
    order = Order(lengths, size, updates, seed=1, group=group)
    rows = np.concatenate([order.rows(update) for update in range(updates)])
    read = np.bincount(rows, minlength=examples)
    assert read.min() >= updates * size // examples and read.max() <= 3
    assert len(rows) == updates * size > 3 * examples - size  # an incomplete last batch is left out
    again = Order(lengths, size, updates, seed=1, group=group)  # any update, in any order
    assert all(np.array_equal(again.rows(u), rows[u * size : (u + 1) * size]) for u in reversed(range(updates)))
    other = Order(lengths, size, updates, seed=2, group=group)
    assert not np.array_equal(other.rows(0), order.rows(0))


def test_batches_hold_similar_lengths():
    lengths = np.random.default_rng(0).integers(3, 128, 4096)
    cells = {}
    for group in (1, 16):
        order = Order(lengths, 32, 128, seed=1, group=group)
        cells[group] = sum(32 * lengths[order.rows(update)].max() for update in range(128))
    assert cells[16] < 1.1 * lengths.sum() < 1.7 * lengths.sum() < cells[1]


def test_batches_by_length_cover_everything(tokenizer):
    inputs = featurise(tokenizer, [Example("a " * n) for n in (3, 9, 1, 5, 7)], (), 32)
    batches = list(inputs.by_length(2))
    assert [rows.tolist() for rows in batches] == [[1, 4], [3, 0], [2]]


def test_batches_by_tokens_stay_within_their_number(tokenizer):
    inputs = featurise(tokenizer, [Example("a " * n) for n in (3, 9, 1, 60, 7, 30)], (), 64)
    batches = list(inputs.by_length(tokens=64))
    assert [rows.tolist() for rows in batches] == [[3], [5, 1], [4, 0, 2]]
    assert all(len(rows) * inputs.padded_length(rows) <= 64 for rows in batches)


@pytest.mark.parametrize(("lengths", "expected"), [((3,), 8), ((57,), 64), ((65,), 80), ((129,), 140), ((3, 3), 16)])
def test_few_lengths_of_batches(lengths, expected):
    """Each length is another shape of products to prepare and to keep; a short text alone is not padded as much."""
    inputs = Inputs.from_ids([[5] * length for length in lengths], SimpleNamespace(pad_id=0), limit=140)
    assert inputs.padded_length(np.arange(len(lengths))) == expected


def test_inputs_of_several_requests_share_a_pass(tokenizer):
    """Each sequence is the one it was, whatever lies beside it, and each part gets its own scores back."""
    one = featurise(tokenizer, [Example("a b", "c"), Example("d")], (), 32)
    task = Task("t", kind="choice", choices=("x", "y"))
    other = prepare_choices(
        tokenizer, [Choice("a b c", ("d e", "f g h"))], task, LengthLimits(max_seq_length=48)
    ).inputs
    both = Inputs.concat([one, other])
    assert len(both) == 4 and both.limit == 48
    for number, (part, row) in enumerate([(one, 0), (one, 1), (other, 0), (other, 1)]):
        sequence = part.sequences(np.array([0]))[row] if part is other else row
        begin, end = part.edges[sequence : sequence + 2]
        assert both.ids[slice(*both.edges[number : number + 2])].tolist() == part.ids[begin:end].tolist()
        assert both.first[number] == part.first[sequence]
