"""Files to documents to sentences: every format and container, and what bad input says."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencex
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bertworks.apps.probing.config import NeighbourConfig
from bertworks.data.build import BuildConfig
from bertworks.data.corpus import Document, InputOptions, Reader, read_documents
from bertworks.data.sentences import BLOCK_CHARS, check_documents, split_sentences
from bertworks.data.streams import open_streams
from bertworks.files import InputError

WIKI = """<doc id="1" url="x" title="Cats &amp; dogs">
Cats &amp; dogs

A cat is a small animal that many people keep at home. It sleeps.
History.
They came from Egypt, where they were &lt;holy&gt; for three thousand years.

</doc>
<doc id="2" url="x" title="Redirect">
Redirect

</doc>
"""
CATS = (
    "A cat is a small animal that many people keep at home. It sleeps.\n"
    "They came from Egypt, where they were <holy> for three thousand years."
)


def texts(path: Path, options: InputOptions | None = None) -> list[str]:
    return [document.text for document in read_documents([path], options or InputOptions())]


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_plain_text_blank_lines_separate_documents(tmp_path):
    path = put(tmp_path / "a.txt", "\n\nOne.\nTwo.\n\n \nThree.\n")
    found = list(read_documents([path], InputOptions(documents="blank-line")))
    assert found == [Document("One.\nTwo.", f"{path}, line 3"), Document("Three.", f"{path}, line 7")]


def test_each_line_may_be_a_document(tmp_path):
    path = put(tmp_path / "a.txt", "\nOne. Two.\n\n  Three.\nFour.")
    found = list(read_documents([path], InputOptions(documents="line")))
    expected = [("One. Two.", 2), ("Three.", 4), ("Four.", 5)]
    assert found == [Document(text, f"{path}, line {number}") for text, number in expected]
    assert [*read_documents([put(tmp_path / "b.txt", "")], InputOptions(documents="line"))] == []
    with pytest.raises(InputError, match=r"line with --input\.paragraphs blank-line; expected one of the two"):
        InputOptions(paragraphs="blank-line", documents="line")


def test_wrapped_text_is_joined(tmp_path):
    path = put(tmp_path / "a.txt", "One\ntwo.\n\nThree\nfour.\n")
    assert texts(path, InputOptions(paragraphs="blank-line")) == ["One two.\nThree four."]
    with pytest.raises(InputError, match="cannot both"):
        InputOptions(paragraphs="blank-line", documents="blank-line")


def test_wikiextractor_keeps_passages_only(tmp_path):
    reader = Reader([put(tmp_path / "wiki_00", WIKI)])
    assert [document.text for document in reader] == [CATS]
    assert dict(reader.counts) == {"files": 1, "documents": 1, "empty": 1}


def test_markdown_drops_headings_rules_and_emphasis(tmp_path):
    path = put(tmp_path / "book.md", "# Title\n\n-----\n\n## I\n\nHe *did*\nit. _Yes_, a_b is 2*3 * 4.\n\nEnd.\n")
    assert texts(path) == ["He did it. Yes, a_b is 2*3 * 4.\nEnd."]


def test_jsonl_and_its_errors(tmp_path):
    path = put(tmp_path / "a.jsonl", '{"text": "One.\\nTwo."}\n\n{"text": "Three."}\n')
    assert texts(path) == ["One.\nTwo.", "Three."]
    for line, message in (
        ('{"body": "x"}', "line 2: no text in field 'text'; found 'body'"),
        ("{", "line 2: not valid JSON .*; expected one JSON object a line"),
        ('{"text": "x", "n": ' + "[" * 2000 + "]" * 2000 + "}", "line 2: more than 100 lists"),
        ('{"text": "x", "n": ' + "1" * 5000 + "}", "line 2: an integer of more than 100 digits"),
        (json.dumps({"k" * 5000 + str(i): i for i in range(20)}), r"line 2: no text in field 'text'; found .{,500}$"),
        ('{"text": "\\ud800"}', "line 2: a lone surrogate"),
        ('{"text": "a\\u0000"}', "line 2: a NUL character"),
    ):
        with pytest.raises(InputError, match=message):
            texts(put(tmp_path / "b.jsonl", '{"text": "One."}\n' + line))
    assert texts(tmp_path / "b.jsonl", InputOptions(invalid="repair")) == ["One.", "a"]


def test_lines_without_the_field_are_skipped_and_counted(tmp_path):
    content = '{"text": "One."}\n{"body": "x"}\n[1]\n{"text": 3}\n{"text": ""}\n{"text": "Two."}\n'
    path = put(tmp_path / "a.jsonl", content)
    with pytest.raises(InputError, match=r"line 2: no text in field 'text'; .*--input\.text-field.*missing skip"):
        texts(path)
    reader = Reader([path], InputOptions(missing="skip"))
    assert [document.text for document in reader] == ["One.", "Two."]
    assert dict(reader.counts) == {"files": 1, "documents": 2, "no field": 3, "empty": 1}


def test_parquet_also_inside_an_archive(tmp_path):
    pq.write_table(pa.table({"text": ["One.", None, "Zwei."]}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["One.", "Zwei."]
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.parquet", "a.parquet")
    assert texts(tmp_path / "a.tar") == ["One.", "Zwei."]
    with pytest.raises(InputError, match="no column 'body'; found 'text'"):
        texts(tmp_path / "a.parquet", InputOptions(text_field="body"))
    put(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        texts(tmp_path / "a.parquet")


def archive_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


LONG_WINDOW = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
COMPRESSIONS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(compression_params=LONG_WINDOW).compress,
}


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_compressed_files_and_archives(tmp_path, ending):
    compress = COMPRESSIONS[ending]
    assert texts(put(tmp_path / f"a.txt.{ending}", compress(b"One.\n") + compress(b"Two.\n"))) == ["One.\nTwo."]
    inner = {"b/wiki_00": WIKI.encode(), ".hidden": b"no", "a.md": b"# T\nBook.", "c.txt." + ending: compress(b"Two.")}
    assert texts(put(tmp_path / f"a.tar.{ending}", compress(archive_of(inner)))) == [CATS, "Book.", "Two."]


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_cut_archive_is_refused(tmp_path, ending):
    content = json.dumps([str(i * 7919) for i in range(20_000)]).encode()
    whole = COMPRESSIONS[ending](content)
    with pytest.raises(InputError, match=r"a\.txt.*cut or damaged"):
        texts(put(tmp_path / f"a.txt.{ending}", whole[: len(whole) // 2]))


def test_a_tar_that_is_cut_between_members_or_damaged_is_refused(tmp_path):
    whole = archive_of({"a.txt": b"One.", "b.txt": b"Two."})
    for content in (whole[:1024], whole[:1024] + b"x" + whole[1025:]):
        with pytest.raises(InputError, match=r"a\.tar.*cut or damaged"):
            texts(put(tmp_path / "a.tar", content))


def long_header(kind: bytes, claims: int, content: bytes) -> bytes:
    """A tar header of a kind whose content tarfile holds in memory, with `content` where `claims` bytes should be."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, claims
    return info.tobuf(tarfile.GNU_FORMAT if claims < 1 << 33 else tarfile.PAX_FORMAT) + content


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_of_a_tar_have_a_limit(tmp_path, kind):
    huge = long_header(kind, 3 << 30, bytes(2 << 20))
    first = archive_of({"a.txt": b"One."})[:1024]
    for content in (huge, first + huge):
        with pytest.raises(InputError, match=r"a\.tar\.gz: .*a header of more than 262,144 bytes"):
            texts(put(tmp_path / "a.tar.gz", gzip.compress(content)))
    endless = long_header(tarfile.GNUTYPE_LONGNAME, 1, bytes(512)) * 1000  # each announces the next
    with pytest.raises(InputError, match="RecursionError"):
        texts(put(tmp_path / "b.tar", endless))


