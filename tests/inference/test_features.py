"""Features against one forward pass a text: windows, words, pooling, order, files, bounded memory, bad input."""

import dataclasses
import errno
import io
import itertools
import json
import os
import shutil
import sys
import tracemalloc
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import bertworks
from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.checkpoint.metadata import TASK
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference import features
from bertworks.inference.config import FeatureConfig
from bertworks.inference.features import Extractor
from bertworks.model.build import build_model
from bertworks.tasks.inputs import Inputs
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer
from support.tiny_task import TINY, tiny_folder

TEXTS = ["good film, abc", "", "bad", "a " * 20 + "good-bad. \t x", "  b  ", "café film", "d" * 7]
LONG = " ".join("abcdefghijklmnopqrstuvwxyz"[i * 7 % 26] for i in range(75))  # three windows of 32 tokens and more


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("features") / "model")


@torch.no_grad()
def states(folder: Path, text: str, pair: str | None = None) -> list[np.ndarray]:
    """Embeddings and layers, (L, D) each, of a text that fits."""
    encoding, encoder = load_tokenizer(folder).encode(text, pair), load_encoder(folder)
    out = encoder(torch.tensor([encoding.ids]), None, torch.tensor([encoding.type_ids]))
    return [state[0].numpy() for state in out.hidden_states]


def extract(model, texts, layers="last", pool=None):
    """The vectors of each text."""
    config = FeatureConfig(layers, pool)
    extractor = Extractor(*model, config) if isinstance(model, tuple) else Extractor.load(model, config)
    return (one.vectors for one in extractor.stream(texts))


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-6)


# ---- vectors


def test_places_and_words_are_those_of_decomposed_text(tmp_path):
    """Syllables and accents: the same vectors, at places of the text as it is given."""
    words = ["café", "한", "##국", "bad", ",", *SPECIAL_TOKENS]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt", lowercase=False)
    encoder = build_model(dataclasses.replace(TINY, vocab_size=len(words)), seed=1).encoder
    text = "café, 한국 bad"
    apart = unicodedata.normalize("NFD", text)
    for how in (None, "first"):
        extractor = Extractor(encoder, tokenizer, FeatureConfig(words=how))
        one, other = extractor.stream([text, apart])
        close(one.vectors, other.vectors)
        written = [apart[a:b] for a, b in other.offsets]
        assert [unicodedata.normalize("NFC", part) for part in written] == [text[a:b] for a, b in one.offsets]
        assert how is None or written == apart.split()


@pytest.mark.parametrize("layers", ["last", "second-to-last", "embeddings", "concat-last-2", "weighted-sum", "0"])
def test_pieces_of_texts_that_fit(folder, layers):
    found = list(extract(folder, TEXTS, layers))
    assert len(found) == len(TEXTS)
    for text, vectors in zip(TEXTS, found, strict=True):
        h = states(folder, text)
        expected = {
            "last": h[2],
            "second-to-last": h[1],
            "embeddings": h[0],
            "concat-last-2": np.concatenate(h[1:], -1),
            "weighted-sum": (h[1] + h[2]) / 2,
            "0": h[1],
        }[layers]
        close(vectors, expected[1:-1])


def test_what_each_vector_stands_for(folder):
    extractor = Extractor.load(folder, FeatureConfig(specials=True))
    for text, found in zip(TEXTS, extractor.stream(TEXTS), strict=True):
        encoding = extractor.tokenizer.encode(text)
        assert found.ids.tolist() == encoding.ids
        assert found.offsets.tolist() == [list(place) for place in encoding.offsets]
        words = text.split()
        assert found.words[0] == found.words[-1] == -1
        for (begin, end), word in zip(found.offsets[1:-1].tolist(), found.words[1:-1].tolist(), strict=True):
            assert len(text[:begin].split()) - (not text[:begin][-1:].isspace() and begin > 0) == word
            assert text[begin:end] in words[word]
        assert not found.segments.any()
        close(found.vectors, states(folder, text)[2])


