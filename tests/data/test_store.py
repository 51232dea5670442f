"""Opening a store: what it gives, and what is said of one that is cut, altered, unfinished or of another version."""

import itertools
import json
import pickle
import shutil

import numpy as np
import pytest

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.data.store import Store
from bertworks.files import InputError
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
    opened = Store.open(store)
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
    opened = Store.open(store)
    tokens = np.concatenate([shard.tokens for shard in opened.shards("train")])
    assert (opened.unigram_counts() == np.bincount(tokens, minlength=opened.vocab_size)).all()
    p = np.bincount(tokens) / len(tokens)
    assert opened.unigram_entropy() == pytest.approx(-sum(x * np.log(x) for x in p if x))


def test_pickling_a_shard_copies_no_data(store):
    shard = Store.open(store).shards("train")[0]
    tokens = shard.tokens
    assert len(pickle.dumps(shard)) < 1000
    assert (pickle.loads(pickle.dumps(shard)).tokens == tokens).all()


def test_fingerprint_follows_the_data(store):
    before = Store.open(store).fingerprint
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["settings"]["language"] = "xx"
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert Store.open(store).fingerprint == before
    manifest["files"]["train-00000.tokens.npy"]["checksum"] = "0"
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert Store.open(store, verify=False).fingerprint != before


def test_a_cut_shard(store):
    path = store / "train-00001.tokens.npy"
    path.write_bytes(path.read_bytes()[:-10])
    for verify in (True, False):
        with pytest.raises(
            InputError, match=r"train-00001\.tokens\.npy: [\d,]+ bytes; expected [\d,]+: the file was cut"
        ):
            Store.open(store, verify)


def test_an_altered_shard(store):
    path = store / "train-00000.sentences.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"train-00000\.sentences\.npy: checksum .* the file was altered"):
        Store.open(store)


def test_a_header_that_contradicts_the_manifest(store):
    path = store / "train-00000.documents.npy"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"'<i8'", b"'<u8'"))
    with pytest.raises(InputError, match=r"train-00000\.documents\.npy: uint64 .* expected int64"):
        Store.open(store, verify=False)


def test_a_missing_file(store):
    (store / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json: missing; build the store again"):
        Store.open(store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "store version 2; this program reads version 1"),
        ({"format": "other"}, "not a corpus store's manifest"),
    ],
)
def test_another_manifest(store, change, message):
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(InputError, match=message):
        Store.open(store)


def test_what_is_no_store(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        Store.open(tmp_path / "no")
    with pytest.raises(InputError, match=r"without manifest\.json"):
        Store.open(tmp_path)
    (tmp_path / ".parts").mkdir()
    with pytest.raises(InputError, match="not finished; type the `corpus build` line again"):
        Store.open(tmp_path)
