"""Building a store: the same bytes whatever the workers, shards and kills; duplicates, splits, and bad input."""

import contextlib
import errno
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from bertworks.cli import main
from bertworks.data import build as build_module
from bertworks.data import worker as worker_module
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.data.parts import PartWriter
from bertworks.data.show import show
from bertworks.data.store import Store
from bertworks.files import InputError, try_lock, write_json
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from bertworks.tokenizer.bert_rules import BertRules

LINES = InputOptions(documents="blank-line")
WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "house",
    "river",
    "walks",
    "sees",
    "takes",
    "old",
    "new",
    "of",
    "in",
    "on",
    "it",
    "they",
)


def document(seed: int, sentences: int = 6) -> str:
    draw = random.Random(seed)
    return " ".join(" ".join(draw.choices(WORDS, k=draw.randint(4, 15))).capitalize() + "." for _ in range(sentences))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([document(i) for i in range(20)], TokenizerConfig(vocab_size=120))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(document(i) for i in range(300)))
    return path


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(build_module, "BATCH_CHARS", 10_000)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(corpus, tokenizer, out, **settings):
    config = BuildConfig(**{"input": LINES, "workers": 1, **settings})
    return build([corpus], tokenizer, out, config, progress=False)


def documents(store: Path, split: str) -> list[bytes]:
    found = []
    for shard in Store.open(store).shards(split):
        edges = shard.sentences[shard.documents]
        found += [shard.tokens[a:b].tobytes() for a, b in itertools.pairwise(edges)]
    return found


def test_workers_and_parts_do_not_change_the_store(corpus, tokenizer, tmp_path, monkeypatch):
    run(corpus, tokenizer, tmp_path / "one")
    run(corpus, tokenizer, tmp_path / "two", workers=2)
    monkeypatch.setattr(build_module, "BATCH_CHARS", 10_000)
    run(corpus, tokenizer, tmp_path / "parts", workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "parts")
    assert not [path for path in (tmp_path / "one").iterdir() if path.name.startswith(".")]


def test_the_store_names_the_version_of_the_code(corpus, tokenizer, tmp_path, monkeypatch):
    """The metadata may be those of an older installation."""
    monkeypatch.setattr(build_module, "__version__", "9.8.7")
    run(corpus, tokenizer, tmp_path / "store")
    assert Store.open(tmp_path / "store").manifest["versions"]["bertworks"] == "9.8.7"


def test_shards_divide_the_same_documents(corpus, tokenizer, tmp_path, small_parts):
    run(corpus, tokenizer, tmp_path / "one")
    run(corpus, tokenizer, tmp_path / "many", shard_tokens=2000)
    assert len(Store.open(tmp_path / "many").shards("train")) > 5
    for split in ("train", "validation"):
        assert documents(tmp_path / "one", split) == documents(tmp_path / "many", split)
    assert (Store.open(tmp_path / "one").unigram_counts() == Store.open(tmp_path / "many").unigram_counts()).all()


