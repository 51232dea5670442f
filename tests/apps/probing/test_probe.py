"""The probes against independent computation, and on structure that was planted."""

import itertools
import json
import random
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.apps.probing.config import HeadsConfig, LayersConfig, NeighbourConfig, WordConfig
from bertworks.apps.probing.controls import by_lexicon, by_type
from bertworks.apps.probing.heads import ablate_heads, masked
from bertworks.apps.probing.items import read_items
from bertworks.apps.probing.layers import probe_layers as probe
from bertworks.apps.probing.layers import sheet as layer_sheet
from bertworks.apps.probing.model import ProbedModel, attend, cosine
from bertworks.apps.probing.neighbours import find_neighbours
from bertworks.apps.probing.similarity import compare_word
from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.cli import probe as verbs
from bertworks.data.corpus import InputOptions
from bertworks.files import InputError
from bertworks.inference.evaluation import evaluate
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.tasks.base import LengthLimits
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import own_task, read_rows
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig
from support.tiny_task import TINY, tiny_folder, tiny_table

CONLL2003 = TASKS["conll2003"]

RIVER, MONEY = "he sat on the bank of the river", "she put money in the bank"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("probe") / "model")


@pytest.fixture(scope="module")
def inside(folder):
    return ProbedModel(folder, device="cpu")


# ---- a word in several sentences


