"""Opening a store: what it gives, and what is said of one that is cut, altered, unfinished or of another version."""

import itertools
import json
import pickle
import shutil

import numpy as np
import pytest

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.data.opening import open_store
from bertworks.data.show import show
from bertworks.data.vocabulary import tokenizer_of
from bertworks.files import InputError, checksum
from bertworks.tokenizer import Tokenizer, TokenizerConfig

TEXTS = [f"Document number {i} has words. It has {i * i} more of them, and an end. So it goes." for i in range(40)]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "text.txt").write_text("\n\n".join(TEXTS))
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=120))
    config = BuildConfig(input=InputOptions(documents="blank-line"), shard_tokens=200, workers=1)
    build([folder / "text.txt"], tokenizer, folder / "store", config, progress=False)
    return folder / "store"


@pytest.fixture
def store(built, tmp_path):
    shutil.copytree(built, tmp_path / "store")
    return tmp_path / "store"


def test_the_shards_hold_every_document_once(store):
    opened = open_store(store)
    tokenizer = Tokenizer.load(opened.tokenizer_folder)
    assert opened.vocab_size == tokenizer.vocab_size
    found = []
    for split in ("train", "validation"):
        assert opened.shards(split)
        for shard in opened.shards(split):
            assert shard.tokens.dtype == np.uint16 and not shard.tokens.flags.writeable
            assert (len(shard.tokens), len(shard.sentences) - 1) == (shard.n_tokens, shard.n_sentences)
            assert len(shard.documents) - 1 == shard.n_documents
            assert (shard.documents[-1], shard.sentences[-1]) == (shard.n_sentences, shard.n_tokens)
            for first, last in itertools.pairwise(shard.documents):
                assert last - first == 3
                ids = shard.tokens[shard.sentences[first] : shard.sentences[last]]
                found.append(ids.tolist())
    assert len(opened.shards("train")) > 2
    assert sorted(found) == sorted(tokenizer.ids_of(TEXTS))


def test_unigrams_are_those_of_the_training_split(store):
    opened = open_store(store)
    tokens = np.concatenate([shard.tokens for shard in opened.shards("train")])
    assert (opened.unigram_counts() == np.bincount(tokens, minlength=opened.vocab_size)).all()
    p = np.bincount(tokens) / len(tokens)
    assert opened.unigram_entropy() == pytest.approx(-sum(x * np.log(x) for x in p if x))


def test_pickling_a_shard_copies_no_data(store):
    shard = open_store(store).shards("train")[0]
    tokens = shard.tokens
    assert len(pickle.dumps(shard)) < 1000
    assert (pickle.loads(pickle.dumps(shard)).tokens == tokens).all()


def test_fingerprint_follows_the_data(store):
    before = open_store(store).fingerprint
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["settings"]["language"] = "xx"
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert open_store(store).fingerprint == before
    manifest["files"]["train-00000.tokens.npy"]["checksum"] = "0"
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert open_store(store, verify=False).fingerprint != before


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-00001.tokens.npy", lambda content: content[:-10], r"[\d,]+ bytes; expected [\d,]+: the file was cut"),
        ("train-00000.sentences.npy", lambda content: content[:-1] + b"\x7f", "checksum .* the file was altered"),
        ("tokenizer/tokenizer.json", None, "missing; build the store again"),
    ],
)
def test_a_file_that_is_cut_altered_or_missing(store, name, change, message):
    path = store / name
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    with pytest.raises(InputError, match=f"{name}: ({message})"):
        open_store(store)


def test_what_is_no_store(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        open_store(tmp_path / "no")
    with pytest.raises(InputError, match=r"without manifest\.json"):
        open_store(tmp_path)
    (tmp_path / ".parts").mkdir()
    with pytest.raises(InputError, match="not finished; rerun the `corpus build` command"):
        open_store(tmp_path)


def entered(store, path):
    """Write the size and checksum that `path` has now into the manifest: a store that contradicts itself in values."""
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["files"][str(path.relative_to(store))] = {"bytes": path.stat().st_size, "checksum": checksum(path)}
    (store / "manifest.json").write_text(json.dumps(manifest))


def test_offsets_that_do_not_rise_with_a_matching_checksum(store):
    for array in ("sentences", "documents"):
        path = store / f"train-00000.{array}.npy"
        before = path.read_bytes()
        values = np.load(path)
        for change, message in (
            ({2: values[1]}, rf"{array}\.npy: offset 2 is not above the one before"),
            ({2: 0}, "offset 2 is not"),
            ({2: -(2**63), 1: 2**62}, "offset 2 is not"),
            ({0: 1}, "offsets from 1 to"),
            ({-1: values[-1] + 1}, "expected 0 to"),
        ):
            changed = values.copy()
            for place, value in change.items():
                changed[place] = value
            np.save(path, changed)
            entered(store, path)
            with pytest.raises(InputError, match=message):
                open_store(store)
        path.write_bytes(before)
        entered(store, path)
    open_store(store)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-00001.tokens.npy", (0, 200), r"train-00001\.tokens\.npy: token 2\d\d; expected less than 1"),
        ("unigrams.npy", (-1, 1), "not counts of the training split"),  # of [PAD], which has 0, and the last token
        ("unigrams.npy", (1, 0), "not counts of the training split"),
    ],
)
def test_tokens_and_counts_of_other_text_with_a_matching_checksum(store, name, change, message):
    values = np.load(store / name)
    values[[0, -1]] += np.array(change, values.dtype)
    np.save(store / name, values)
    entered(store, store / name)
    with pytest.raises(InputError, match=message):
        open_store(store)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("version",), 3, r"written by a newer bertworks \(format 3; this version reads up to 1\)"),
        (("version",), 0, "format is 0; expected 1"),
        (("format",), "other", "not a corpus store's manifest"),
        (("files",), [], "files = .*; expected a table"),
        (("files", "../outside"), {"bytes": 1, "checksum": ""}, "'../outside' is not the name of a file"),
        (("dtype",), "float64", "dtype is 'float64'"),
        (("tokenizer", "vocab_size"), 119, r"unigrams\.npy: int64 \(\d+,\); expected int64 \(119,\)"),
        (("shards",), {}, r"no field shards\.train; expected train, validation"),
        (("shards", "train"), [], "no shard to train on"),
        (("shards", "train", 0, "name"), "../../x", "is not the name of a train shard"),
        (("shards", "train", 0, "documents"), 0, r"documents\.npy: int64 .*; expected int64 \(1,\) after the manifest"),
        (("counts", "train", "tokens"), 7, "not counts of the training split's tokens"),
    ],
)
def test_a_manifest_of_other_values(store, place, value, message):
    manifest = json.loads((store / "manifest.json").read_text())
    inner = manifest
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (store / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=message):
        open_store(store)


def test_a_tokenizer_of_another_size_with_a_matching_checksum(store):
    Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=110)).save(store / "tokenizer")
    for path in (store / "tokenizer").iterdir():
        entered(store, path)
    for use in (lambda path: tokenizer_of(open_store(path)), show):
        with pytest.raises(InputError, match=r"a vocabulary of 10[0-9] tokens; expected 11[0-9]"):
            use(store)