def test_pairs(folder):
    rows = [("good film", "a b c"), ("", "x"), ("x y", "")]
    extractor = Extractor.load(folder, FeatureConfig(specials=True))
    for row, found in zip(rows, extractor.stream(rows), strict=True):
        encoding = extractor.tokenizer.encode(*row)
        assert found.ids.tolist() == encoding.ids and found.segments.tolist() == encoding.type_ids
        assert found.offsets.tolist() == [list(place) for place in encoding.offsets]
        close(found.vectors, states(folder, *row)[2])
    both = list(extract(folder, ["bad", *rows, "bad"]))  # texts and pairs in turns
    assert [len(one) for one in both] == [1, 5, 1, 2, 1]
    close(both[0], both[-1])


def test_long_texts_take_each_token_where_it_has_most_context(folder):
    extractor = Extractor.load(folder, FeatureConfig(specials=True))
    room, words = 30, LONG.split()
    n = len(words)
    starts = [0, 15, 30, 45]  # even distances, a quarter shared at least: steps of 22 at most
    found = next(extractor.stream([LONG]))
    assert len(found.vectors) == n + 2
    for place in range(n):
        # the window in which min(pieces before, pieces after) is largest, the first of equal ones
        start = max(starts, key=lambda s: min(place - s, s + room - 1 - place))
        shown = states(folder, " ".join(words[start : start + room]))[2]
        close(found.vectors[place + 1], shown[place - start + 1])
    close(found.vectors[0], states(folder, " ".join(words[:room]))[2][0])
    close(found.vectors[-1], states(folder, " ".join(words[45:]))[2][-1])
    short = next(Extractor.load(folder, FeatureConfig(max_length=16)).stream([LONG]))
    assert short.vectors.shape == (n, 32) and np.abs(short.vectors - found.vectors[1:-1]).max() > 1e-3


def test_windows_of_pairs_all_show_the_first_text(folder):
    first, second = "good film", LONG
    extractor = Extractor.load(folder)
    found = next(extractor.stream([(first, second)]))
    assert found.segments.tolist() == [0] * 2 + [1] * 75 and found.words.tolist() == [0, 1, *range(75)]
    words, room = LONG.split(), 32 - 5
    close(found.vectors[: 2 + 5], states(folder, first, " ".join(words[:room]))[2][[1, 2, 4, 5, 6, 7, 8]])
    close(found.vectors[-5:], states(folder, first, " ".join(words[-room:]))[2][-6:-1])
    with pytest.raises(InputError, match="put the longer text second"):
        list(extractor.stream([(LONG, first)]))


@pytest.mark.parametrize("how", ["first", "mean"])
def test_words(folder, how):
    text = "good-film abc  \x07 b"  # pieces: good - film | a ##b ##c | none | b
    h = states(folder, text)[2][1:-1]
    found = next(Extractor.load(folder, FeatureConfig(words=how)).stream([text]))
    assert [text[a:b] for a, b in found.offsets] == ["good-film", "abc", "\x07", "b"]
    assert found.words.tolist() == [0, 1, 2, 3] and found.ids is None
    close(found.vectors[0], h[0] if how == "first" else h[:3].mean(0))
    close(found.vectors[1], h[3] if how == "first" else h[3:6].mean(0))
    assert not found.vectors[2].any()  # a word without a piece
    close(found.vectors[3], h[6])
    with pytest.raises(InputError, match="words = 'last'; expected one of 'first', 'mean' or None"):
        FeatureConfig(words="last")
    pair = next(Extractor.load(folder, FeatureConfig(words=how)).stream([("abc", "b abc")]))
    assert pair.words.tolist() == [0, 0, 1] and pair.segments.tolist() == [0, 1, 1]


@pytest.mark.parametrize("specials", [False, True])
def test_pooling(folder, specials):
    inner = slice(None) if specials else slice(1, -1)
    for pool, reduce in (("mean", np.mean), ("cls", None)):
        found = list(Extractor.load(folder, FeatureConfig(pool=pool, specials=specials)).stream(TEXTS))
        assert found[0].offsets is None and found[0].vectors.shape == (32,)
        for text, one in zip(TEXTS, found, strict=True):
            h = states(folder, text)[2]
            if pool == "cls":
                close(one.vectors, h[0])
            elif len(h[inner]):
                close(one.vectors, reduce(h[inner], 0))
            else:
                assert not one.vectors.any()


def test_pooling_of_long_texts(folder):
    pieces = next(extract(folder, [LONG]))
    close(next(extract(folder, [LONG], pool="mean")), pieces.mean(0))
    words = LONG.split()
    first = [states(folder, " ".join(words[start : start + 30]))[2][0] for start in (0, 15, 30, 45)]
    close(next(extract(folder, [LONG], pool="cls")), np.mean(first, 0))