def their_states(model, sentences):
    """[(L + 1, T, D)] and the tokens of each sentence, by transformers."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    bert = transformers.BertModel.from_pretrained(model)
    rows = [tokenizer(text, return_tensors="pt") for text in sentences]
    with torch.no_grad():
        states = [torch.cat(bert(**row, output_hidden_states=True).hidden_states).numpy() for row in rows]
    return states, [tokenizer.convert_ids_to_tokens(row["input_ids"][0]) for row in rows]


def angle(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_similarity_equals_transformers(minilm):
    found = compare_word(ProbedModel(minilm, "cpu"), "bank", [RIVER, MONEY], WordConfig())
    (one, two), (tokens, others) = their_states(minilm, [RIVER, MONEY])
    a, b = tokens.index("bank"), others.index("bank")
    expected = [angle(one[layer, a], two[layer, b]) for layer in range(7)]
    similarity = np.array(found["similarity"])
    assert found["layers"] == ["word piece", "embeddings", "1", "2", "3", "4", "5", "6"]
    np.testing.assert_allclose(similarity[1:, 0, 1], expected, atol=1e-5)
    np.testing.assert_allclose(similarity[0], 1.0, atol=1e-6)
    np.testing.assert_allclose(similarity[:, 0, 0], 1.0, atol=1e-6)
    pairs = [
        (i, j)
        for i, j in itertools.product(range(1, len(tokens) - 1), range(1, len(others) - 1))
        if tokens[i] != others[j]
    ]
    assert found["baseline_pairs"] == len(pairs) == 45
    means = [np.mean([angle(one[layer, i], two[layer, j]) for i, j in pairs]) for layer in range(7)]
    np.testing.assert_allclose(found["baseline"][1:], means, atol=1e-5)


def test_a_word_of_several_pieces_is_their_mean(inside):
    texts = ["good abc film", "bad , abc"]
    found = compare_word(inside, "ABC", texts, WordConfig())
    assert found["pieces"] == ["a", "##b", "##c"]
    with torch.no_grad():
        states = [
            torch.cat(inside.encoder(torch.tensor([inside.tokenizer.encode(text).ids])).hidden_states).numpy()
            for text in texts
        ]
    expected = cosine(states[0][:, 2:5].mean(1), states[1][:, 3:6].mean(1))
    np.testing.assert_allclose(np.array(found["similarity"])[1:, 0, 1], expected, atol=1e-5)


def test_a_decomposed_word_is_found(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["café", "the", "bad", "film", *SPECIAL_TOKENS]) + "\n", "utf-8")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt", lowercase=False)
    save_folder(tmp_path / "model", build_model(replace(TINY, vocab_size=9), seed=1), tokenizer)
    inside, sentences = ProbedModel(tmp_path / "model", device="cpu"), ["the bad café", "café film"]
    apart = [unicodedata.normalize("NFD", text) for text in sentences]
    composed = compare_word(inside, "café", sentences, WordConfig())
    for word, texts in (("cafe\u0301", sentences), ("café", apart)):
        assert compare_word(inside, word, texts, WordConfig())["similarity"] == composed["similarity"]
    assert attend(inside, apart[0]).tokens == attend(inside, sentences[0]).tokens
    (tmp_path / "text.txt").write_text(apart[1], encoding="utf-8")
    found = find_neighbours(inside, "café", [tmp_path / "text.txt"], NeighbourConfig(), InputOptions())
    assert found["places"] == 1


def test_words_are_found_whole(inside):
    ids = inside.tokenizer.encode("ab abc ab , b").ids
    assert inside.words.find(ids, inside.words.subwords("ab")) == [(1, 3), (6, 8)]
    assert inside.words.find(ids, inside.words.subwords("ab"), beginning=True) == [(1, 3), (3, 5), (6, 8)]
    assert inside.words.find(ids, inside.words.subwords("b")) == [(9, 10)]  # never the end of another word
    assert inside.words.find(ids, inside.words.subwords(", b")) == [(8, 10)]
    assert inside.words.words(ids) == [(1, 3), (3, 6), (6, 8), (8, 9), (9, 10)]


def test_a_word_of_byte_bpe_has_another_form_at_the_beginning_alone(tmp_path):
    """Without a blank before it, inside a text, it is the end of a longer word."""
    tokenizer = Tokenizer.train(["film pre film pre"] * 20 + ["film"] * 50, TokenizerConfig("bpe", 280))
    shape = replace(TINY, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    save_folder(tmp_path, build_model(shape, (), seed=1), tokenizer)
    inside = ProbedModel(tmp_path, device="cpu")
    ids = inside.tokenizer.encode("film prefilm film").ids
    assert [tokenizer.vocab[i] for i in ids] == ["<s>", "film", "Ġpre", "film", "Ġfilm", "</s>"]
    assert inside.words.find(ids, inside.words.subwords("film")) == [(1, 2), (4, 5)]


def test_the_baseline_takes_different_words_of_different_sentences(inside):
    found = compare_word(inside, "film", ["film a b", "film b c"], WordConfig())
    assert found["baseline_pairs"] == 7  # of nine: film with film and b with b are not different
    drawn = [compare_word(inside, "a", ["a b c d e f", "a g h i j k"], WordConfig(pairs=9, seed=s)) for s in (1, 1, 2)]
    assert drawn[0]["baseline_pairs"] == 9
    assert drawn[0]["baseline"] == drawn[1]["baseline"] != drawn[2]["baseline"]
    others = compare_word(inside, "film", ["film", "film"], WordConfig(), others=["a", "b"])
    expected = angle(*(next(inside.states([inside.tokenizer.encode(t).ids]))[2, 1] for t in "ab"))
    assert others["baseline_pairs"] == 1 and others["baseline"][3] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("word", "sentences", "message"),
    [
        ("film", ["a film", "a b"], "the word 'film' is not in 'a b'"),
        ("ab", ["ab", "c abc"], "a longer word begins with it: give that word, or --beginning"),
        ("film", ["a film"], "1 sentence; expected two or more"),
        ("한", ["한", "한"], r"\[UNK\]"),
        (" ", ["a", "b"], "no word to this tokenizer"),
        ("film", ["film " * 40, "film"], "a text of 42 tokens"),
        ("film", ["film", "film"], "no two different words"),
    ],
)
def test_words_that_cannot_be_compared(inside, word, sentences, message):
    with pytest.raises(InputError, match=message):
        compare_word(inside, word, sentences, WordConfig())


# ---- neighbours


def corpus(folder, documents=30, seed=3):
    """Files of sentences, some with `film`, one of them far more often than any other."""
    rng = random.Random(seed)
    folder.mkdir()
    for number in range(documents):
        words = [" ".join(rng.choices(["a", "b", "ab", "good", "bad", "film", "films"], k=8)) for _ in range(6)]
        lines = [f"{text.capitalize()}." for text in words] + ["The film, a b."]
        (folder / f"{number:02}.txt").write_text("\n".join(lines))
    return folder


def test_neighbours_are_the_nearest_of_all(inside, tmp_path):
    files = corpus(tmp_path / "texts")
    config = NeighbourConfig(sentence="a good film , b", top=7)
    found = find_neighbours(inside, "Film", [files], config, InputOptions())
    ids = inside.tokenizer.encode("a good film , b").ids
    query = next(inside.states([ids]))[1, 3]
    every = []
    for file in sorted(files.iterdir()):
        for line in file.read_text().splitlines():
            row = inside.tokenizer.encode(line).ids
            for start, _ in inside.words.find(row, inside.words.subwords("film")):
                every.append((angle(query, next(inside.states([row]))[1, start]), line))
    assert found["places"] == len(every) > 100 and not found["more"] and found["settings"]["layer"] == 1
    values = [value for value, _ in every]
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-5)
    assert found["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-5)
    best: dict[str, float] = {}
    for value, line in every:
        best[line] = max(best.get(line, -1), value)
    assert max(Counter(line for _, line in every).values()) == 30  # an equal sentence, which is printed once
    expected = sorted(best.values(), reverse=True)[:7]
    assert [one["cosine"] for one in found["neighbours"]] == pytest.approx(expected, abs=1e-5)
    for one in found["neighbours"]:
        text = one["left"] + one["word"] + one["right"]
        assert best[text] == pytest.approx(one["cosine"], abs=1e-5) and one["word"].lower() == "film"
        assert one["times"] == sum(line == text for _, line in every)
        assert text in Path(one["source"].split(", line")[0]).read_text()


# ---- attention


@torch.no_grad()
def test_weights_are_those_of_the_encoder(inside):
    attention = attend(inside, "good film , a b", "bad c")
    encoding = inside.tokenizer.encode("good film , a b", "bad c")
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    x, layer = inside.encoder(ids, None, types).hidden_states[0], inside.encoder.layers[0].attention
    q, k = (project(x).view(1, -1, 2, 16).transpose(1, 2) for project in (layer.query, layer.key))
    np.testing.assert_allclose(attention.weights[0], (q @ k.transpose(2, 3) / 4).softmax(-1)[0], atol=1e-6)
    assert attention.weights.shape == (2, 2, 10, 10) and attention.tokens == encoding.tokens and attention.cut == 0


# ---- heads


@pytest.fixture(scope="module")
def classifier(folder):
    """A classifier whose heads matter."""
    model = build_model(TINY, ("classifier",), labels=2, seed=3)
    with torch.no_grad():
        for layer in model.encoder.layers:
            for matrix in layer.attention.children():
                matrix.weight.mul_(12)
        model.heads["classifier"].weight.mul_(40)
    save_folder(folder.parent / "classifier", model, folder, labels=["bad", "good"], max_length=32)
    return folder.parent / "classifier"


def without(folder, out, layer, head):
    """The folder with a head's columns of the output projection set to zero."""
    model = load_model(folder)
    with torch.no_grad():
        model.encoder.layers[layer].attention.output.weight[:, 16 * head : 16 * (head + 1)] = 0
    save_folder(out, model, folder, labels=["bad", "good"], max_length=32)
    return out


