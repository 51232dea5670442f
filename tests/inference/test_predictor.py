"""The predictor against direct computation and, for real weights, against transformers."""

import dataclasses
import io
import itertools
import json
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_model, load_tokenizer, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.inference.steps import CHUNK
from bertworks.model.build import build_model
from bertworks.tasks.base import Example, LengthLimits, Task
from bertworks.tasks.classification import prepare
from bertworks.tasks.rows import in_chunks
from bertworks.tasks.sentences import from_texts
from bertworks.tokenizer import Tokenizer
from support.tiny_task import TINY, VOCAB, headed_folder, tiny_folder

TEXTS = ["a b c", "good film", "", "d " * 20, "bad"]
LABELS = ["one", "two", "three"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("predictor") / "model")


@pytest.fixture(scope="module")
def classifier(pretrained) -> Path:
    """Three labels, inputs of 16 tokens at most."""
    return headed_folder(pretrained.parent / "classifier", pretrained, "classifier", LABELS, max_length=16)


@torch.no_grad()
def chances(folder: Path, text: str, pair: str | None = None) -> torch.Tensor:
    """(K,) one text at a time, no padding."""
    encoding, model = load_tokenizer(folder).encode(text, pair, max_length=16), load_model(folder)
    out = model.encoder(torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids]))
    return model.heads["classifier"](out.pooled).softmax(-1)[0]


def pooled(folder: Path, text: str) -> torch.Tensor:
    """(K,) the mean over two windows, the first and the last 14 tokens, of a text that does not fit."""
    pieces = load_tokenizer(folder).tokenize(text)
    parts = [text] if len(pieces) <= 14 else [" ".join(pieces[:14]), " ".join(pieces[-14:])]
    return torch.stack([chances(folder, part) for part in parts]).mean(0)


# ---- labels


def test_classify_equals_one_at_a_time(classifier):
    predictor = Predictor(classifier)
    results = predictor.classify(TEXTS, all_scores=True)
    for text, result in zip(TEXTS, results, strict=True):
        expected = pooled(classifier, text)
        assert list(result["scores"]) == LABELS
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert result["score"] == max(result["scores"].values()) == result["scores"][result["label"]]
    assert [result["windows"] for result in results] == [1, 1, 1, 2, 1]
    pair = predictor.classify("d " * 9, "a " * 9)
    assert pair["cut"] == 5 and pair["windows"] == 1
    assert predictor.truncated == {"examples": 1, "tokens": 5} and predictor.max_length == 16


