"""Instances: the original's own, driven by the original's generator; its statistics otherwise; order and resume."""

import gzip
import itertools
import json
import random
import zlib
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.data.batches import PretrainingData, Vocabulary
from bertworks.data.instances import (
    InstanceConfig,
    InstanceStream,
    SentenceOffsets,
    StreamPosition,
    plan_block,
    plan_document,
)
from bertworks.data.masking import MaskingConfig
from bertworks.tokenizer import Tokenizer
from support.shared_data import needs_shared, shared

pytest_plugins = ["support.build_fixtures"]

ORACLE = "oracle/pretraining_data"


def read(name):
    return gzip.decompress((shared(ORACLE) / name).read_bytes()).decode()


@pytest.fixture(scope="module")
def corpus():
    """Vocabulary (a list) and documents (lists of sentences, lists of tokens) as the original reads them."""
    path = shared("data/vocab/bert-base-uncased.txt")
    tokenizer = Tokenizer.load(path, lowercase=True)
    text = read("corpus.txt.gz")
    documents = [[tokenizer.tokenize(line) for line in part.split("\n") if line.strip()] for part in text.split("\n\n")]
    documents = [[sentence for sentence in document if sentence] for document in documents]
    return path.read_text(encoding="utf-8").split("\n")[:-1], [document for document in documents if document]


def shard_of(documents, ids=None):
    """What the planner reads of a shard; `tokens` are the strings themselves unless `ids` says their numbers."""
    sentences = [sentence for document in documents for sentence in document]
    tokens = [token for sentence in sentences for token in sentence]
    return SimpleNamespace(
        tokens=np.array(tokens if ids is None else [ids[token] for token in tokens]),
        sentences=np.cumsum([0, *map(len, sentences)]),
        documents=np.cumsum([0, *map(len, documents)]),
        n_documents=len(documents),
    )


def create_masked_lm_predictions(tokens, most, whole_word, vocabulary, rng):
    """The original's masking, call by call; returns the masked tokens, the positions and their labels."""
    candidates = []
    for i, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if whole_word and candidates and token.startswith("##"):
            candidates[-1].append(i)
        else:
            candidates.append([i])
    rng.shuffle(candidates)
    masked, wanted = {}, min(most, max(1, round(len(tokens) * 0.15)))
    for word in candidates:
        if len(masked) >= wanted:
            break
        if len(masked) + len(word) > wanted:
            continue
        for i in word:
            masked[i] = "[MASK]"
            if rng.random() >= 0.8:
                masked[i] = tokens[i] if rng.random() < 0.5 else vocabulary[rng.randint(0, len(vocabulary) - 1)]
    return [masked.get(i, token) for i, token in enumerate(tokens)], sorted(masked), [tokens[i] for i in sorted(masked)]


def originals(corpus, settings):
    """All instances, made by our planner with the original's generator between its other calls."""
    vocabulary, documents = corpus
    documents, rng, made = list(documents), random.Random(12345), []
    rng.shuffle(documents)
    shard, longest = shard_of(documents), settings["max_seq_length"] - 3
    sentences, tokens = SentenceOffsets(shard), shard.tokens.tolist()
    for _ in range(settings["dupe_factor"]):
        for document in range(len(documents)):
            target = rng.randint(2, longest) if rng.random() < settings["short_seq_prob"] else longest
            for a, a_stop, b, b_stop, is_random in plan_document(
                document, sentences.of(document), sentences, target, longest, rng
            ):
                pair = ["[CLS]", *tokens[a:a_stop], "[SEP]", *tokens[b:b_stop], "[SEP]"]
                most, whole_word = settings["max_predictions_per_seq"], settings["do_whole_word_mask"]
                masked, positions, labels = create_masked_lm_predictions(pair, most, whole_word, vocabulary, rng)
                made.append(
                    {
                        "tokens": " ".join(masked),
                        "n_segment_0": a_stop - a + 2,
                        "is_random_next": is_random,
                        "masked_lm_positions": positions,
                        "masked_lm_labels": " ".join(labels),
                    }
                )
    rng.shuffle(made)
    return made