def test_removing_a_head_is_zeroing_its_columns(classifier, tmp_path):
    table = tiny_table(tmp_path / "dev.csv", 150, seed=5)
    task = own_task("", ("text",), "label")
    rows = read_rows(task, table)
    found = ablate_heads(classifier, task, rows, HeadsConfig(examples=0, batch_size=16), quiet=True)
    expected = [
        [evaluate(without(classifier, tmp_path / f"{i}{j}", i, j), task, rows)["metrics"]["accuracy"] for j in range(2)]
        for i in range(2)
    ]
    assert found["without"] == expected and found["evaluations"] == 5
    assert found["whole"] == evaluate(classifier, task, rows)["metrics"]["accuracy"]
    assert len({found["whole"], *itertools.chain(*expected)}) > 2  # or the test would say nothing
    ids = torch.tensor([[2, 31, 33, 5, 6, 3]])
    model, zeroed = load_model(classifier), load_model(tmp_path / "10")
    mask = torch.ones(2, 2)
    mask[1, 0] = 0
    with torch.no_grad(), masked(model.encoder, mask):
        np.testing.assert_allclose(model.encoder(ids).pooled, zeroed.encoder(ids).pooled, atol=1e-5)
    assert not model.encoder._forward_pre_hooks


# ---- layers