@pytest.mark.parametrize("length", [0, 1, 13, 14, 15, 24, 25, 70])
def test_windows_of_a_long_text_cover_it(pretrained, length):
    tokenizer = load_tokenizer(pretrained)
    text = " ".join("abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(length))
    ids = tokenizer.encode(text).ids[1:-1]
    rows = prepare(
        tokenizer, [Example("good"), Example(text)], Task("t"), LengthLimits(max_seq_length=16), windowed=True
    )
    inputs, windows = rows.inputs, rows.windows
    assert rows.tokens.tolist() == [3, len(inputs.ids) - 3] and not rows.cut.any()
    parts = [inputs.ids[a + 1 : b - 1].tolist() for a, b in itertools.pairwise(inputs.edges)][1:]
    assert windows.text.tolist() == [0] + [1] * len(parts) and inputs.lengths.max() <= 16
    places = [next(i for i in range(len(ids) + 1) if ids[i : i + len(part)] == part) for part in parts]
    assert places[0] == 0 and parts[-1] == ids[max(0, len(ids) - 14) :]
    if 14 < length < 26:  # each letter once: one window after the other, overlapping by a quarter at least
        assert all(1 <= b - a <= 10 for a, b in itertools.pairwise(places))


def test_one_text_a_pair_and_pairs(classifier):
    predictor = Predictor(classifier)
    assert predictor.classify("a b c") == predictor.classify(["a b c"])[0]
    pair = predictor.classify("a b", "c d", all_scores=True)
    np.testing.assert_allclose(list(pair["scores"].values()), chances(classifier, "a b", "c d"), atol=1e-5)
    both = predictor.classify(["a b", "x"], ["c d", "y"])
    assert both[0]["label"] == pair["label"] and both[0]["score"] == pytest.approx(pair["score"], abs=1e-5)
    assert predictor.classify([]) == []
    for texts, pairs, found in ((["a", "b"], ["c"], "2 texts and 1 pairs"), (["a"], ["b", "c"], "1 texts and 2 pairs")):
        with pytest.raises(InputError, match=f"^{found}; expected as many of both"):
            predictor.classify(texts, pairs)


def test_chunks_hold_few_long_texts():
    rows = [("abcd", None), ("abcd", "efgh"), ("a", None), ("b" * 50, ["c", "d"]), ("e", None)]
    assert [len(chunk) for chunk in in_chunks(rows, 1024, 10)] == [2, 2, 1]


def test_order_is_kept_over_chunks(classifier):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdef"), rng.integers(1, 14))) for _ in range(CHUNK + 30)]
    predictor = Predictor(classifier)
    stream = predictor.stream(predictor.classifier, ((text, None) for text in texts))
    found = [result["score"] for result in stream]
    for i in (0, 1, 500, CHUNK - 1, CHUNK, CHUNK + 29):
        assert found[i] == pytest.approx(float(chances(classifier, texts[i]).max()), abs=1e-5)


def test_refused(pretrained, classifier):
    with pytest.raises(
        InputError, match="no classifier, which tasks of the kind 'single' need; fine-tune it first: bertworks finetune"
    ):
        Predictor(pretrained).classify("a")
    with pytest.raises(InputError, match="no masked-LM head"):
        Predictor(classifier).fill_mask("a [MASK]")
    with pytest.raises(InputError, match="max_length = 99; expected 3 to 32"):
        Predictor(classifier, max_length=99)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, r"^texts is None; expected a text \(str\) or a list of texts"),
        (["good", float("nan")], r"^texts\[1\] is nan; expected a text"),
        (
            ["good", "\ud800 good"],
            r"^texts\[1\] has half a character \(a lone surrogate\); save the text as UTF-8 again",
        ),
    ],
)
def test_rows_that_are_no_texts_are_named(classifier, tagger, pretrained, texts, message):
    predictor, masks = Predictor(classifier), Predictor(pretrained)
    for call in (predictor.classify, Predictor(tagger).tag, masks.embed):
        with pytest.raises(InputError, match=message):
            call(texts)


# ---- tags, answers, choices


TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]


@pytest.fixture(scope="module")
def tagger(pretrained) -> Path:
    task = {"kind": "tagging"}
    return headed_folder(pretrained.parent / "tagger", pretrained, "tagger", TAGS, max_length=16, task=task)


def test_punctuation_inside_a_word_belongs_to_it(tagger):
    rows = from_texts(load_tokenizer(tagger), ["Jean-Pierre, of U.S. (a.b) 'c' d--e O'Neil. f"])
    words = [rows[0].text[a:b] for a, b in rows[0].units]
    assert " ".join(words) == "Jean-Pierre , of U.S . ( a.b ) ' c ' d - - e O'Neil . f"


def span_folder(pretrained: Path, folder: Path, **task) -> Path:
    """A span head that scores tokens by their words alone: starts at `good`, ends at `film`."""
    return headed_folder(folder, pretrained, "span", max_length=16, task={"kind": "span", "doc_stride": 4, **task})


def scored(model, inputs, *rest) -> torch.Tensor:
    """(T, 2) scores by the words alone."""
    ids = torch.from_numpy(inputs.ids)
    good, film, cls = (ids == VOCAB.index(word) for word in ("good", "film", "[CLS]"))
    return torch.stack([good * 9.0 + cls * 5.0, film * 9.0 + cls * 5.0], 1)