@needs_shared(ORACLE)
@pytest.mark.parametrize(
    "name, file, count",
    [("A", "A_instances", 3967), ("B", "B_instances_first150", 150), ("C", "C_instances_first400", 400)],
)
def test_the_originals_generator_gives_the_originals_instances(corpus, name, file, count):
    folder = shared(ORACLE)
    settings = json.loads((folder / "statistics.json").read_text())[name]["settings"]
    expected = [json.loads(line) for line in read(f"{file}.jsonl.gz").splitlines()]
    found = originals(corpus, settings)
    assert len(expected) == count and (len(found) == count or name != "A")
    for one, other in zip(found, expected, strict=name == "A"):
        assert one == other


def statistics(data, passes, most):
    """The original's statistics (those that can be seen in the instances) of some passes over `data`."""
    made, position = [], StreamPosition()
    for number in range(passes * data.stream.groups):
        batch, position = data.take(position, len(data.stream.group(number)[1]))
        made.append({key: value.numpy() for key, value in batch.items()})
    whole = {key: np.concatenate([batch[key] for batch in made]) for key in made[0]}
    ids, pairs, lengths = whole["input_ids"], whole["pair_labels"], whole["attention_mask"].sum(1)
    a_lengths = lengths - whole["token_type_ids"].sum(1) - 2
    b_lengths = lengths - a_lengths - 3
    labels = whole["masked_labels"].reshape(len(ids), -1)
    positions = np.concatenate([b["masked_positions"].reshape(len(b["input_ids"]), -1) for b in made]) % data.length
    used = labels >= 0
    row, n = np.arange(len(ids))[:, None], len(ids)
    there = ids[row, positions]
    tokens, count = lengths.sum(), used.sum()
    predicted = np.zeros(ids.shape, bool)
    predicted[np.broadcast_to(row, used.shape)[used], positions[used]] = True
    unmasked = ids.copy()
    unmasked[np.broadcast_to(row, used.shape)[used], positions[used]] = labels[used]
    target, words = np.rint(lengths * 0.15).clip(1, most), _words(unmasked, predicted, data.vocabulary)
    return {
        "instance_count": n,
        "total_tokens": tokens,
        "total_predictions": count,
        "is_random_next_share": pairs.mean(),
        "length_mean": lengths.mean(),
        "length_std": lengths.std(),
        "length_full_share": (lengths == data.length).mean(),
        "length_short_share": (lengths < data.length).mean(),
        "length_le_half_share": (lengths <= data.length // 2).mean(),
        "a_length_mean": a_lengths.mean(),
        "b_length_mean": b_lengths.mean(),
        "a_length_mean_random_next": a_lengths[pairs == 1].mean(),
        "b_length_mean_random_next": b_lengths[pairs == 1].mean(),
        "a_length_mean_actual_next": a_lengths[pairs == 0].mean(),
        "b_length_mean_actual_next": b_lengths[pairs == 0].mean(),
        "predictions_per_instance_mean": count / n,
        "predictions_per_token": count / tokens,
        "predictions_over_target_mean": (used.sum(1) / target).mean(),
        "mask_share": (there[used] == data.vocabulary.mask_id).mean(),
        "same_share": (there[used] == labels[used]).mean(),
        "random_share": ((there != labels) & (there != data.vocabulary.mask_id))[used].mean(),
        "label_is_continuation_share": data.vocabulary.continuation[labels[used]].mean(),
        "multi_piece_words_touched": len(words),
        "multi_piece_words_fully_predicted_share": np.mean([all(word) for word in words]),
    }


def _words(ids, predicted, vocabulary):
    """For each word of several pieces with a predicted one: which of its pieces are predicted."""
    words = []
    special = (vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id)
    for tokens, chosen in zip(ids.tolist(), predicted.tolist(), strict=True):
        row: list[list[bool]] = []
        for token, taken in zip(tokens, chosen, strict=True):
            if token in special:
                continue
            if vocabulary.continuation[token] and row:
                row[-1].append(taken)
            else:
                row.append([taken])
        words += [word for word in row if len(word) > 1 and any(word)]
    return words


@needs_shared(ORACLE)
@pytest.mark.parametrize("name", "ABC")
def test_statistics_of_the_stream_are_those_of_the_original(corpus, name):
    words, documents = corpus
    ids = {token: i for i, token in enumerate(words)}
    continues = np.array([word.startswith("##") for word in words])
    record = json.loads((shared(ORACLE) / "statistics.json").read_text())[name]
    settings, expected, found = record["settings"], record["statistics"], []
    vocabulary = Vocabulary(len(words), *(ids[f"[{name}]"] for name in ("CLS", "SEP", "MASK", "PAD")), continues)
    shard = shard_of(documents, ids)
    for seed in range(5):
        data = PretrainingData(
            SimpleNamespace(shards=lambda split: [shard]), "train", vocabulary, settings["max_seq_length"],
            InstanceConfig(settings["short_seq_prob"], settings["dupe_factor"]),
            MaskingConfig(whole_word=settings["do_whole_word_mask"]), seed,
        )  # fmt: skip
        found.append(statistics(data, settings["dupe_factor"], settings["max_predictions_per_seq"]))
    assert data.max_predictions == settings["max_predictions_per_seq"]
    unseen = {key for key in expected if key not in found[0]}
    assert all("short_target" in key for key in unseen), unseen  # the plan does not say which target was aimed at
    far = {}
    for key in found[0]:
        ours = np.array([statistic[key] for statistic in found], float)
        theirs = expected[key]
        error = np.hypot(ours.std(ddof=1) / len(ours) ** 0.5, theirs["standard_error"])
        distance = abs(ours.mean() - theirs["mean"])
        far |= {key: (ours.mean(), theirs["mean"], distance / error)} if distance > 3 * error + 1e-12 else {}
    assert not far


def stream_of(tiny_store, dupe_factor=0, seed=1, length=32):
    return InstanceStream(tiny_store.data().shards, length, InstanceConfig(dupe_factor=dupe_factor), seed)


def spans(stream, taken):
    return [tuple(row) for group, rows in taken for row in stream.group(group)[0][rows].tolist()]


def epoch(stream, number):
    """The instances of one epoch in the order read."""
    groups = range(number * stream.groups, (number + 1) * stream.groups)
    return [tuple(row) for w in groups for row in stream.group(w)[0][stream.group(w)[1]].tolist()]


def test_every_instance_of_every_block_once_an_epoch(tiny_store, small_groups):
    stream = stream_of(tiny_store)
    assert len({shard for shard, _ in stream.blocks}) == len(stream.shards) > 1
    for s, shard in enumerate(stream.shards):  # the blocks divide the documents of each shard
        edges = [(block.start, block.stop) for where, block in stream.blocks if where == s]
        assert edges[0][0] == 0 and edges[-1][1] == shard.n_documents
        assert all(one[1] == other[0] for one, other in pairwise(edges))
    assert stream.groups > 4
    for number in (0, 1, 5):
        planned = Counter()
        for index, (s, documents) in enumerate(stream.blocks):
            plan = plan_block(
                stream.shards[s],
                documents,
                32,
                InstanceConfig(),
                (1, 3, stream.pass_of(number * stream.groups), 32, index),
            )
            planned.update((s, *row) for row in plan.tolist())
        assert Counter(epoch(stream, number)) == planned


def test_a_document_longer_than_a_block_is_a_block(small_groups):
    documents = [[["a"] * 9] * n for n in (300, 1, 2, 200, 1)]
    stream = InstanceStream([shard_of(documents, {"a": 5})], 32, InstanceConfig(), 1)
    assert [list(block) for _, block in stream.blocks] == [[0], [1, 2, 3], [4]]
    assert len(epoch(stream, 0)) > 100


CLS, SEP, PAD = 1, 2, 0
texts = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), min_size=1, max_size=12)


