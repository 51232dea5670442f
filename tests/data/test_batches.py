"""Batches: what each tensor holds, and that they are the same however they are asked for."""

from collections import Counter

import numpy as np
import pytest
import torch

from bertworks.data.batches import PretrainingData
from bertworks.data.instances import InstanceConfig, StreamPosition
from bertworks.data.masking import MaskingConfig
from bertworks.data.opening import open_store
from bertworks.data.show import instances_as_text
from bertworks.tokenizer import Tokenizer
from conftest import built_store

pytest_plugins = ["support.build_fixtures"]

pytestmark = pytest.mark.usefixtures("small_groups")


def unmasked(batch):
    ids = batch["input_ids"].clone().flatten()
    used = batch["masked_labels"] >= 0
    ids[batch["masked_positions"][used]] = batch["masked_labels"][used]
    return ids.view_as(batch["input_ids"])


def rows_of(batch):
    """Each instance with its masks, as something that can be counted."""
    length = batch["input_ids"].shape[1]
    positions = batch["masked_positions"].view(len(batch["input_ids"]), -1) % length
    labels = batch["masked_labels"].view(len(positions), -1)
    parts = torch.cat([batch["input_ids"], positions, labels, batch["pair_labels"][:, None]], 1)
    return [tuple(row) for row in parts.tolist()]


def same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("name", "separators"), [("tiny_store", 1), ("byte_store", 2)])
def test_a_batch_is_cls_a_sep_b_sep_with_its_masks_laid_over(request, name, separators):
    """Byte-level BPE has RoBERTa's layout: two separators and no segments."""
    data, count, longest = request.getfixturevalue(name).data(length=48), 100, 0
    (batch, _), (taken, _) = data.take(StreamPosition(), count), data.stream.take(StreamPosition(), count)
    plan = np.concatenate([data.stream.group(group)[0][rows] for group, rows in taken])
    ids, vocabulary = unmasked(batch), data.vocabulary
    types = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in batch.items()}
    slots, cells = (torch.int64, (count * data.max_predictions,)), (torch.int64, (count, 48))
    assert types == {
        "input_ids": cells, "token_type_ids": cells, "attention_mask": (torch.bool, (count, 48)),
        "masked_positions": slots, "masked_labels": slots, "pair_labels": (torch.int64, (count,)),
    }  # fmt: skip
    for i, (shard, a, a_stop, b, b_stop, is_random) in enumerate(plan.tolist()):
        tokens = data.shards[shard].tokens
        one, two = tokens[a:a_stop].tolist(), tokens[b:b_stop].tolist()
        first = [vocabulary.cls_id, *one, *[vocabulary.sep_id] * separators]
        expected = [*first, *two, vocabulary.sep_id]
        n, second = len(expected), int(separators == 1)
        longest = max(longest, n)
        assert ids[i].tolist() == expected + [vocabulary.pad_id] * (48 - n)
        assert batch["attention_mask"][i].tolist() == [True] * n + [False] * (48 - n)
        assert batch["token_type_ids"][i].tolist() == [0] * len(first) + [second] * (len(two) + 1) + [0] * (48 - n)
        assert batch["pair_labels"][i] == is_random
        used = batch["masked_labels"].view(count, -1)[i] >= 0
        positions = batch["masked_positions"].view(count, -1)[i]
        assert used.sum() == min(data.max_predictions, max(1, round(n * 0.15)))
        assert not positions[~used].any() and (positions[used] // 48 == i).all()
        special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id}
        assert not special & {*ids[i][positions[used] % 48].tolist()}
    assert longest == 48


def test_rows_of_a_batch_are_rows_of_the_whole_batch(tiny_store):
    data = tiny_store.data()
    position = StreamPosition(1, 13)
    whole, after = data.take(position, 60)
    for rows in (range(60), range(20), range(7, 31), range(59, 60), range(40, 60)):
        part, end = tiny_store.data().take(position, 60, rows)
        assert end == after
        assert rows_of(part) == rows_of(whole)[rows.start : rows.stop]
        assert torch.equal(part["attention_mask"], whole["attention_mask"][rows.start : rows.stop])
        assert torch.equal(part["token_type_ids"], whole["token_type_ids"][rows.start : rows.stop])


def test_a_stream_goes_on_from_any_position(tiny_store):
    data, position, one = tiny_store.data(), StreamPosition(), []
    for count in (30, 1, 64, 5, 200):
        fresh = tiny_store.data()
        same(fresh.take(position, count)[0], data.take(position, count)[0])
        batch, position = data.take(position, count)
        one += rows_of(batch)
    assert position.group > 1
    assert one == rows_of(tiny_store.data().take(StreamPosition(), 300)[0])


