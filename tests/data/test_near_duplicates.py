"""Near-duplicates: found by their text, left out by hash alone, and counted."""

import random
import zlib

import numpy as np
import pytest

from bertworks.data import build as build_module
from bertworks.data import near_duplicates as near_module
from bertworks.data.near_duplicates import FEWEST, VALUES, Sketcher, duplicate_key, find_near_duplicates, shingles
from bertworks.data.opening import open_store
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support import builds
from support.builds import content, documents

LETTERS = "abcdefghij"
WORDS = [a + b + c for a in LETTERS for b in LETTERS for c in LETTERS]


def word_shingles(text):
    return shingles(np.array([zlib.crc32(word.encode()) for word in text.split(" ")]), 2)


def words(seed: int, count: int = 150) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


def changed(seed: int, places: int) -> str:
    """The text of a seed with a few of its words replaced."""
    draw, found = random.Random(seed + 10_000), words(seed)
    for place in draw.sample(range(len(found)), places):
        found[place] = draw.choice(WORDS)
    return " ".join(found) + "."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([" ".join(WORDS)], TokenizerConfig(vocab_size=1200, min_frequency=1))


@pytest.fixture
def corpus(tmp_path):
    """120 texts, another version of 30 with one word changed, and of 30 with half of the words changed."""
    texts = [changed(seed, 0) for seed in range(120)]
    texts += [changed(seed, 1) for seed in range(30)] + [changed(seed, 75) for seed in range(30, 60)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join([*texts, texts[0].upper()]))
    return path


def run(path, tokenizer, out, **settings):
    return builds.run(path, tokenizer, out, **{"near_duplicates": 0.8, "validation_share": 0.1, **settings})


def test_the_version_with_the_lower_hash_stays(corpus, tokenizer, tmp_path):
    kept = run(corpus, tokenizer, tmp_path / "near")["counts"]
    assert kept["dropped"]["near-duplicate"] == 30 and kept["dropped"]["duplicate"] == 1
    assert kept["train"]["documents"] + kept["validation"]["documents"] == 150
    everything = run(corpus, tokenizer, tmp_path / "all", near_duplicates=0.0)
    assert "near-duplicate" not in everything["counts"]["dropped"] and "near_duplicates" not in everything["settings"]
    stored = [{*documents(tmp_path / name, split)} for split in ("train", "validation") for name in ("near", "all")]
    assert stored[2] <= stored[3]  # the others give way
    for seed in range(30):
        assert (ids(tokenizer, changed(seed, 0)) in stored[0] | stored[2]) != (
            ids(tokenizer, changed(seed, 1)) in stored[0] | stored[2]
        )


def ids(tokenizer, text):
    return np.array(tokenizer.ids_of([text])[0], np.uint16).tobytes()


def test_workers_parts_and_ranges_change_nothing(corpus, tokenizer, tmp_path, monkeypatch):
    run(corpus, tokenizer, tmp_path / "one")
    monkeypatch.setattr(build_module, "BATCH_CHARS", 5_000)
    monkeypatch.setattr(near_module, "AT_ONCE", 40)
    run(corpus, tokenizer, tmp_path / "two", workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_build_begun_without_the_option_gets_its_sketches(corpus, tokenizer, tmp_path, monkeypatch):
    run(corpus, tokenizer, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build_module, "plan_shards", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        run(corpus, tokenizer, tmp_path / "begun", near_duplicates=0.0)
    run(corpus, tokenizer, tmp_path / "begun")
    assert content(tmp_path / "begun") == content(tmp_path / "whole")


def test_sketches_equal_those_of_the_library(monkeypatch):
    datasketch, draw = pytest.importorskip("datasketch"), np.random.default_rng(0)
    documents = [shingles(draw.integers(0, 30_000, size)) for size in (1, 3, 5000, 40, 9000, 6, 4100)]
    found = Sketcher(0.8).sketches(documents)
    for document, own in zip(documents, found, strict=True):
        theirs = datasketch.MinHash(VALUES, 1, hashfunc=int, scheme="affine32")
        theirs.update_batch(document.tolist())
        assert (theirs.hashvalues == own).all()
    assert Sketcher(0.8).sketches([]).shape == (0, VALUES)


def test_a_shard_of_near_duplicates_alone_is_left_out(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(
        "\n\n".join([changed(0, 0), *(f"{changed(0, 0)[:-1]} {word}." for word in WORDS[:12]), changed(1, 0)])
    )
    manifest = run(path, tokenizer, tmp_path / "store", shard_tokens=200, validation_share=0.0)
    assert manifest["counts"]["dropped"]["near-duplicate"] == 12
    assert manifest["counts"]["train"]["documents"] == 2 and len(manifest["shards"]["train"]) <= 2
    names = {path.name for path in (tmp_path / "store").glob("train-*")}
    assert names <= manifest["files"].keys() and open_store(tmp_path / "store")


# ---- in memory

PAIRS_OF_LETTERS = [a + b for a in "abcdefghij" for b in "klmnopqrst"]


def variants(count: int, words: int) -> list[str]:
    """Texts, and a version of each with some of its words replaced."""
    draw, out = random.Random(0), []
    for i in range(count):
        text = draw.choices(PAIRS_OF_LETTERS, k=words)
        out.append(" ".join(text))
        for place in draw.sample(range(words), 1 + i % 6):
            text[place] = draw.choice(PAIRS_OF_LETTERS)
        out.append(" ".join(text))
    draw.shuffle(out)
    return out


@pytest.mark.parametrize(("words", "threshold"), [(60, 0.8), (25, 0.8), (40, 0.6)])
def test_all_pairs_above_the_threshold_are_found(words, threshold):
    texts = variants(150, words)
    pairs = [{*zip(text.split(), text.split()[1:], strict=False)} for text in texts]
    similar = lambda i, j: len(pairs[i] & pairs[j]) / len(pairs[i] | pairs[j]) >= threshold  # noqa: E731
    first = {i: next((j for j in range(i) if similar(i, j)), None) for i in range(300)}
    expected = {i: j for i, j in first.items() if j is not None}
    rows = [word_shingles(text) for text in texts]
    assert 20 < len(expected) < 150 and find_near_duplicates(rows, rows, threshold) == expected
    crossed = {
        i: j for i in range(150) if (j := next((j for j in range(150) if similar(i, 150 + j)), None)) is not None
    }
    assert find_near_duplicates(rows[:150], rows[150:], threshold) == crossed


def test_short_texts_are_not_compared_and_keys_have_no_case():
    short, long = word_shingles("a b c d e f"), word_shingles("a b c d e f g")
    assert len(short) == FEWEST - 1 and not find_near_duplicates([short, short], [short], 0.8)
    assert find_near_duplicates([long], [long, long]) == {0: 0} and not find_near_duplicates([], [long])
    assert duplicate_key("The CAT, sat!") == duplicate_key("the cat sat") and duplicate_key(" ?! ") == "?!"
    assert duplicate_key("हिन्दी") == "हिन्दी"  # the vowel signs are parts of its word