def test_every_layer_from_one_pass(folder):
    extractor = Extractor.load(folder, FeatureConfig(max_length=32))
    rows = [extractor.tokenizer.encode(text).ids for text in TEXTS]
    inputs = Inputs.from_ids(rows, extractor.tokenizer, 32)
    T = len(inputs.ids)
    tokens = extractor.layers(inputs, np.arange(T), T)  # a vector a token
    owner = np.repeat(np.arange(len(rows)), np.diff(inputs.edges))
    means = extractor.layers(inputs, np.where(owner == 1, -1, owner), len(rows))  # a vector a text, none of the second
    for i, text in enumerate(TEXTS):
        for layer, state in enumerate(states(folder, text)):
            close(tokens[layer][slice(*inputs.edges[i : i + 2])], state)
            close(means[layer][i], np.zeros(32) if i == 1 else state.mean(0))


def test_order_and_buffers_change_nothing(folder, monkeypatch):
    texts = [" ".join(LONG[: 2 * (i * 37 % 90)].split()) for i in range(60)]
    whole = list(extract(folder, texts))
    monkeypatch.setattr(features, "TEXTS", 7)
    monkeypatch.setattr("bertworks.inference.model.TOKENS", {"cpu": 256})
    for one, other, text in zip(whole, extract(folder, texts), texts, strict=True):
        assert len(one) == len(text.split())
        close(one, other)


def test_an_encoder_in_memory_is_left_as_it_is(folder):
    encoder, tokenizer = load_encoder(folder), load_tokenizer(folder)
    found = next(extract((encoder, tokenizer), ["good film"], "embeddings"))
    close(found, states(folder, "good film")[0][1:-1])
    assert len(encoder.layers) == 2 and encoder.pooler is not None


@pytest.mark.parametrize(
    "changes", [{"direction": "left"}, {"direction": "pair"}, {"layer_type": "lstm"}, {"num_hidden_layers": 0}]
)
def test_other_encoders(folder, changes):
    encoder = build_model(dataclasses.replace(TINY, **changes), (), seed=4).encoder.eval()
    tokenizer = load_tokenizer(folder)
    with torch.no_grad():
        ids = torch.tensor([tokenizer.encode("good film").ids])
        expected = encoder(ids).hidden_states
    choices = {"last": expected[-1], "embeddings": expected[0]}
    if len(expected) == 3:
        choices["concat-last-2"] = torch.cat(expected[1:], -1)
    for layers, state in choices.items():
        close(next(extract((encoder, tokenizer), ["good film", LONG], layers)), state[0, 1:-1])


def test_layers_above_the_highest_asked_for_are_not_computed(folder):
    extractor = Extractor.load(folder, FeatureConfig(layers="0"))
    called = []
    for layer in extractor.encoder.layers:
        layer.register_forward_hook(lambda module, given, out: called.append(module))
    next(extractor.stream(["good film"]))
    assert len(called) == 1


def test_memory_does_not_grow_with_the_input(folder, monkeypatch, tmp_path):
    """Five times the input: the same peak of Python's and NumPy's memory, of reading, computing and writing."""
    monkeypatch.setattr(features, "TEXTS", 64)
    peaks = []
    for lines in (1500, 1500, 7500):  # the first one fills caches
        (tmp_path / "in.txt").write_text("good film, abc bad\n" * lines)
        tracemalloc.start()
        main(["features", str(folder), str(tmp_path / "in.txt"), "--out", str(tmp_path / "out.safetensors")])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1], peaks
    assert load_file(tmp_path / "out.safetensors")["vectors"].shape == (7500 * 7, 32)


# ---- files