def numbered(lengths):
    """A shard whose sentences have these lengths (a list of them a document), each token another id from 5 on."""
    ids = itertools.count(5)
    return shard_of([[[next(ids) for _ in range(n)] for n in document] for document in lengths])


def data_of(shards, input_format, length, seed=1):
    most = max(int(shard.tokens.max()) for shard in shards) + 1
    vocabulary = Vocabulary(most, CLS, SEP, 3, PAD, np.zeros(most, bool))
    store = SimpleNamespace(shards=lambda split: shards)
    return PretrainingData(store, "train", vocabulary, length, InstanceConfig(0.1, 0, input_format), None, seed)


def rows_of(data, groups):
    """Ids without padding, token types and pair label of each instance of these block groups."""
    for group in groups:
        batch, _ = data.take(StreamPosition(group), len(data.stream.group(group)[1]))
        for ids, seen, kinds, pair in zip(
            *(batch[n].tolist() for n in ("input_ids", "attention_mask", "token_type_ids", "pair_labels")), strict=True
        ):
            n = sum(seen)
            assert seen == [True] * n + [False] * (data.length - n) and set(ids[n:]) <= {PAD} and not any(kinds[n:])
            yield ids[:n], kinds[:n], pair


@given(
    st.lists(texts, min_size=1, max_size=2), st.sampled_from(["full-sentences", "doc-sentences"]), st.integers(5, 64)
)
def test_one_segment_has_every_token_once_and_no_room_for_another_sentence(stores, input_format, length):
    shards = [numbered(lengths) for lengths in stores]
    for shard, other in pairwise(shards):
        other.tokens += shard.tokens[-1]
    data, seen, room = data_of(shards, input_format, length), [], length - 2
    last = {int(t) for shard in shards for t in shard.tokens[shard.sentences[1:] - 1]}
    sizes = {int(shard.tokens[a]): b - a for shard in shards for a, b in pairwise(shard.sentences.tolist())}
    opens = {int(t) for shard in shards for t in shard.tokens[shard.sentences[shard.documents[:-1]]]}
    for ids, kinds, pair in rows_of(data, range(data.stream.groups)):
        assert ids[0] == CLS and ids[-1] == SEP and not any(kinds) and pair == -100
        text = [token for token in ids[1:-1] if token != SEP]
        assert text == list(range(text[0], text[0] + len(text)))  # contiguous
        expected = [x for token in text for x in ([SEP, token] if token in opens and token != text[0] else [token])]
        assert ids[1:-1] == expected  # [SEP] where another document begins and nowhere else
        assert input_format == "full-sentences" or SEP not in ids[1:-1]
        assert text[-1] in last or len(text) == room  # a sentence is cut only if it alone fills the row
        following = text[-1] + 1
        if following in sizes and not (following in opens and input_format == "doc-sentences"):
            border = following in opens  # takes a cell
            assert len(ids) + border + min(sizes[following], room) > length
        seen += text
    assert sorted(seen) == sorted(int(t) for shard in shards for t in shard.tokens)