def test_worker_processes_gather_the_shards(corpus, tokenizer, tmp_path, small_parts, monkeypatch):
    run(corpus, tokenizer, tmp_path / "one", shard_tokens=2000)
    monkeypatch.setattr(worker_module, "write_shard", Mock(side_effect=AssertionError("in the builder's process")))
    run(corpus, tokenizer, tmp_path / "two", shard_tokens=2000, workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two")


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
    (shard,) = Store.open(tmp_path / "store").shards("train")
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


@pytest.mark.heavy
def test_a_killed_build_typed_again_gives_the_same_store(tokenizer, tmp_path):
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n\n".join(document(i, 20) for i in range(1500)))
    tokenizer.save(tmp_path / "tokenizer")

    script = tmp_path / "script.py"
    script.write_text(BUILD)

    def start(out: str, workers: int) -> subprocess.Popen:
        arguments = [corpus, tmp_path / "tokenizer", tmp_path / out, workers]
        return subprocess.Popen([sys.executable, script, *map(str, arguments)])

    def count() -> int:
        return sum(len(files) for _, _, files in os.walk(tmp_path / "killed"))

    assert start("whole", 1).wait(60) == 0
    draw, seen = random.Random(0), []
    for workers in (1, 2, 1, 1, 2, 1):
        process = start("killed", workers)
        target = count() + draw.randint(1, 40)  # a kill so many files later
        while count() < target and process.poll() is None:
            time.sleep(draw.uniform(0, 0.002))
        process.kill()
        process.wait()
        seen.append(count())
    assert start("killed", 1).wait(60) == 0
    assert len(set(seen)) >= 4, seen
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.heavy
def test_a_store_of_the_same_vocabulary_with_rules_written_otherwise_is_the_same(corpus, tokenizer, tmp_path):
    """Stores made when tokenizer.json had the library's own steps for the original's rules are still accepted."""
    rules = BertRules(lowercase=True, compose=True)
    before = Tokenizer(json.dumps(json.loads(tokenizer.pipeline) | rules.library_steps))
    assert before.pipeline != tokenizer.pipeline
    manifest = run(corpus, before, tmp_path / "store")
    assert manifest["tokenizer"]["fingerprint"] == before.fingerprint
    files = content(tmp_path / "store")
    assert run(corpus, tokenizer, tmp_path / "store") == manifest
    assert content(tmp_path / "store") == files
    run(corpus, tokenizer, tmp_path / "now")
    assert Store.open(tmp_path / "now").fingerprint == Store.open(tmp_path / "store").fingerprint


@pytest.mark.heavy
def test_workers_end_with_a_killed_parent(tokenizer, tmp_path):
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n\n".join(document(i, 30) for i in range(20_000)))
    tokenizer.save(tmp_path / "tokenizer")
    script = tmp_path / "script.py"
    script.write_text(BUILD)
    arguments = [str(corpus), str(tmp_path / "tokenizer"), str(tmp_path / "out"), "2"]
    process = subprocess.Popen([sys.executable, str(script), *arguments], start_new_session=True)
    for _ in range(200):
        if list((tmp_path / "out" / ".parts").glob("*.part")) or process.poll() is not None:
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


UNGUARDED = """
from bertworks.data import build as b
from bertworks.data.corpus import InputOptions
from bertworks.tokenizer import Tokenizer
print("running")
config = b.BuildConfig(input=InputOptions(documents="blank-line"), workers=2)
b.build([{corpus!r}], Tokenizer.load({tokenizer!r}), {out!r}, config, progress=False)
"""


@pytest.mark.parametrize(
    "how",
    ["script", *(pytest.param(how, marks=pytest.mark.heavy) for how in ("-c", "stdin", "module"))],
)
def test_a_script_without_a_guard_builds_with_workers(corpus, tokenizer, tmp_path, how):
    tokenizer.save(tmp_path / "tokenizer")
    run(corpus, tokenizer, tmp_path / "one")
    names = {"corpus": str(corpus), "tokenizer": str(tmp_path / "tokenizer"), "out": str(tmp_path / "two")}
    script = tmp_path / "a script.py" if how != "module" else tmp_path / "unguarded.py"
    script.write_text(code := UNGUARDED.format(**names))
    arguments = {"script": [script], "-c": ["-c", code], "stdin": ["-"], "module": ["-m", "unguarded"]}[how]
    given = {"input": code if how == "stdin" else None, "cwd": tmp_path if how == "module" else None}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **given)
    assert (done.returncode, done.stdout, done.stderr) == (0, "running\n", "")
    assert content(tmp_path / "two") == content(tmp_path / "one")


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


def test_a_build_that_another_process_ends_in_between_is_found_finished(corpus, tokenizer, tmp_path, monkeypatch):
    """After the first look, before the lock: nothing is built a second time."""
    store, locked = tmp_path / "store", build_module._Build.locked
    run(corpus, tokenizer, tmp_path / "whole")
    whole = content(tmp_path / "whole")

    def late(job):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", store)
        return locked(job)

    monkeypatch.setattr(build_module._Build, "locked", late)
    monkeypatch.setattr(build_module._Build, "prepare", Mock(side_effect=AssertionError("built again")))
    assert run(corpus, tokenizer, store) == json.loads((store / "manifest.json").read_text())
    assert content(store) == whole


def test_what_kills_left_is_removed_by_the_next_start(corpus, tokenizer, tmp_path):
    run(corpus, tokenizer, tmp_path / "whole")
    store = tmp_path / "store"
    left = [store / ".parts" / f".{'0' * 32}.part.99999999.tmp", store / ".train-00000.tokens.npy.99999999.tmp"]
    left += [store / "tokenizer" / ".tokenizer.json.99999999.tmp", store / ".manifest.json.99999999.tmp"]
    stop(corpus, tokenizer, store)
    for finished in (False, True):
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"left")
        run(corpus, tokenizer, store)
        assert content(store) == content(tmp_path / "whole"), finished


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("build.json", []),
        ("build.json", {"version": "1"}),
        ("read.json", {"parts": 3, "counts": {}}),
        ("read.json", {"parts": [None], "counts": {}}),
    ],
)
def test_notes_of_an_unfinished_build_that_were_changed(corpus, tokenizer, tmp_path, name, value):
    stop(corpus, tokenizer, tmp_path / "store")
    write_json(tmp_path / "store" / ".parts" / name, value)
    with pytest.raises(InputError, match=rf"{name}: .*; expected .*; delete .*store and start the build again"):
        run(corpus, tokenizer, tmp_path / "store")
    shutil.rmtree(tmp_path / "store")
    run(corpus, tokenizer, tmp_path / "store")


