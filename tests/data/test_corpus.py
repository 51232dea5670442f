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

from bertworks.data import parsers
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


def test_wrapped_text_is_joined(tmp_path):
    path = put(tmp_path / "a.txt", "One\ntwo.\n\nThree\nfour.\n")
    assert texts(path, InputOptions(paragraphs="blank-line")) == ["One two.\nThree four."]
    for documents in ("line", "blank-line"):
        with pytest.raises(InputError, match=r"with --input\.paragraphs blank-line; expected one of the two"):
            InputOptions(paragraphs="blank-line", documents=documents)


def test_wikiextractor_keeps_passages_only(tmp_path):
    reader = Reader([put(tmp_path / "wiki_00", WIKI)])
    assert [document.text for document in reader] == [CATS]
    assert dict(reader.counts) == {"files": 1, "documents": 1, "empty": 1}


def test_jsonl_and_its_errors(tmp_path):
    path = put(tmp_path / "a.jsonl", '{"text": "One.\\nTwo."}\n\n{"text": "Three."}\n')
    assert texts(path) == ["One.\nTwo.", "Three."]
    for line, message in (
        ('{"body": "x"}', "line 2: no text in field 'text'; found 'body'; remove such lines"),
        ("{", "line 2: not valid JSON .*; expected one JSON object a line"),
        ('{"text": "x", "n": ' + "[" * 2000 + "]" * 2000 + "}", "line 2: too many lists"),
        ('{"text": "\\ud800"}', "line 2: byte 1 .* is not valid UTF-8"),
        ('{"text": "a\\u0000"}', "line 2: a NUL byte"),
    ):
        with pytest.raises(InputError, match=message):
            texts(put(tmp_path / "b.jsonl", '{"text": "One."}\n' + line))