def test_answer_gives_places_in_the_callers_text(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr("bertworks.inference.model.compute_scores", scored)
    predictor = Predictor(span_folder(pretrained, tmp_path / "m"))
    context = "a b c d e f g h i j " * 3 + ", Good\n film. " + "k l m n o " * 5
    found = predictor.answer("a b", context)
    assert found["text"] == "Good\n film" == context[found["start"] : found["end"]] and 0.9 < found["score"] <= 1
    assert predictor.answer(["a b"], [context]) == [found]
    with pytest.raises(InputError, match=r"^1 questions and 2 contexts; expected as many of both"):
        predictor.answer(["a b"], [context, context])
    [several] = predictor.stream(predictor.answerer, [("a b", context)])
    assert len(several) > 2 and several[0] == found and several[0]["score"] > several[1]["score"]


@pytest.mark.parametrize(("threshold", "text"), [(0.0, "good film"), (-20.0, "")])
def test_the_threshold_stored_with_the_model_decides(pretrained, tmp_path, monkeypatch, threshold, text):
    monkeypatch.setattr("bertworks.inference.model.compute_scores", scored)
    settings = {"version_2": True, "null_score_diff_threshold": threshold}
    predictor = Predictor(span_folder(pretrained, tmp_path / "m", **settings))
    assert predictor.answer("a b", "c good film d")["text"] == text
    assert predictor.answer("a b", "c d e")["text"] == ""


def test_choose(pretrained, tmp_path):
    headed_folder(tmp_path / "m", pretrained, "choice", task={"kind": "choice"})
    model, choices = load_model(tmp_path / "m"), ["good", "bad film", "a b c"]
    found = Predictor(tmp_path / "m").choose("a film", choices)
    with torch.no_grad():
        encodings = [load_tokenizer(tmp_path / "m").encode("a film", choice) for choice in choices]
        rows = [(torch.tensor([e.ids]), None, torch.tensor([e.type_ids])) for e in encodings]
        scores = torch.cat([model.eval().heads["choice"](model.encoder(*row).pooled)[0] for row in rows])
    np.testing.assert_allclose(found["scores"], scores.softmax(0), atol=1e-5)
    assert found["choice"] == int(scores.argmax()) and found["text"] == choices[found["choice"]]


# ---- decomposed text

LETTERED = "Café 한국, bad film Ångström"  # its decomposed form has no piece in a cased vocabulary


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def lettered(request, tmp_path_factory) -> Path:
    """A tokenizer that knows accents and syllables."""
    folder = tmp_path_factory.mktemp("lettered") / "model"
    written = ["Café", "한국", "Ångström"]
    words = [*VOCAB, *(f"{a}{c}" for word in written for a, c in zip(("", *["##"] * 9), word, strict=False))]
    words += ["cafe", "angstrom", *unicodedata.normalize("NFD", "한국")] if request.param else []
    (folder.parent / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(folder.parent / "vocab.txt", lowercase=request.param)
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size)
    save_folder(folder, build_model(config, seed=2), tokenizer)
    return folder


def headed(lettered: Path, folder: Path, head: str, labels=(), **task) -> Predictor:
    config = load_model(lettered).config
    headed_folder(folder, lettered, head, labels, 60, 4, config, max_length=16, task=task or None)
    return Predictor(folder)


def test_decomposed_text_gets_the_same_answer(lettered, tmp_path):
    apart = unicodedata.normalize("NFD", LETTERED)
    predictor = headed(lettered, tmp_path / "c", "classifier", ["one", "two", "three"])
    assert predictor.classify([LETTERED], all_scores=True) == predictor.classify([apart], all_scores=True)
    pairs = [predictor.classify([text], [text], all_scores=True) for text in (LETTERED, apart)]
    assert pairs[0] == pairs[1]
    predictor = Predictor(lettered)
    np.testing.assert_array_equal(predictor.embed(LETTERED), predictor.embed(apart))
    filled = [predictor.fill_mask(text + " [MASK]", top_k=2)[0] for text in (LETTERED, apart)]
    assert [c["score"] for c in filled[0]] == [c["score"] for c in filled[1]]
    assert filled[1][0]["text"].startswith(apart)  # the caller's text


def test_places_are_those_of_decomposed_text(lettered, tmp_path):
    apart = unicodedata.normalize("NFD", LETTERED)
    predictor = headed(lettered, tmp_path / "t", "tagger", TAGS, kind="tagging")
    expected, found = predictor.tag(LETTERED), predictor.tag(apart)
    assert expected and [e["score"] for e in found] == [e["score"] for e in expected]
    assert [unicodedata.normalize("NFC", e["text"]) for e in found] == [e["text"] for e in expected]
    assert all(e["text"] == apart[e["start"] : e["end"]] for e in found)
    predictor = headed(lettered, tmp_path / "s", "span", kind="span")
    one, other = predictor.stream(predictor.answerer, [("bad", text) for text in (LETTERED, apart)])
    assert len(one) == len(other) > 3
    for a, b in zip(one, other, strict=True):
        assert b["text"] == apart[b["start"] : b["end"]] and unicodedata.normalize("NFC", b["text"]) == a["text"]


# ---- masks


@torch.no_grad()
def test_fill_mask_equals_direct_computation(pretrained):
    tokenizer, model = load_tokenizer(pretrained), load_model(pretrained)
    text = "A [MASK] film, b [MASK]."
    ids = tokenizer.encode(text, specials=True).ids
    states = model.encoder(torch.tensor([ids])).last_hidden_state[0]
    places = [i for i, number in enumerate(ids) if number == tokenizer.mask_id]
    expected = model.masked_lm_logits(states[places]).softmax(-1)
    found = Predictor(pretrained).fill_mask(text, top_k=3)
    assert [len(candidates) for candidates in found] == [3, 3]
    for candidates, row in zip(found, expected, strict=True):
        top = row.topk(3)
        assert [(c["id"], c["token"]) for c in candidates] == [(i, tokenizer.vocab[i]) for i in top.indices.tolist()]
        np.testing.assert_allclose([c["score"] for c in candidates], top.values, atol=1e-6)
    assert Predictor(pretrained).fill_mask([text], top_k=3) == [found]


def test_filled_text(pretrained, monkeypatch):
    tokenizer = load_tokenizer(pretrained)
    wanted = [tokenizer.vocab.index(piece) for piece in ("good", "##s")]

    def logits(self, hidden):
        scores = torch.zeros(len(hidden), tokenizer.vocab_size)
        scores[torch.arange(len(hidden)), torch.tensor(wanted)] = 9.0
        return scores

    monkeypatch.setattr("bertworks.model.heads.Model.masked_lm_logits", logits)
    first, second = Predictor(pretrained).fill_mask("A [MASK]  film [MASK]!", top_k=len(tokenizer.vocab))
    assert first[0]["text"] == second[0]["text"] == "A good  films!"
    texts = {candidate["token"]: candidate["text"] for candidate in first}
    assert texts["bad"] == "A bad  films!" and texts["##b"] == "Ab  films!"


def test_texts_that_cannot_be_filled(pretrained):
    predictor = Predictor(pretrained)
    with pytest.raises(InputError, match=r"no \[MASK\] in 'a \[mask\]'"):
        predictor.fill_mask("a [mask]")
    with pytest.raises(InputError, match=r"text of 53 tokens loses a \[MASK\] when cut to 32"):
        predictor.fill_mask("a " * 50 + "[MASK]")


# ---- the command line


def test_predict_lines_tables_and_standard_input(classifier, tmp_path, capsys, monkeypatch):
    lines = tmp_path / "lines.txt"
    lines.write_bytes("﻿a b\r\n\r\nc d e".encode())
    main(["predict", str(classifier), str(lines), "--out", str(tmp_path / "out.jsonl"), "--all-scores"])
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = Predictor(classifier).classify(["a b", "c d e"], all_scores=True)
    assert [row.pop("line") for row in rows] == [1, 2, 3] and rows == [expected[0], {"empty": True}, expected[1]]
    written = f"3 inputs, 1 of them empty and not predicted: {tmp_path / 'out.jsonl'}\n"
    assert capsys.readouterr().err.endswith(written)
    main(["predict", str(classifier), "--string", "a b", "--out", str(tmp_path / "one.jsonl")])
    assert capsys.readouterr().err.endswith(f"1 input: {tmp_path / 'one.jsonl'}\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\n")))
    main(["predict", str(classifier), "-"])
    assert json.loads(capsys.readouterr().out)["label"] == expected[0]["label"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("q\ta\na b\tc d\n")
    main(["predict", str(classifier), str(pairs), "--text", "q,a"])
    assert json.loads(capsys.readouterr().out)["label"] == Predictor(classifier).classify("a b", "c d")["label"]


def test_predict_knows_the_columns_of_an_official_task(classifier, pretrained, tmp_path, capsys, refused):
    """Columns that are given come first."""
    task = {"kind": "pair", "name": "mrpc"}
    save_folder(tmp_path / "m", load_model(classifier), pretrained, labels=LABELS, max_length=16, task=task)
    (tmp_path / "dev.tsv").write_text("Quality\t#1 String\t#2 String\n1\tc d e\ta b\n")
    (tmp_path / "own.tsv").write_text("text\tmore\treview\nc d e\ta b\tgood\n")
    names = ["--text", "#1 String,#2 String"]
    for line in (["dev.tsv"], ["dev.tsv", *names], ["own.tsv", "--text", "text,more"]):
        main(["predict", str(tmp_path / "m"), str(tmp_path / line[0]), *line[1:]])
        assert json.loads(capsys.readouterr().out)["score"] == Predictor(classifier).classify("c d e", "a b")["score"]
    assert "none.tsv: no such file" in refused("predict", tmp_path / "m", tmp_path / "none.tsv")


def test_an_input_without_text_keeps_its_place(classifier, tmp_path, capsys):
    """In tables too; at the beginning, at the end, and alone."""
    for name, content, empty in (
        ("a.txt", "\n \na\n\t\n\n", [True, True, False, True, True]),
        ("b.txt", "\n", [True]),
        ("c.csv", 'text\n" "\na\n', [True, False]),
    ):
        (tmp_path / name).write_text(content)
        main(["predict", str(classifier), str(tmp_path / name)])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert ["empty" in row for row in rows] == empty and all(("label" in row) != ("empty" in row) for row in rows)


def test_predict_leaves_no_half_file(classifier, tmp_path, refused):
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"a b\n\xff\n")
    message = refused("predict", classifier, lines, "--out", tmp_path / "out.jsonl")
    assert "lines.txt, line 2: byte 0xFF is not UTF-8" in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.txt"]