def planted_table(path, rows, seed):
    """Labels that no bag of words gives linearly: whether the first two words are of one kind."""
    rng = random.Random(seed)
    lines = []
    for _ in range(rows):
        one, two = rng.choice("ab"), rng.choice("cd")
        label = "same" if (one == "a") == (two == "c") else "other"
        lines.append(f"{label},{one} {two} {' '.join(rng.choices('efgh', k=3))}")
    path.write_text("label,text\n" + "\n".join(lines) + "\n")
    return path


def with_states(out, states):
    """The encoder's output with other hidden states (B, L, D)."""
    return replace(out, states=tuple(out.layout.pack(state.flatten(0, 1)) for state in states))


def plant(monkeypatch, layer):
    """Every encoder shows the label of `planted_table` in one layer's states, and nowhere else."""
    original = Encoder.forward

    def forward(self, input_ids, *arguments, **named):
        out = original(self, input_ids, *arguments, **named)
        same = ((input_ids[:, 1] - input_ids[:, 2]) % 2 == 0).float()[:, None]
        states = list(out.hidden_states)
        states[layer] = states[layer].clone()
        states[layer][:, :, 3] += 3 * same
        return with_states(out, states)

    monkeypatch.setattr(Encoder, "forward", forward)


@pytest.mark.parametrize("layer", [1, 2])
def test_what_is_planted_in_a_layer_is_found_there(inside, tmp_path, monkeypatch, layer):
    plant(monkeypatch, layer)
    task, config = own_task("", ("text",), "label"), LayersConfig(l2=1.0, seeds=2)
    files = [planted_table(tmp_path / f"{seed}.csv", 300, seed) for seed in (1, 2)]
    train = read_items(task, files[0], inside.tokenizer, LengthLimits(max_seq_length=32), 0, 1)
    dev = read_items(task, files[1], inside.tokenizer, LengthLimits(max_seq_length=32), 0, 1, train.names)
    found = probe(inside, train, dev, config, quiet=True)
    accuracy = np.mean(found["task_accuracy"], 1)
    assert accuracy[layer] > 0.97 and max(np.delete(accuracy, layer)) < 0.75
    assert found["layers"] == ["embeddings", "1", "2"] and found["majority"] < 0.6 and found["by_type"] is None
    assert "selectivity" in layer_sheet(found).header


def conll(path, sentences, seed):
    """Words whose part of speech depends on the word before: nothing about the word itself says it."""
    rng = random.Random(seed)
    blocks = []
    for _ in range(sentences):
        words = rng.choices("abcdef", k=8)
        tags = ["X", *("AFTER-A" if before in "abc" else "OTHER" for before in words)]
        blocks.append("\n".join(f"{word} {tag} I-NP O" for word, tag in zip(words, tags, strict=False)))
    path.write_text("\n\n".join(["-DOCSTART- -X- O O", *blocks]) + "\n")
    return path


def test_any_column_of_a_tagged_file(inside, tmp_path):
    task = replace(CONLL2003, label="part_of_speech", labels=(), raw_labels=())
    items = read_items(
        task, conll(tmp_path / "eng.train", 40, 1), inside.tokenizer, LengthLimits(max_seq_length=32), 100, 1
    )
    assert items.names == ("AFTER-A", "OTHER", "X") and items.of == 320 and len(items.labels) == 104
    tokens = [inside.tokenizer.vocab[i] for i in items.inputs.ids[items.token]]
    assert tokens == items.forms
    before = [inside.tokenizer.vocab[i] for i in items.inputs.ids[items.token - 1]]
    expected = ["X" if b == "[CLS]" else "AFTER-A" if b in "abc" else "OTHER" for b in before]
    assert [items.names[i] for i in items.labels] == expected
    with pytest.raises(InputError, match="no column 'pos' in conll2003; expected one of word, part_of_speech"):
        read_items(replace(task, label="pos"), tmp_path / "eng.train", inside.tokenizer, LengthLimits(), 0, 1)