def test_a_part_that_was_changed(corpus, tokenizer, tmp_path):
    stop(corpus, tokenizer, tmp_path / "store")
    (part,) = (tmp_path / "store" / ".parts").glob("*.part")
    content = part.read_bytes()
    for head in ([-1, 5, 5, 5], [2**62, 2**62, 2**62, 2**62], [0, 0, 0, 0]):
        part.write_bytes(np.array(head, np.int64).tobytes() + content[32:])
        with pytest.raises(InputError, match=r"\.part: [\d,]+ bytes; not a whole part"):
            run(corpus, tokenizer, tmp_path / "store")


def test_a_bare_vocabulary_is_read_with_its_case(tmp_path, capsys):
    """Published vocabularies come as a vocab.txt, which the original code reads with --do_lower_case."""
    (tmp_path / "a.txt").write_text("\n\n".join(document(i) for i in range(30)))
    with contextlib.chdir(tmp_path):
        main(["tokenizer", "train", "a.txt", "--out", "tok", "--vocab-size", "120", "--uncased"])
        line = [
            "corpus",
            "build",
            "a.txt",
            "--tokenizer",
            "tok/vocab.txt",
            "--input.documents",
            "blank-line",
            "--workers",
            "1",
        ]
        with pytest.raises(SystemExit):
            main([*line, "--out", "unknown"])
        assert "give --cased or --uncased" in capsys.readouterr().err and not Path("unknown").exists()
        main([*line, "--out", "bare", "--uncased"])
        line[line.index("tok/vocab.txt")] = "tok"
        main([*line, "--out", "whole"])
        assert Path("bare/train-00000.tokens.npy").read_bytes() == Path("whole/train-00000.tokens.npy").read_bytes()


NAMES = ["a b", "two\nlines", "\ud55c\uad6d\uc5b4", os.fsdecode(b"tr\xff\xfe")]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_every_kind(tmp_path, capsys, name):
    folder = tmp_path / name
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this system has no such names")
    text, vocabulary, store = folder / f"{name}.txt", folder / f"vocabulary {name}", folder / f"store {name}"
    text.write_text("\n\n".join(document(i) for i in range(30)))
    (vocabulary.mkdir(), (vocabulary / ".vocab.txt.99999999.tmp").write_text("left"))
    main(["tokenizer", "train", str(text), "--out", str(vocabulary), "--vocab-size", "120"])
    assert not list(vocabulary.glob(".*"))
    words = shlex.split(capsys.readouterr().out.partition("Next: ")[2])
    shown = [str(path).encode("utf-8", "backslashreplace").decode() for path in (vocabulary, text)]
    assert words == ["bertworks", "tokenizer", "check", *shown]
    for said in ("tokens in", "already built"):
        options = ["--input.documents", "blank-line", "--workers", "1"]
        main(["corpus", "build", str(text), "--tokenizer", str(vocabulary), "--out", str(store), *options])
        output = capsys.readouterr()
        assert said in output.out + output.err and "documents to train on, 2 documents held out\n" in output.out
    assert Store.open(store).manifest["source"]["inputs"][0][0] == str(text)


def test_a_full_disk_is_one_message_and_the_build_goes_on_later(corpus, tokenizer, tmp_path, small_parts, monkeypatch):
    run(corpus, tokenizer, tmp_path / "whole")
    for where in ("bertworks.data.parts", "bertworks.data.shards"):
        original = sys.modules[where].atomic_write
        calls = 0

        def full(path, original=original, **options):
            nonlocal calls
            calls += 1
            if calls > 2:
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
        Store.open(tmp_path / "store")
    done = set((tmp_path / "store" / ".parts").glob("*.part"))
    assert len(done) > 10
    calls, write = [], PartWriter.write
    monkeypatch.setattr(PartWriter, "write", lambda *arguments: calls.append(1) or write(*arguments))
    path.write_text(good + "\n\n" + document(5000))
    with pytest.raises(
        InputError,
        match=r"unfinished build of something else \(--language en, now ko; splitter "
        r"sentencex .*, now Korean rules 1\)",
    ):
        run(path, tokenizer, tmp_path / "store", language="ko")
    run(path, tokenizer, tmp_path / "store")
    assert len(calls) == 1  # what came before the bad line was not done again
    run(path, tokenizer, tmp_path / "fresh")
    assert content(tmp_path / "store") == content(tmp_path / "fresh")


@pytest.mark.parametrize("text", ["", "\n\n \n", "\n\n\n\n"])
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


def test_warnings_come_first(tokenizer, tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(document(i, 1) for i in range(50)))
    build([path], tokenizer, tmp_path / "store", BuildConfig(input=LINES, workers=1))
    assert "warning: your documents are one line long" in capsys.readouterr().err