def test_parquet(tmp_path):
    pq.write_table(pa.table({"text": ["One.", None, "Zwei."]}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["One.", "Zwei."]
    for name, packed in (("a.tar", archive_of({"a.parquet": b"PAR1\0"})), ("a.parquet.gz", gzip.compress(b"PAR1\0"))):
        with pytest.raises(InputError, match=r"Parquet inside an archive or compressed file; .*: unpack it"):
            texts(put(tmp_path / name, packed))
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


LONG_WINDOW = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
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
    inner = {"b/wiki_00": WIKI.encode(), ".hidden": b"no", "a.txt": b"Book.", "c.txt." + ending: compress(b"Two.")}
    archive = put(tmp_path / f"a.tar.{ending}", compress(archive_of(inner)))
    assert [(one.text, one.source) for one in read_documents([archive])] == [
        (CATS, f"{archive}:b/wiki_00, line 1"),
        ("Book.", f"{archive}:a.txt"),
        ("Two.", f"{archive}:c.txt.{ending}"),
    ]
    with pytest.raises(InputError, match=r"b\.tar:a\.tar: an archive inside an archive; unpack the outer one first"):
        texts(put(tmp_path / "b.tar", archive_of({"a.tar": compress(archive_of(inner))})))


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_cut_archive_is_refused(tmp_path, ending):
    content = json.dumps([str(i * 7919) for i in range(20_000)]).encode()
    whole = COMPRESSIONS[ending](content)
    for cut in (whole[: len(whole) // 2], whole + whole[:20]):
        with pytest.raises(InputError, match=r"a\.txt.*cut or damaged"):
            texts(put(tmp_path / f"a.txt.{ending}", cut))
    tar = archive_of({"a.txt": content, "b.txt": b"Two."})
    member = tar.index(b"b.txt")
    for cut in (tar[:5000], tar[:member], tar[:member] + b"x" + tar[member + 1 :]):
        with pytest.raises(InputError, match=r"a\.tar.*cut or damaged"):
            texts(put(tmp_path / f"a.tar.{ending}", COMPRESSIONS[ending](cut)))


def test_long_names_folders_and_links_in_a_tar(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a.txt")
    name = "folder/" * 50 + "a.txt"
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for one in ("folder", "link"):
            archive.add(tmp_path / one, one)
        archive.add(put(tmp_path / "a.txt", "One."), name)
    assert [(one.text, one.source) for one in read_documents([tmp_path / "a.tar"])] == [
        ("One.", f"{tmp_path / 'a.tar'}:{name}")
    ]


def test_little_that_unpacks_to_much_takes_little_memory(tmp_path):
    block = (0 | 1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"\n"  # 128 KiB of newlines in four bytes
    path = put(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd" + b"\x00\x38" + block * 2000)
    tracemalloc.start()
    with open(path, "rb") as file:
        _, stream = next(open_streams("a", file))
        assert stream.read(1) == b"\n"
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_what_may_be_between_compressed_streams(tmp_path):
    padded = lzma.compress(b"One.\n") + bytes(4000) + lzma.compress(b"Two.") + bytes(4)
    assert texts(put(tmp_path / "a.xz", padded)) == ["One.\nTwo."]
    frame = b"\x5f\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"\0\1\2\3"
    path = put(tmp_path / "a.txt.zst", frame + zstandard.compress(b"One.\n") + frame + zstandard.compress(b"Two."))
    assert texts(path) == ["One.\nTwo."]
    assert texts(put(tmp_path / "b.txt", "P*M\x17 is text.")) == ["P*M\x17 is text."]


KINDS = {
    "a.csv": (b"text,label\nGood,1\n", "a table"),
    "a.xlsx": (b"PK\x03\x04....", "a spreadsheet"),
    "b.txt": (b"%PDF-1.7\n", "a PDF"),
    "wiki.xml.bz2": (bz2.compress(b"<mediawiki xmlns=''>"), "WikiExtractor for a dump"),
    "1": (b"GIF89a\x10\0\x10\0", "image"),
    "4": (b"<!DOCTYPE html>\n", "HTML"),
    "7": (b"SQLite format 3\0", "database"),
    "d.md.gz": (gzip.compress(b"# Title"), "Markdown; .* pandoc"),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_kinds_of_files_are_refused_by_kind(tmp_path, name):
    content, kind = KINDS[name]
    with pytest.raises(InputError, match=f"{name}: .*{kind}.*"):
        texts(put(tmp_path / name, content))
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


def test_parquet_whose_strings_are_not_utf8(tmp_path):
    good = [f"{i}." for i in range(70)]
    bad = pa.array([*map(str.encode, good), b"Two \xff."], pa.binary())
    for kind in (pa.string(), pa.large_string()):
        binary = bad.cast(pa.large_binary()) if kind == pa.large_string() else bad
        column = type(pa.array(["x"], kind)).from_buffers(len(bad), *binary.buffers()[1:])
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"a\.parquet, row 71: byte 5 \(0xff\) is not valid UTF-8"):
            texts(tmp_path / "a.parquet")
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
        (b"One.\n" + b"x" * 3000, r"a\.txt, line 2: a line of more than 2,000 bytes"),
        (b'<doc id="1" title="x">\nx\n\nText that is cut off', r"a\.txt, line 1: <doc \.\.\.> has no </doc>"),
    ],
)
def test_bad_text_is_refused_by_file_and_line(tmp_path, content, message, monkeypatch):
    monkeypatch.setattr(parsers, "MAX_LINE", 2000)
    with pytest.raises(InputError, match=message):
        texts(put(tmp_path / "a.txt", content), InputOptions())


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

    assert check_documents(documents("One. Two.", "Three. Four.")) == [] == check_documents([])
    assert "half of the first 3 documents have one sentence" in check_documents(documents("One.", "Two.", "A. B."))[0]
    wrapped = "\n".join(["This line of a book stops in the middle of the sentence and it goes", "on. Well then."] * 30)
    assert "wrapped" in check_documents(documents(wrapped, wrapped))[0]
