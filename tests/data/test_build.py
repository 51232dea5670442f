"""Building a store: the same bytes whatever the workers, shards and kills; duplicates and splits."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import numpy as np
import pytest

from bertworks.data import build as build_module
from bertworks.data import worker as worker_module
from bertworks.data.opening import open_store
from bertworks.files import InputError, try_lock
from support.builds import content, document, documents, run

pytest_plugins = ["support.build_fixtures"]


def test_workers_and_parts_do_not_change_the_store(corpus, tokenizer, tmp_path, monkeypatch):
    run(corpus, tokenizer, tmp_path / "one")
    run(corpus, tokenizer, tmp_path / "two", workers=2)
    monkeypatch.setattr(build_module, "BATCH_CHARS", 10_000)
    run(corpus, tokenizer, tmp_path / "parts", workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "parts")
    assert not [path for path in (tmp_path / "one").iterdir() if path.name.startswith(".")]


def test_shards_divide_the_same_documents(corpus, tokenizer, tmp_path, small_parts):
    run(corpus, tokenizer, tmp_path / "one")
    run(corpus, tokenizer, tmp_path / "many", shard_tokens=2000)
    assert len(open_store(tmp_path / "many").shards("train")) > 5
    for split in ("train", "validation"):
        assert documents(tmp_path / "one", split) == documents(tmp_path / "many", split)
    assert (open_store(tmp_path / "one").unigram_counts() == open_store(tmp_path / "many").unigram_counts()).all()


def test_a_build_that_is_stopped_among_the_shards_gathers_the_others_alone(
    corpus, tokenizer, tmp_path, small_parts, monkeypatch
):
    run(corpus, tokenizer, tmp_path / "whole", shard_tokens=2000)
    shards, original = len(list((tmp_path / "whole").glob("*.tokens.npy"))), worker_module.write_shard
    for stopped_at, begun in ((3, 3), (0, shards - 2)):  # the third one is begun a second time
        names = []

        def gather(shard, *given, names=names, stopped_at=stopped_at):
            names.append(shard.name)
            if len(names) == stopped_at:
                raise KeyboardInterrupt
            return original(shard, *given)

        monkeypatch.setattr(worker_module, "write_shard", gather)
        with pytest.raises(KeyboardInterrupt) if stopped_at else contextlib.nullcontext():
            run(corpus, tokenizer, tmp_path / "stopped", shard_tokens=2000)
        assert len(names) == begun
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


def test_the_split_is_by_document_and_does_not_depend_on_the_rest(corpus, tokenizer, tmp_path):
    first = run(corpus, tokenizer, tmp_path / "one", validation_share=0.1)
    assert 10 < first["counts"]["validation"]["documents"] < 60
    more = tmp_path / "more.txt"
    more.write_text("\n\n".join(document(i) for i in range(400, 0, -1)))
    run(more, tokenizer, tmp_path / "two", validation_share=0.1)
    held_out = set(documents(tmp_path / "one", "validation"))
    assert held_out.isdisjoint(documents(tmp_path / "one", "train"))
    assert held_out.isdisjoint(documents(tmp_path / "two", "train"))


def test_duplicates_are_dropped_and_counted(tokenizer, tmp_path, small_parts):
    texts = [document(i) for i in range(60)]
    spaced = [texts[3].replace(" ", "  "), texts[4].upper()]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join([*texts, *texts[:20], *spaced, "\u200b"]))
    counts = run(path, tokenizer, tmp_path / "store")["counts"]
    assert counts["documents"] == 83
    assert counts["dropped"] == {"empty": 0, "short": 0, "long": 0, "no tokens": 1, "duplicate": 22}
    assert counts["train"]["documents"] + counts["validation"]["documents"] == 60


def test_at_least_two_documents_are_held_out(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(document(i) for i in range(5)))
    assert run(path, tokenizer, tmp_path / "a")["counts"]["validation"]["documents"] == 2
    assert run(path, tokenizer, tmp_path / "b", validation_share=0.0)["shards"]["validation"] == []
    path.write_text("\n\n".join(document(i) for i in range(2)))
    assert run(path, tokenizer, tmp_path / "c")["counts"]["validation"]["documents"] == 1


def test_long_sentences_are_cut_not_lost(tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("cat dog " * 500 + "\n\nThe cat sees.\n\nThe dog sees.")
    manifest = run(path, tokenizer, tmp_path / "store", max_sentence_tokens=64, validation_share=0.0)
    assert manifest["counts"]["sentences cut"] == 1
    (shard,) = open_store(tmp_path / "store").shards("train")
    assert np.diff(shard.sentences).max() == 64
    assert shard.n_tokens == sum(map(len, tokenizer.ids_of(["cat dog " * 500, "The cat sees.", "The dog sees."])))


BUILD = """
import sys
from bertworks.data import build as b
from bertworks.data.corpus import InputOptions
from bertworks.tokenizer import Tokenizer
if __name__ == "__main__":
    b.BATCH_CHARS = 10_000
    config = b.BuildConfig(input=InputOptions(documents="blank-line"), shard_tokens=20_000, workers=int(sys.argv[4]))
    b.build([sys.argv[1]], Tokenizer.load(sys.argv[2]), sys.argv[3], config, progress=False)
