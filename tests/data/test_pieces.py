"""Pieces of the input: whatever they are, their readers together give the documents of one reader, in its order."""

import gzip
import io
import itertools
import json
import tarfile
from collections import Counter

import pytest

from bertworks.data import pieces as pieces_module
from bertworks.data.corpus import Reader
from bertworks.data.parsers import InputOptions
from bertworks.data.pieces import divide
from bertworks.files import InputError

BLANK = InputOptions(documents="blank-line")
LONG = "begins with a sentence that no heading is like.\nIt says more than fits into a heading, too: "
PARAGRAPHS = [f"Document {i} {LONG}{'no ' * (i % 7)}Käse {i}." for i in range(90)]
TEXT = "\ufeff" + "".join(text + ("\n\n", "\r\n\r\n\r\n", "\n \n\n\n")[i % 3] for i, text in enumerate(PARAGRAPHS))
WIKI = "".join(f'<doc id="{i}" url="" title="T{i}">\nT{i}\n\n{text}\n</doc>\n' for i, text in enumerate(PARAGRAPHS))
JSONL = "".join(json.dumps({"text": text}) + "\n" * (1 + i % 3) for i, text in enumerate(PARAGRAPHS))
DIVIDED = [("a.txt", TEXT, BLANK), ("wiki_00", WIKI, InputOptions()), ("a.jsonl", JSONL, InputOptions())]


@pytest.fixture
def small(monkeypatch):
    """Pieces of 500 bytes, whose ends are looked for 50 bytes at a time."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 500)
    monkeypatch.setattr(pieces_module, "STEP", 50)


def put(path, text):
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(("name", "text", "options"), DIVIDED)
@pytest.mark.parametrize("size", [37, 500, 1999])
def test_ranges_have_the_documents_of_the_whole(tmp_path, monkeypatch, small, name, text, options, size):
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", size)
    path = put(tmp_path / name, text)
    whole = Reader([path], options)
    expected = [document.text for document in whole]
    pieces = [*divide([path], options)]
    readers = [piece.reader(options) for piece in pieces]
    assert [document.text for reader in readers for document in reader] == expected
    assert expected[0].startswith("Document 0") and len(expected) == 90
    assert sum((reader.counts for reader in readers), Counter()) == whole.counts
    assert len(pieces) > 2 and pieces[0].start == 0 and pieces[-1].stop == path.stat().st_size
    assert all(a.stop == b.start for a, b in itertools.pairwise(pieces))
    assert len({piece.note for piece in pieces}) == len(pieces)


def test_small_files_are_read_together(tmp_path, small):
    files = [put(tmp_path / f"{i:02}.txt", "x" * 200) for i in range(7)]
    pieces = [*divide(files, InputOptions())]
    assert [piece.files for piece in pieces] == [tuple(files[i : i + 2]) for i in (0, 2, 4, 6)]
    assert sum(piece.size for piece in pieces) == 1400 and not any(piece.stop for piece in pieces)


def test_what_cannot_be_divided_is_read_whole(tmp_path, small):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(JSONL.encode(), compresslevel=0))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        entry = tarfile.TarInfo("a.jsonl")
        entry.size = len(JSONL.encode())
        archive.addfile(entry, io.BytesIO(JSONL.encode()))
    put(tmp_path / "a.md", TEXT)
    put(tmp_path / "a.csv", TEXT)  # a kind that its reader refuses
    for path in sorted(tmp_path.iterdir()):
        assert [(piece.files, piece.stop) for piece in divide([path], BLANK)] == [((path,), 0)]
    (piece,) = divide([put(tmp_path / "a.txt", TEXT)], InputOptions())
    assert piece.stop == 0  # the file is one document
    (piece,) = divide([put(tmp_path / "one.txt", "a line of text\n" * 100)], BLANK)
    assert (piece.start, piece.stop) == (0, 1500)  # one document without a blank line


@pytest.mark.parametrize("fault", [b"Bad \xff byte.\n", b"A NUL \x00 byte.\n"])
def test_faults_in_a_range_are_named_by_their_line_in_the_file(tmp_path, small, fault):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode() + fault)
    with pytest.raises(InputError) as whole:
        [*Reader([path], BLANK)]
    *others, last = divide([path], BLANK)
    for piece in others:
        [*piece.reader(BLANK)]
    with pytest.raises(InputError) as found:
        [*last.reader(BLANK)]
    assert str(found.value) == str(whole.value) and f"line {TEXT.count(chr(10)) + 1}" in str(whole.value)


def test_a_mark_inside_a_file_stays(tmp_path, small):
    """Only a file's first line may begin with a byte order mark that is none of its text."""
    path = put(tmp_path / "a.txt", "\ufeffDocument.\n\n" * 60)
    pieces = [*divide([path], BLANK)]
    found = [document.text for piece in pieces for document in piece.reader(BLANK)]
    assert len(pieces) > 1 and found == [document.text for document in Reader([path], BLANK)]
    assert found[0] == "Document." and set(found[1:]) == {"\ufeffDocument."}