def test_vectors_of_words_are_those_of_their_first_piece(inside, tmp_path, monkeypatch):
    task = replace(CONLL2003, label="part_of_speech", labels=(), raw_labels=())
    train, dev = (
        read_items(task, conll(tmp_path / f"{n}", 60, n), inside.tokenizer, LengthLimits(max_seq_length=32), 0, 1)
        for n in (1, 2)
    )
    original = Encoder.forward

    def forward(self, input_ids, *arguments, **named):  # the first layer knows the token before
        out = original(self, input_ids, *arguments, **named)
        states = list(out.hidden_states)
        states[1] = states[1].clone()
        states[1][:, 1:, :] += 3 * torch.nn.functional.one_hot(input_ids[:, :-1] % 32, 32)
        return with_states(out, states)

    monkeypatch.setattr(Encoder, "forward", forward)
    found = probe(inside, train, dev, LayersConfig(l2=1.0, seeds=2), quiet=True)
    accuracy = np.mean(found["task_accuracy"], 1)
    assert accuracy[1] > 0.99 and accuracy[0] < 0.75
    assert found["by_type"] < 0.7  # the word alone does not tell
    control = np.mean(found["control_accuracy"], 1)
    assert control[0] > 0.95  # six words: any label of theirs can be learned by heart
    table = layer_sheet(found)
    assert table.rows[1][3] == f"{100 * (accuracy[1] - control[1]):+.2f}"


def test_labels_of_control_tasks():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    words = [f"w{i}" for i in range(4000)]
    drawn = by_type(words, labels, 3, seed=1)
    shares = np.bincount(list(drawn.values())) / 4000
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.03)
    assert by_type(words[:7], labels, 3, 1) == {word: drawn[word] for word in words[:7]}
    assert by_type(words, labels, 3, 2) != drawn
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 500, rng.integers(1, 20)).tolist() for _ in range(2000)]
    found = by_lexicon(texts, 500, np.array([0.6, 0.3, 0.1]), seed=1)
    np.testing.assert_allclose(np.bincount(found) / 2000, [0.6, 0.3, 0.1], atol=0.03)
    assert (found == by_lexicon(texts, 500, np.array([0.6, 0.3, 0.1]), seed=1)).all()
    again = by_lexicon([text[::-1] for text in texts], 500, np.array([0.6, 0.3, 0.1]), seed=1)
    assert (found == again).mean() > 0.999  # a bag of words


def test_the_subcommands_write_their_results(folder, classifier, tmp_path, capsys):
    table, texts = tiny_table(tmp_path / "dev.csv", 30, seed=5), corpus(tmp_path / "texts")
    one, other = (planted_table(tmp_path / f"{seed}.csv", 60, seed) for seed in (1, 2))
    for command, words, key in (
        (verbs.word, [folder, "film", "a film b", "film , c", "good film", "--layer", "1"], "similarity"),
        (verbs.neighbours, [folder, "film", "--data", texts, "--top", "3"], "neighbours"),
        (verbs.heads, [classifier, "--dev", table], "without"),
        (verbs.explain, [folder, "good film", "bad"], "tokens"),
        (verbs.layers, [folder, "--train", one, "--dev", other], "task_accuracy"),
        (verbs.layers, [folder, "--train", one, "--dev", one], "task_accuracy"),
    ):
        out = tmp_path / "out" / "x.json"
        command([*map(str, words), "--out", str(out)])
        assert json.loads(out.read_text())[key]
        same = "warning: train and dev are the same file: the accuracies are of training examples"
        assert (same in capsys.readouterr().err) == (words.count(one) == 2)
    for command in (verbs.word, verbs.layers):
        command([*map(str, [folder, "film", "a film", "film , c"] if command is verbs.word else words), "--out",
                 str(tmp_path / "x.svg")])  # fmt: skip
        assert "<svg" in (tmp_path / "x.svg").read_text()
    with pytest.raises(InputError, match="has no classifier"):
        verbs.heads([str(folder), "--dev", str(table)])