def epoch(data, number):
    groups = range(number * data.stream.groups, (number + 1) * data.stream.groups)
    return [row for w in groups for row in rows_of(data.take(StreamPosition(w), len(data.stream.group(w)[1]))[0])]


@pytest.mark.parametrize("whole_word", [False, True])
def test_static_masks_repeat_and_dynamic_ones_never_do(tiny_store, whole_word):
    static = tiny_store.data(dupe_factor=2, whole_word=whole_word)
    epochs = [epoch(static, number) for number in range(3)]
    assert Counter(epochs[0]) == Counter(epochs[2]) and epochs[0] != epochs[2]
    assert Counter(epochs[0]) != Counter(epochs[1])
    dynamic = tiny_store.data(dupe_factor=0, whole_word=whole_word)
    seen = [set(epoch(dynamic, number)) for number in range(3)]
    assert not seen[0] & seen[1] and not seen[1] & seen[2] and not seen[0] & seen[2]


def test_batches_are_one_pass_in_pieces(tiny_store):
    data = tiny_store.data(split="validation")
    made = list(data.batches(16, 1000))
    assert all(len(batch["input_ids"]) <= 16 for batch in made)
    assert [row for batch in made for row in rows_of(batch)] == epoch(data, 0)
    assert len(list(data.batches(16, 2))) == 2
    same(made[0], next(data.batches(16, 1)))


def bare_data(tiny_store, length=32, **instances):
    """Data of the store without masking."""
    vocabulary = tiny_store.data().vocabulary
    config = InstanceConfig(**{"dupe_factor": 0} | instances)
    return PretrainingData(open_store(tiny_store.path), "train", vocabulary, length, config, None, 1)


def test_without_masking_the_same_text_stands_there_whole(tiny_store):
    masked, bare = tiny_store.data(), bare_data(tiny_store)
    for rows in (None, range(7, 31)):
        one, after = masked.take(StreamPosition(1, 13), 60, rows)
        other, end = bare.take(StreamPosition(1, 13), 60, rows)
        assert end == after and one.keys() - other.keys() == {"masked_positions", "masked_labels"}
        assert torch.equal(other["input_ids"], unmasked(one))
        for name in ("attention_mask", "token_type_ids", "pair_labels"):
            assert torch.equal(one[name], other[name])
    tokenizer = Tokenizer.load(open_store(tiny_store.path).tokenizer_folder)
    assert not any("<" in line or "[MASK]" in line for line in instances_as_text(bare, tokenizer, 20))
    assert any("<" in line for line in instances_as_text(masked, tokenizer, 20))


# ---- RoBERTa's layout and marks


@pytest.fixture(scope="module")
def byte_store(tmp_path_factory):
    """A store of byte-level BPE."""
    return built_store(tmp_path_factory.mktemp("bytes"), algorithm="bpe", vocab_size=400)


def test_a_document_is_tokenized_as_if_at_once(byte_store):
    store = open_store(byte_store.path)
    tokenizer, shard = Tokenizer.load(store.tokenizer_folder), store.shards("train")[0]
    for document in range(5):
        first, last = shard.sentences[shard.documents[document : document + 2]]
        ids = shard.tokens[first:last].tolist()
        assert tokenizer.ids_of([tokenizer.decode(ids)]) == [ids]


@pytest.mark.parametrize("input_format", ["segment-pair", "full-sentences"])
def test_whole_words_of_bytes_end_at_separators(byte_store, input_format):
    """A word is masked whole or not at all; the first word of a text is one, though it has no mark."""
    store = open_store(byte_store.path)
    vocabulary = byte_store.data().vocabulary
    data = PretrainingData(
        *(store, "train", vocabulary, 64, InstanceConfig(dupe_factor=0, input_format=input_format)),
        *(MaskingConfig(whole_word=True), 1),
    )
    batch, _ = data.take(StreamPosition(), 60)
    ids, chosen = unmasked(batch), torch.zeros(60 * 64, dtype=torch.bool)
    chosen[batch["masked_positions"][batch["masked_labels"] >= 0]] = True
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id}
    for row, masked in zip(ids.tolist(), chosen.view(60, 64).tolist(), strict=True):
        for i in range(1, 64):
            if row[i] not in special and row[i - 1] not in special and vocabulary.continuation[row[i]]:
                assert masked[i] == masked[i - 1]
    parts = torch.from_numpy(vocabulary.continuation)[ids.flatten()]
    assert 0 < parts[chosen].float().mean() < 1