def test_one_segment_is_cut_alike_in_every_pass_and_blocks_end_it(tiny_store, small_groups):
    for input_format in ("full-sentences", "doc-sentences"):
        config = InstanceConfig(dupe_factor=0, input_format=input_format)
        stream = InstanceStream(tiny_store.data().shards, 64, config, 1)
        epochs = [epoch(stream, number) for number in range(2)]
        assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
        assert len(stream.blocks) > 4
        firsts = {(s, int(stream.shards[s].sentences[stream.shards[s].documents[b.start]])) for s, b in stream.blocks}
        assert firsts <= {(s, a) for s, a, *_ in epochs[0]}


def test_a_sentence_pair_is_two_neighbours_or_a_sentence_of_another_document():
    rng = random.Random(2)
    shard = numbered([[rng.randint(1, 30) for _ in range(rng.randint(1, 15))] for _ in range(600)])
    data = data_of([shard], "sentence-pair", 32)
    sentences = {int(shard.tokens[a]): shard.tokens[a:b].tolist() for a, b in pairwise(shard.sentences.tolist())}
    starts = sorted(sentences)
    documents = shard.tokens[shard.sentences[shard.documents[:-1]]]
    lasts = shard.tokens[shard.sentences[shard.documents[1:] - 1]]
    used, pairs, strangers = Counter(), Counter(), []
    for ids, kinds, pair in rows_of(data, range(3 * data.stream.groups)):
        a, b = ids[1 : kinds.index(1) - 1], ids[kinds.index(1) : -1]
        assert ids == [CLS, *a, SEP, *b, SEP] and kinds == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        whole = [sentences[starts[np.searchsorted(starts, part[0], "right") - 1]] for part in (a, b)]
        for part, sentence in zip((a, b), whole, strict=True):  # parts of one sentence, whole where there is room
            assert set(part) <= set(sentence)
        assert [a, b] == whole or (len(ids) == 32 and len(whole[0]) + len(whole[1]) > 29)
        where = np.searchsorted(documents, [a[0], b[0]], "right")
        assert (where[0] == where[1]) == (pair == 0)
        assert pair or whole[0][-1] + 1 == whole[1][0]
        used.update([whole[0][0]] if pair else [whole[0][0], whole[1][0]])
        pairs[pair, whole[0][0] in lasts] += 1
        strangers += [whole[1][0]] * pair
    assert pairs[0, True] == 0  # nothing follows the last sentence of a document
    free = pairs[0, False] + pairs[1, False]
    assert abs(pairs[1, False] / free - 0.5) < 4 * 0.5 / free**0.5
    assert used == dict.fromkeys(sentences, 3)  # what a random B displaced becomes an A
    assert np.ptp(np.histogram(strangers, 10, (5, len(shard.tokens)))[0]) < 0.3 * len(strangers) / 10  # from everywhere