"""


def started(tokenizer, folder, out, workers) -> subprocess.Popen:
    """A build of text.txt in a process of its own."""
    tokenizer.save(folder / "tokenizer")
    (folder / "script.py").write_text(BUILD)
    paths = (str(folder / name) for name in ("script.py", "text.txt", "tokenizer", out))
    return subprocess.Popen([sys.executable, *paths, str(workers)], start_new_session=True)


@pytest.mark.heavy
def test_a_killed_build_typed_again_gives_the_same_store(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(document(i, 20) for i in range(1500)))

    def count() -> int:
        return sum(len(files) for _, _, files in os.walk(tmp_path / "killed"))

    assert started(tokenizer, tmp_path, "whole", 1).wait(60) == 0
    draw, seen = random.Random(0), []
    for workers in (1, 2, 1, 1, 2, 1):
        process = started(tokenizer, tmp_path, "killed", workers)
        target = count() + draw.randint(1, 40)  # a kill so many files later
        while count() < target and process.poll() is None:
            time.sleep(draw.uniform(0, 0.002))
        process.kill()
        process.wait()
        seen.append(count())
    assert started(tokenizer, tmp_path, "killed", 1).wait(60) == 0
    assert len(set(seen)) >= 4, seen
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.heavy
def test_workers_end_with_a_killed_parent(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(document(i, 30) for i in range(20_000)))
    process = started(tokenizer, tmp_path, "out", 2)
    for _ in range(200):
        if list((tmp_path / "out" / ".parts").glob("*.tokens.npy")) or process.poll() is not None:
            break
        time.sleep(0.05)
    assert process.poll() is None
    process.kill()
    process.wait()
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError("worker processes outlive their parent")


def stop(corpus, tokenizer, out):
    """A build that is stopped when all parts are there."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build_module, "plan_shards", Mock(side_effect=KeyboardInterrupt))
        run(corpus, tokenizer, out)


def test_two_builds_of_one_store(corpus, tokenizer, tmp_path, small_parts):
    store = tmp_path / "store"
    stop(corpus, tokenizer, store)
    before = content(store)
    with try_lock(store / ".parts" / ".lock") as mine:
        assert mine
        with pytest.raises(InputError, match="another process builds this store"):
            run(corpus, tokenizer, store)
    assert content(store) == before


def test_what_kills_left_is_removed_by_the_next_start(corpus, tokenizer, tmp_path):
    run(corpus, tokenizer, tmp_path / "whole")
    store = tmp_path / "store"
    left = [store / ".parts" / f".{'0' * 32}.tokens.npy.99999999.tmp", store / ".train-00000.tokens.npy.99999999.tmp"]
    left += [store / "tokenizer" / ".tokenizer.json.99999999.tmp", store / ".manifest.json.99999999.tmp"]
    stop(corpus, tokenizer, store)
    for finished in (False, True):
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"left")
        run(corpus, tokenizer, store)
        assert content(store) == content(tmp_path / "whole"), finished