def test_an_occupied_folder_is_refused(corpus, tokenizer, tmp_path):
    with pytest.raises(InputError, match="this folder is not empty"):
        run(corpus, tokenizer, tmp_path)
    first = run(corpus, tokenizer, tmp_path / "store")
    before = content(tmp_path / "store")
    assert run(corpus, tokenizer, tmp_path / "store") == first
    with pytest.raises(
        InputError,
        match=r"finished store of something else \(--language en, now ko; splitter sentencex .*, now Korean rules 1\)",
    ):
        run(corpus, tokenizer, tmp_path / "store", language="ko")
    corpus.write_text(corpus.read_text() + "\n\nMore.")
    with pytest.raises(InputError, match=r"finished store of something else \(inputs"):
        run(corpus, tokenizer, tmp_path / "store")
    assert content(tmp_path / "store") == before


def test_messages_name_the_flags_of_the_command(corpus, tokenizer, tmp_path, capsys):
    (tmp_path / "one.txt").write_text(document(1))
    with pytest.raises(InputError, match=r"give --input.documents blank-line, .*--validation-share 0$"):
        run(tmp_path / "one.txt", tokenizer, tmp_path / "few", input=InputOptions())
    build([tmp_path / "one.txt"], tokenizer, tmp_path / "whole", BuildConfig(validation_share=0.0, workers=1))
    assert "separate them by blank lines and give --input.documents blank-line\n" in capsys.readouterr().err
    run(corpus, tokenizer, tmp_path / "store", language="ko", splitter="line", near_duplicates=0.0)
    given = {"input": InputOptions(documents="blank-line", encoding="ascii"), "max_sentence_tokens": 9}
    with pytest.raises(InputError) as error:
        run(corpus, tokenizer, tmp_path / "store", language="ko", **given)
    assert "(--encoding utf-8, now ascii, --splitter line, now auto" in str(error.value)
    with pytest.raises(InputError, match=r"--max-sentence-tokens 0; expected at least 1"):
        BuildConfig(max_sentence_tokens=0)


def test_settings_that_only_the_store_has_are_named_too(corpus, tokenizer, tmp_path):
    given = InputOptions(documents="blank-line", encoding="ascii")
    run(corpus, tokenizer, tmp_path / "store", input=given)
    with pytest.raises(InputError, match=r"something else \(--encoding ascii, now utf-8\); choose"):
        run(corpus, tokenizer, tmp_path / "store")


def test_a_store_names_its_splitter(corpus, tokenizer, tmp_path, capsys):
    manifests = [run(corpus, tokenizer, tmp_path / name, splitter=name, language="en") for name in ("line", "auto")]
    assert ["sentencex" in one["versions"] for one in manifests] == [False, True]
    main(["corpus", "show", str(tmp_path / "line"), "--instances", "0"])
    shown = capsys.readouterr().out
    assert "sentencex" not in shown and re.search(r"splitter +│ line", shown)
    main(["corpus", "show", str(tmp_path / "auto"), "--instances", "0"])
    assert "sentencex" in capsys.readouterr().out


def test_one_sentence_is_counted_as_one(corpus, tokenizer, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A river.\n\nA film. A song.\n\nA lake.\n\nA hill.\n")
    config = BuildConfig(input=InputOptions(documents="blank-line"), workers=1, allow_unknown=True)
    build([text], tokenizer, tmp_path / "store", config, progress=False)
    main(["corpus", "show", str(tmp_path / "store"), "--instances", "0"])
    assert re.search(r"document \d: 1 sentence$", capsys.readouterr().out, re.MULTILINE)


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
        Store.open(tmp_path / "store")
    run(path, tokenizer, tmp_path / "store", allow_unknown=True)
    store = Store.open(tmp_path / "store")
    assert store.unknown_share(store.load_tokenizer()) > 0.5
    store.check_unknown(store.load_tokenizer())
    del store.manifest["unknown allowed"]
    with pytest.raises(InputError, match=r"\d\d% of the tokens are \[UNK\]"):
        store.check_unknown(store.load_tokenizer())
    show(tmp_path / "store")
    assert "of the training tokens" in capsys.readouterr().out


def test_the_share_of_unknown_tokens_is_said(corpus, tokenizer, tmp_path, capsys):
    build([corpus], tokenizer, tmp_path / "store", BuildConfig(input=LINES, workers=1))
    assert "store: 0.00% of the tokens are [UNK]" in capsys.readouterr().err
    assert "unknown allowed" not in Store.open(tmp_path / "store").manifest


def test_wrong_settings():
    for settings in ({"validation_share": 1.0}, {"shard_tokens": 0}, {"max_sentence_tokens": 0}):
        with pytest.raises(InputError, match="expected"):
            BuildConfig(**settings)