def albert_instances(documents, target, longest, rng):
    """ALBERT's create_instances_from_document without random next sentences, for all documents, on lists of tokens."""
    for index, document in enumerate(documents):
        chunk, size, i = [], 0, 0
        while i < len(document):
            chunk.append(document[i])
            size += len(document[i])
            if i == len(document) - 1 or size >= target:
                a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
                a, b = ([token for one in part for token in one] for part in (chunk[:a_end], chunk[a_end:]))
                is_wrong = len(chunk) == 1
                if is_wrong:
                    for _ in range(10):
                        other = rng.randint(0, len(documents) - 1)
                        if other != index:
                            break
                    start = rng.randint(0, len(documents[other]) - 1)
                    for sentence in documents[other][start:]:
                        b = b + sentence
                        if len(b) >= target - len(a):
                            break
                elif rng.random() < 0.5:
                    is_wrong = True
                    a, b = b, a
                while len(a) + len(b) > longest:
                    longer = a if len(a) > len(b) else b
                    longer.pop(0 if rng.random() < 0.5 else -1)
                yield a, b, is_wrong
                chunk, size = [], 0
            i += 1


@given(texts.filter(lambda documents: len(documents) > 1), st.integers(8, 60), st.integers(0, 999))
def test_swapped_pairs_are_alberts(lengths, target, seed):
    shard, rngs = numbered(lengths), [random.Random(seed) for _ in range(2)]
    edges = shard.sentences.tolist()
    sentences = [shard.tokens[a:b].tolist() for a, b in pairwise(edges)]
    documents = [sentences[a:b] for a, b in pairwise(shard.documents.tolist())]
    tokens, looked_up, found = shard.tokens.tolist(), SentenceOffsets(shard, swaps=True), []
    for document in range(len(documents)):
        spans = plan_document(document, looked_up.of(document), looked_up, target, target, rngs[0])
        found += [(tokens[a:a_stop], tokens[b:b_stop], wrong) for a, a_stop, b, b_stop, wrong in spans]
    assert found == list(albert_instances(documents, target, target, rngs[1]))


def test_plans_of_before_are_what_they_were():
    """Checksums of epochs' plans, of ordered and of swapped pairs."""
    rng, found = random.Random(4), {}
    shard = numbered([[rng.randint(1, 30) for _ in range(rng.randint(1, 15))] for _ in range(200)])
    for input_format in ("segment-pair", "sentence-pair", "full-sentences"):
        for swaps in (False, True):
            stream = InstanceStream([shard], 48, InstanceConfig(0.1, 0, input_format, swaps), 5)
            found[input_format, swaps] = zlib.crc32(np.array(epoch(stream, 1), "<i8").tobytes())
    assert found == {
        ("segment-pair", False): 824332312,
        ("segment-pair", True): 246916985,
        ("sentence-pair", False): 1363818482,
        ("sentence-pair", True): 3239393740,
        ("full-sentences", False): 2620835534,
        ("full-sentences", True): 2620835534,
    }