def test_a_long_name_in_a_tar_is_read(tmp_path):
    assert texts(put(tmp_path / "a.tar", archive_of({"folder/" * 50 + "a.txt": b"One."}))) == ["One."]
    put(tmp_path / "c.tar", archive_of({"folder/" * 30_000 + "a.md": b"# One\n\nTwo."}))
    (found,) = read_documents([tmp_path / "c.tar"])
    assert found.text == "Two." and found.source.endswith("folder/a.md") and len(found.source) < 1200
    (tmp_path / "folder").mkdir()
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(tmp_path / "folder", "folder")
    assert texts(tmp_path / "b.tar") == []


def test_zstd_run_length_blocks_take_little_memory(tmp_path):
    block = (0 | 1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"\n"  # 128 KiB of newlines in four bytes
    path = put(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd" + b"\x00\x38" + block * 2000)
    tracemalloc.start()
    with open(path, "rb", buffering=0) as file:
        _, stream = next(open_streams("a", file))
        assert stream.read(1) == b"\n"
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    blank = (b" " * 1023 + b"\n") * 1025
    with pytest.raises(InputError, match=r"a\.gz, line 1026: more than 1,048,576 bytes of blank lines"):
        texts(put(tmp_path / "a.gz", gzip.compress(b"One.\n" + blank)))


def packed(unit: bytes, count: int) -> bytes:
    """`unit` `count` times, as zstd packs it."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(unit * count) + compressor.flush()


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


BLANK = b"\n" * 100_000 + b"a\n"
NO_TEXT = {
    "a.txt.zst": (BLANK, BLANK),
    "a.md.zst": (BLANK, BLANK),
    "a.jsonl.zst": (b'{"text":""}\n',) * 2,
    "wiki_00.zst": (b"<doc x>\n</doc>\n",) * 2,
    "folders.tar.zst": (header("a", tarfile.DIRTYPE),) * 2,
    "empty.tar.zst": (header("a"),) * 2,
    "hidden.tar.zst": (header(".a", size=1 << 40), bytes(1 << 16)),
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_what_a_file_unpacks_to_without_text_has_a_limit(tmp_path, name, monkeypatch):
    monkeypatch.setattr("bertworks.data.streams.FREE", 1 << 17, raising=False)
    first, rest = NO_TEXT[name]
    path = put(tmp_path / name, zstandard.compress(first) + packed(rest, (1 << 22) // len(rest)))
    with pytest.raises(InputError, match=rf"{name}: unpacks to more than 131,072 bytes and 100 times its own size"):
        texts(path)


def test_a_sparse_member_of_a_tar_is_no_text(tmp_path):
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "a.txt", "GNU.sparse.size": "9" * 12}
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {**sparse, "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1"}
    path = put(tmp_path / "a.tar", info.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    with pytest.raises(InputError, match=r"a\.tar: unpacks to more than"):
        texts(path, InputOptions(invalid="repair", max_line_bytes=1 << 30))


def test_many_small_files_and_well_packed_text_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("bertworks.data.streams.FREE", 1 << 17, raising=False)
    small = archive_of({f"{i % 50}/{i * 7919}.txt": b"File %d.\n" % i for i in range(1500)})
    assert len(texts(put(tmp_path / "a.tar.zst", zstandard.compress(small)))) == 1500
    (found,) = texts(put(tmp_path / "a.txt.zst", packed(b"The same again.\n", 100_000)))
    assert found.count("again") == 100_000
    assert texts(put(tmp_path / "a.jsonl", b'{"text":""}\n' * 20_000)) == []  # is as large as it says


def test_zstd_may_begin_with_a_frame_to_skip(tmp_path):
    for number in range(16):
        frame = bytes([0x50 + number]) + b"\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"\0\1\2\3"
        path = put(tmp_path / "a.txt.zst", frame + zstandard.compress(b"One.\n") + frame + zstandard.compress(b"Two."))
        assert texts(path) == ["One.\nTwo."]
    assert texts(put(tmp_path / "b.txt", "P*M\x17 is text.")) == ["P*M\x17 is text."]


@pytest.mark.parametrize("ending", ["zst", "xz"])
def test_a_window_has_a_limit(tmp_path, ending):
    wide = zstandard.ZstdCompressionParameters.from_level(1, window_log=25)
    compressor = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    zst = compressor.compress(b"One.") + compressor.flush()
    path = put(tmp_path / f"a.txt.{ending}", zst if ending == "zst" else lzma.compress(b"One.", preset=8))
    assert texts(path) == ["One."]
    with pytest.raises(InputError, match=r"needs a window of more than 1,048,576 bytes .*; raise --input.max-window"):
        texts(path, InputOptions(max_window=1 << 20))


def test_compression_inside_compression(tmp_path):
    nested = b"One."
    for depth in range(1, 10):
        nested = gzip.compress(nested)
        path = put(tmp_path / f"a{depth}.gz", nested)
        if depth <= 8:
            assert texts(path) == ["One."]
    with pytest.raises(InputError, match="more than 8 compressions or archives inside each other"):
        texts(path)
    padded = lzma.compress(b"One.\n") + bytes(8) + lzma.compress(b"Two.") + bytes(4)
    assert texts(put(tmp_path / "a.xz", padded)) == ["One.\nTwo."]


KINDS = {
    "a.csv": (b"text,label\nGood,1\n", "a table"),
    "a.tsv.gz": (gzip.compress(b"text\tlabel\n"), "a table"),
    "a.xlsx": (b"PK\x03\x04....", "a spreadsheet"),
    "b": (b"PK\x03\x04....", "a zip archive"),
    "b.txt": (b"%PDF-1.7\n", "a PDF file"),
    "b.html": (b"Hi", "HTML or XML"),
    "wiki.xml.bz2": (bz2.compress(b"<mediawiki xmlns=''>"), "WikiExtractor for a dump"),
    "c.npy": (b"\x93NUMPY", "not text"),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_kinds_of_files_are_refused_by_kind(tmp_path, name):
    content, kind = KINDS[name]
    for invalid in ("refuse", "repair"):
        with pytest.raises(InputError, match=f"{name}: .*{kind}.*"):
            texts(put(tmp_path / name, content), InputOptions(invalid=invalid))
    if name.endswith("a.csv"):
        assert texts(tmp_path / name, InputOptions(format="text")) == ["text,label\nGood,1"]


FORMAT_NAMES = """
Rar! said the lion.|GIF89 is a format.|GIF89a is a format, too.|%PDF- is how it begins.|BZhang went home.|PAR1 is a set.
<html> is the first tag.|BZh9 is a name.|BZh91 a|ARROW1 hit.|SQLite format 3 is one.|%PDF-1.7 is a version.
{\\rtf is how it begins.|<?xml is the declaration.|<!doctype is a word.|<mediawiki> is the root.
"""


@pytest.mark.parametrize("text", FORMAT_NAMES.strip().replace("\n", "|").split("|"))
def test_text_that_begins_with_the_name_of_a_format_is_text(tmp_path, text):
    assert texts(put(tmp_path / "a.txt", text)) == [text]


STARTS = [
    b"GIF89a\x10\0\x10\0", b"Rar!\x1a\x07\0", b"{\\rtf1\\ansi", b"<!DOCTYPE html>\n", b"<HTML lang='en'>\n<head>",
    b"<?xml version='1.0'?>", b"<!DOCTYPE book SYSTEM 'x'>", b"SQLite format 3\0", b"ARROW1\0\0",
    b"\x89PNG\r\n", b"%PDF-1.4\r",
]  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
def test_what_begins_like_another_kind_is_refused(tmp_path, start):
    with pytest.raises(InputError, match="expected plain text"):
        texts(put(tmp_path / "a", start + b" more"))


def test_files_of_other_kinds_may_be_left_out(tmp_path):
    inside = {"a.txt": b"One.", "logo.gif": b"GIF89a\x10\0\x10\0", "b/c.html": b"Hi", "d.txt": b"Two."}
    path = put(tmp_path / "a.tar", archive_of(inside))
    with pytest.raises(InputError, match=r"a\.tar:logo\.gif: not text; .*--input.other-kinds skip"):
        texts(path)
    reader = Reader([path], InputOptions(other_kinds="skip"))
    assert [document.text for document in reader] == ["One.", "Two."]
    assert dict(reader.counts) == {"files": 4, "documents": 2, "other kind": 2}


def test_parquet_whose_strings_are_not_utf8(tmp_path):
    good = [f"{i}." for i in range(70)]
    bad = pa.array([*map(str.encode, good), b"Two \xff."], pa.binary())
    for kind in (pa.string(), pa.large_string()):
        binary = bad.cast(pa.large_binary()) if kind == pa.large_string() else bad
        column = type(pa.array(["x"], kind)).from_buffers(len(bad), *binary.buffers()[1:])
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"a\.parquet, row 71: byte 5 \(0xff\) is not valid UTF-8"):
            texts(tmp_path / "a.parquet")
        assert texts(tmp_path / "a.parquet", InputOptions(invalid="repair")) == [*good, "Two \ufffd."]
    for column in ([1, 2], [b"x"], [["a"]]):
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"a\.parquet: column 'text' holds .*; expected text"):
            texts(tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": pa.array(["One.", "One."]).dictionary_encode()}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["One.", "One."]


def test_text_is_composed(tmp_path):
    for text in ("Caf\u00e9", "\ud55c\uad6d\uc5b4."):
        decomposed = unicodedata.normalize("NFD", text)
        assert decomposed != text
        for name, content in (("a.txt", decomposed), ("a.jsonl", json.dumps({"text": decomposed}))):
            assert texts(put(tmp_path / name, content)) == [text]


def test_order_and_selection_of_files(tmp_path):
    for name in ("b/2.txt", "b/10.txt", "a.txt", ".git/x.txt", "b/.x"):
        put(tmp_path / name, name)
    assert texts(tmp_path) == ["a.txt", "b/10.txt", "b/2.txt"]
    both = [tmp_path / "b", str(tmp_path / "**" / "*.txt"), tmp_path / "a.txt"]
    assert [document.text for document in read_documents(both)] == ["b/10.txt", "b/2.txt", "a.txt"]
    for missing, message in (("no", "no such file"), ("*.md", "no file matches")):
        with pytest.raises(InputError, match=message):
            texts(tmp_path / missing)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"One.\nTwo \xff.\n", r"a\.txt, line 2: byte 5 \(0xff\) is not valid UTF-8"),
        (b"One.\nTwo\0.\n", r"a\.txt, line 2: a NUL byte"),
        ("One.".encode("utf-16"), r"a\.txt, line 1: UTF-16 text"),
        (b"One.\n" + b"x" * 3000, r"a\.txt, line 2: a line of more than 2,000 bytes"),
        (b'<doc id="1" title="x">\nx\n\nText that is cut off', r"a\.txt, line 1: <doc \.\.\.> has no </doc>"),
        (WIKI.encode() + b"More text.\n", r"a\.txt, line 13: text outside of <doc"),
    ],
)
def test_bad_text_is_refused_by_file_and_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        texts(put(tmp_path / "a.txt", content), InputOptions(max_line_bytes=2000))


def test_long_paragraphs_are_split_in_blocks_with_the_same_sentences(monkeypatch):
    given, segment = [], sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, text: given.append(text) or segment(language, text))
    text = " ".join(f"He said \u201cnumber {i}.\u201d It is {i % 7}.5, e.g. of the U.S. kind." for i in range(3000))
    assert split_sentences(text) == [sentence.strip() for sentence in segment("en", text)]
    for long in ("a" * 200_000, "(a. b " * 40_000, "No end " * 40_000, "Short. " + "no end " * 40_000):
        assert "".join("".join(split_sentences(long)).split()) == "".join(long.split())
    assert len(text) > 3 * BLOCK_CHARS
    assert max(map(len, given)) <= 2 * BLOCK_CHARS  # the library takes quadratic time for quotes that are never closed


def test_length_filters_are_counted(tmp_path):
    for name, text in (("a", ""), ("b", "Short."), ("c", "Middle " * 10), ("d", "Long\n" * 100)):
        put(tmp_path / name, text)
    reader = Reader([tmp_path], InputOptions(min_document_chars=20, max_document_chars=200))
    assert len(list(reader)) == 1
    assert dict(reader.counts) == {"files": 4, "documents": 1, "empty": 1, "short": 1, "long": 1}
    assert reader.position == reader.size


def test_sentences():
    assert split_sentences('Dr. Smith went home. "What? No!" he said.\n\n He  slept.') == [
        "Dr. Smith went home.",
        '"What? No!" he said.',
        "He slept.",
    ]
    assert split_sentences("2014년 4월 11일 사망했다. 배우였다.", "ko") == ["2014년 4월 11일 사망했다.", "배우였다."]
    assert split_sentences("by J.\u00a0R. R.\u00a0Tolkien") == ["by J. R. R. Tolkien"]


# Letters, marks of every kind that ends or does not end a sentence, and white space that is not a plain blank.
ALPHABET = "abZDr .!?…。！？\"'’“”()[]{}<>-—;:3한국어éÀ𝒳👍\u0301\u00a0\u2028\x85\t\n\r\x0b\u200b"


@pytest.mark.parametrize("language", ["en", "ko", "de", "zh"])
@given(st.text(st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"]))))
def test_sentences_lose_nothing_but_space(language, text):
    sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == " ".join(sentence.split()) for sentence in sentences)


def test_check_documents_warns():
    def documents(*found: str) -> list[Document]:
        return [Document(text, "x") for text in found]

    assert check_documents(documents("One. Two.", "Three. Four.")) == []
    assert "one line long" in check_documents(documents("One.", "Two.", "Three."))[0]
    assert "one document" in check_documents(documents("One. Two."))[0]
    [one] = check_documents(documents("One. Two."), by_line=True)
    assert one.startswith("the whole input is one line (9 characters)") and "give more lines" in one
    [few] = check_documents(documents("One.", "Two.", "Three. Four."), by_line=True)
    assert "half of the first 3 have one sentence" in few and "--objective mlm" in few and "--input" not in few
    assert check_documents(documents("One. Two.", "Three. Four."), by_line=True) == []
    wrapped = "\n".join(["This line of a book stops in the middle of the sentence and it goes", "on. Well then."] * 30)
    assert "wrapped" in check_documents(documents(wrapped, wrapped))[0]


@pytest.mark.parametrize("make", [lambda code: BuildConfig(language=code), lambda code: NeighbourConfig(language=code)])
def test_a_language_that_is_no_code_is_refused(make):
    for code in ("en", "ko", "yue", "zh-classical"):
        make(code)
    for wrong in ("korean", "", "EN", "e"):
        with pytest.raises(InputError, match=f"--language '{wrong}': not a language code; expected an ISO code"):
            make(wrong)
