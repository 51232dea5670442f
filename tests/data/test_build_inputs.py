"""What a build refuses and warns of: bad input, odd names, a full disk, settings that do not fit."""

import errno
import sys

import pytest

from bertworks.data.build import BuildConfig
from bertworks.data.opening import open_store
from bertworks.data.parts import PartWriter
from bertworks.data.show import show
from bertworks.data.vocabulary import check_unknown, tokenizer_of, unknown_fraction_of
from bertworks.files import InputError
from support.builds import content, document, run

pytest_plugins = ["support.build_fixtures"]


def test_a_full_disk_is_one_message_and_the_build_goes_on_later(corpus, tokenizer, tmp_path, small_parts, monkeypatch):
    run(corpus, tokenizer, tmp_path / "whole")
    for where, allowed in (("bertworks.data.parts", 7), ("bertworks.data.shards", 0)):  # in the middle of a part
        original = sys.modules[where].atomic_write
        calls = 0

        def full(path, original=original, allowed=allowed, **options):
            nonlocal calls
            calls += 1
            if calls > allowed:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(f"{where}.atomic_write", full)
            with pytest.raises(InputError, match="the disk is full; free some space and rerun the command"):
                run(corpus, tokenizer, tmp_path / "full")
    run(corpus, tokenizer, tmp_path / "full")
    assert content(tmp_path / "full") == content(tmp_path / "whole")


def test_bad_input_leaves_no_store_and_can_be_mended(tokenizer, tmp_path, small_parts, monkeypatch):
    path = tmp_path / "text.txt"
    good = "\n\n".join(document(i) for i in range(1000))
    path.write_bytes(good.encode() + b"\n\nBad \xff byte.\n")
    with pytest.raises(InputError, match=r"text\.txt, line 2001: byte 5"):
        run(path, tokenizer, tmp_path / "store")
    with pytest.raises(InputError, match="not finished"):
        open_store(tmp_path / "store")
    done = set((tmp_path / "store" / ".parts").glob("*.tokens.npy"))
    assert len(done) > 10
    calls, write = [], PartWriter.write
    monkeypatch.setattr(PartWriter, "write", lambda *arguments: calls.append(1) or write(*arguments))
    path.write_text(good + "\n\n" + document(5000))
    with pytest.raises(
        InputError,
        match=r"unfinished build of something else \(splitter sentencex .*, now Korean rules 2, --language en, now ko",
    ):
        run(path, tokenizer, tmp_path / "store", language="ko")
    run(path, tokenizer, tmp_path / "store")
    assert len(calls) == 1  # what came before the bad line was not done again
    run(path, tokenizer, tmp_path / "fresh")
    assert content(tmp_path / "store") == content(tmp_path / "fresh")


@pytest.mark.parametrize("text", ["", "\n\n \n"])
def test_an_empty_corpus(tokenizer, tmp_path, text):
    path = tmp_path / "text.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"text\.txt: no document in it"):
        run(path, tokenizer, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files in this folder"):
        run(tmp_path / "empty", tokenizer, tmp_path / "store")


def test_one_document_cannot_be_divided(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(document(1))
    with pytest.raises(InputError, match="documents with text: 1, too few to train on"):
        run(path, tokenizer, tmp_path / "store")
    path.write_text("\n\n".join(document(i) for i in range(9)))  # mended, and with other settings: it goes on
    run(path, tokenizer, tmp_path / "store", shard_tokens=100)
    run(path, tokenizer, tmp_path / "fresh", shard_tokens=100)
    assert content(tmp_path / "store") == content(tmp_path / "fresh")


def test_an_occupied_folder_is_refused(corpus, tokenizer, tmp_path):
    with pytest.raises(InputError, match="this folder is not empty"):
        run(corpus, tokenizer, tmp_path)
    first = run(corpus, tokenizer, tmp_path / "store")
    before = content(tmp_path / "store")
    assert run(corpus, tokenizer, tmp_path / "store") == first
    with pytest.raises(
        InputError,
        match=r"finished store of something else \(splitter sentencex .*, now Korean rules 2, --language en, now ko\)",
    ):
        run(corpus, tokenizer, tmp_path / "store", language="ko")
    corpus.write_text(corpus.read_text() + "\n\nMore.")
    with pytest.raises(InputError, match=r"finished store of something else \(inputs"):
        run(corpus, tokenizer, tmp_path / "store")
    assert content(tmp_path / "store") == before


def test_a_vocabulary_that_cannot_match_is_refused_unless_allowed(tokenizer, tmp_path, capsys, small_parts):
    known, unknown = [document(i, 2) for i in range(40)], "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc774\ub2e4."
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"{unknown} {unknown} {i}" for i in range(40)))
    with pytest.raises(InputError, match=r"its beginning: [67]\d% of the tokens are \[UNK\].* --allow-unknown"):
        run(path, tokenizer, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    path.write_text("\n\n".join([*known * 20, *(f"{unknown * 20} {i}." for i in range(2000))]))
    with pytest.raises(InputError, match=r"store: \d\d% of the tokens are \[UNK\]"):  # found at the end
        run(path, tokenizer, tmp_path / "store")
    with pytest.raises(InputError, match="not finished"):
        open_store(tmp_path / "store")
    run(path, tokenizer, tmp_path / "store", allow_unknown=True)
    store = open_store(tmp_path / "store")
    assert unknown_fraction_of(store, tokenizer_of(store)) > 0.5
    check_unknown(store, tokenizer_of(store))
    del store.manifest["unknown allowed"]
    with pytest.raises(InputError, match=r"\d\d% of the tokens are \[UNK\]"):
        check_unknown(store, tokenizer_of(store))
    show(tmp_path / "store")
    assert "of the training tokens" in capsys.readouterr().out


def test_wrong_settings():
    for settings in (
        {"validation_share": 1.0},
        {"shard_tokens": 0},
        {"max_sentence_tokens": 0},
        {"workers": -3},
        {"min_validation_documents": -1},
    ):
        with pytest.raises(InputError, match="expected"):
            BuildConfig(**settings)