def test_fill_mask_on_the_command_line(pretrained, capsys):
    main(["predict", "fill-mask", str(pretrained), "a [MASK] film", "--top-k", "2"])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "mask 1" and len(out) == 3 and out[1].endswith("film")
    main(["predict", "fill-mask", str(pretrained), "a [MASK] film", "the [MASK]", "--top-k", "2"])
    several = capsys.readouterr().out.splitlines()
    assert several[:4] == ["a [MASK] film", *out] and several[4:6] == ["the [MASK]", "mask 1"] and len(several) == 8


# ---- weights and tables that are unlike others


def test_a_padded_table_names_no_padded_id(tmp_path, pretrained, capsys):
    """The rows beyond the tokenizer are the likeliest here; scores of tokens are what they are among all rows."""
    model = build_model(replace(TINY, vocab_size=64), seed=1)
    with torch.no_grad():
        model.heads["mlm"].bias[len(VOCAB) :] = 9.0
        model.heads["mlm"].bias[5] = 8.0
    save_folder(tmp_path / "model", model, pretrained)
    predictor = Predictor(tmp_path)
    found = predictor.fill_mask("a [MASK] c", top_k=1000)[0]
    assert len(found) == len(VOCAB) and found[0]["token"] == VOCAB[5] and found[0]["score"] < 0.2
    ids = torch.tensor([predictor.tokenizer.encode("a [MASK] c", specials=True).ids])
    with torch.no_grad():
        scores = model.eval().masked_lm_logits(model.encoder(ids).last_hidden_state[0, 2]).softmax(-1)
    assert abs(found[0]["score"] - float(scores[5])) < 1e-6
    main(["predict", "fill-mask", str(tmp_path), "a [MASK] c"])
    assert "the embedding table has 2 rows more than the tokenizer has tokens" in capsys.readouterr().err
    assert Predictor(pretrained).note == ""


def test_scores_that_are_no_numbers_are_never_given(classifier, pretrained, tmp_path, capsys):
    model = load_model(classifier)
    with torch.no_grad():
        model.heads["classifier"].weight.fill_(3e38)
        model.encoder.pooler.bias.fill_(9.0)
    save_folder(tmp_path / "large", model, classifier, labels=LABELS)
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "large"), "--string", "good film"])
    said = capsys.readouterr()
    assert said.out == "" and "computes NaN or infinity, although its weights are finite" in said.err
    model = load_model(pretrained)
    with torch.no_grad():
        model.encoder.layers[1].output_norm.weight.fill_(3e38)
        model.encoder.layers[1].output_norm.bias.fill_(3e38)
    save_folder(tmp_path / "states", model, pretrained)
    for call in (lambda one: one.embed("a"), lambda one: one.fill_mask("a [MASK]")):
        with pytest.raises(InputError, match="computes NaN or infinity"):
            call(Predictor(tmp_path / "states"))