def test_arrays_in_files(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(features, "TEXTS", 3)  # several chunks
    source, out = tmp_path / "in.txt", tmp_path / "out.safetensors"
    source.write_text("\n".join(TEXTS[:-1]) + "\n" + LONG)
    main(["features", str(folder), str(source), "--out", str(out)])
    assert "7 texts, 1 of them through several windows, 113 vectors of width 32" in capsys.readouterr().err
    found = load_file(out)
    assert found["vectors"].dtype == "float32" and found["lines"].tolist() == list(range(1, 8))
    expected = list(Extractor.load(folder).stream([*TEXTS[:-1], LONG]))
    for (a, b), one in zip(itertools.pairwise(found["edges"]), expected, strict=True):
        for name in ("vectors", "offsets", "words", "ids"):
            np.testing.assert_array_equal(found[name][a:b], getattr(one, name))
    assert "segments" not in found and [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_columns_are_those_of_the_models_own_table(folder, tmp_path, refused):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    settings = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**settings, TASK: {"kind": "pair", "text": ["a", "b"]}}))
    table, out = tmp_path / "in.csv", tmp_path / "out.safetensors"
    table.write_text("text,a,b\nbad,good film,abc\n")
    rows = [{"text": "bad", "a": "good film", "b": "abc"}]
    for given, wanted in (((), ("good film", "abc")), (("text",), "bad"), (("b",), "abc")):
        [expected] = Extractor.load(folder).stream([wanted])
        main(["features", str(own), str(table), "--out", str(out), *(["--text", *given] if given else [])])
        assert ("segments" in load_file(out)) == (not given)
        [found] = bertworks.features(own, rows, text=given)
        for vectors in (found.vectors, load_file(out)["vectors"]):
            np.testing.assert_array_equal(vectors, expected.vectors)
    assert len(bertworks.features(own, (row for row in rows))) == 1  # read once
    table.write_text("text\nbad\n")
    message = refused("features", own, table, "--out", out)  # as predict
    assert "no column 'a'; found 'text'; name the text column, or two" in message


def test_pairs_in_memory_have_the_segments_of_a_table(folder, tmp_path):
    for number, rows in enumerate(([{"a": "good", "b": "bad film"}], [("good", "bad film")])):
        bertworks.features(folder, rows, text=() if number else ("a", "b"), out=tmp_path / f"{number}.safetensors")
    one, other = (load_file(tmp_path / f"{number}.safetensors") for number in (0, 1))
    assert one.keys() == other.keys() and "segments" in one
    np.testing.assert_array_equal(one["segments"], other["segments"])


def test_no_input_gives_an_empty_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    main(["features", str(folder), "-", "--out", str(tmp_path / "out.safetensors")])
    found = load_file(tmp_path / "out.safetensors")
    assert found["vectors"].shape == (0, 32) and found["edges"].tolist() == [0]


def test_a_failure_leaves_the_old_file(folder, tmp_path, monkeypatch, refused):
    monkeypatch.setattr(features, "TEXTS", 2)
    source, out = tmp_path / "in.txt", tmp_path / "out.safetensors"
    source.write_bytes(b"good\n" * 9 + b"\xff\n")
    out.write_text("old")
    assert "line 10: byte 0xFF is not UTF-8" in refused("features", folder, source, "--out", out)
    assert out.read_text() == "old" and {p.name for p in tmp_path.iterdir()} == {"in.txt", out.name}


class FullDisk(io.BytesIO):
    """A temporary file whose last bytes do not fit on the disk; such an error has no name of a file."""

    def __exit__(self, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_output(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: FullDisk())
    with pytest.raises(OSError, match="No space left") as error:
        bertworks.features(folder, ["good"], out=tmp_path / "out.safetensors")
    assert error.value.filename == str(tmp_path / "out.safetensors") and not any(tmp_path.iterdir())


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "x.csv"], "expected a name that ends in .safetensors"),
        (["--out", "x.safetensors", "--layers", "2"], "this encoder has layers 0 to 1"),
        (["--out", "x.safetensors", "--words", "mean", "--pool", "mean"], "words cannot be combined with pool"),
        (["--out", "x.safetensors", "--max-length", "33"], "max_length = 33; expected 8 to 32"),
    ],
)
def test_refusals(folder, tmp_path, monkeypatch, refused, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("good\n")
    assert says in refused("features", folder, "in.txt", *arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_products_in_bfloat16(folder):
    exact = np.concatenate(list(extract(folder, [*TEXTS, LONG])))
    extractor = Extractor.load(folder, FeatureConfig(precision="bfloat16"))
    found = np.concatenate([one.vectors for one in extractor.stream([*TEXTS, LONG])])
    assert found.dtype == np.float32 and found.shape == exact.shape
    apart = np.abs(found - exact).max() / np.abs(exact).max()
    assert 1e-6 < apart < 0.03  # bfloat16 has 8 bits: float32 is not what was computed, and yet these are the vectors
