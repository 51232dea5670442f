"""Rows of a tagging task, from files of tagged sentences and from raw texts.

    eng.train, .conll, .txt ...  CoNLL columns: a word a line, word first and tag last, or as `Task.header` says; a
                                 blank line between sentences, a line -DOCSTART- before each document
    .tsv, if `Task.header` is    the same; KLUE's files
    .tsv if not, .csv            a sentence a row: words with spaces between, tags with spaces between
    .jsonl, .parquet             a sentence a row: lists of words and tags
    .jsonl, .parquet, .json      a text a row with spans of characters: doccano, Prodigy, Label Studio (span_files.py)

Where `Task.text` is ("character",), the units are characters: nothing stands between them, one tab stands between the
columns because a unit may be a space, and lines with ## are comments. Without -DOCSTART- every sentence is a document
of its own. `eng.train#dev` is about a fifth of a file's documents, `eng.train#train` the others.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import pre_tokenizers

from ..checkpoint.names import LABELS, listed
from ..files import InputError, not_found, shorten
from ..tokenizer import Encoding, Tokenizer, compose
from .base import Task
from .cells import as_list
from .lines import decoded
from .records import Records, Source
from .span_files import SPANS, Span, read_spans, tags_of
from .table import TABLES, check_end, ending_of, in_part, location, part_of, read_table
from .tags import OUTSIDE, PARTS_OF_SPEECH, Scheme, read_scheme, to_iob2

DOCUMENT = "-DOCSTART-"
MANY_TAGS = 50  # different tags without prefixes, from which they are checked against the number of words
_SPLIT = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
_INNER = ".&-'\u2019"  # marks that stand inside words, as CoNLL's texts are divided
_CELLS = re.compile("[^ \t]+")  # other blanks, such as the no-break space, occur inside words


class Sentence(NamedTuple):
    """Words and tags."""

    line: int  # counted from 1; the row's number in a Parquet file
    document: int
    words: list[str]
    tags: list[str] | None
    scheme: str = ""  # how the file writes tags (tags.Scheme)


def by_character(task: Task) -> bool:
    """Whether the units are characters."""
    return task.text == ("character",)


def read_sentences(task: Task, path: Source | str, labelled: bool = True) -> list[Sentence]:
    """All sentences of a file, tags with a prefix, a hyphen and a type; tags are not looked at unless `labelled`.

    Raises InputError with file and line if a line has not as many columns as the others, a tag is none, words and tags
    differ in number, or the file mixes two schemes.
    """
    names = _Names(task)
    path = Path(path) if isinstance(path, str) else path
    if isinstance(path, Records):
        found = list(_rows(task, path, names if labelled else None))
    else:
        found = _file(task, path, names if labelled else None)
    if not found:
        raise InputError(f"{path}: no sentences in this file")
    if not labelled:
        return found
    if not task.labels:
        check_end(path, str(path), [tag for sentence in found for tag in sentence.tags or ()], "tag")
    scheme = names.scheme(str(path))
    if scheme.name and len(scheme.standard) > max(MANY_TAGS, sum(len(sentence.words) for sentence in found) // 10):
        found_tags = f"{len(scheme.standard):,} different tags such as {shorten(next(iter(names.places)))}"
        raise InputError(f"{path}: {found_tags}; is this another column? Name that of the tags with --label")
    standard = {cell: scheme.standard[tag] for cell, tag in names.written.items()}
    return [
        sentence._replace(tags=[standard[cell] for cell in sentence.tags or ()], scheme=scheme.name)
        for sentence in found
    ]


def _file(task: Task, whole: Path, names: "_Names | None") -> list[Sentence]:
    """The sentences of a file, or of a part of it. `names`: None if the tags do not matter."""
    path, part = part_of(whole)
    if ending_of(path) in TABLES and not (ending_of(path) == ".tsv" and task.header):
        return list(_rows(task, whole, names))
    found = list(_columns(task, path, names))
    if found and not found[-1].document:
        found = [sentence._replace(document=i) for i, sentence in enumerate(found)]
    return _documents_of(found, part)


def _documents_of(sentences: list[Sentence], part: str) -> list[Sentence]:
    """The sentences of the documents in a part of the file; the words of a document's first sentence decide."""
    first: dict[int, str] = {}
    for sentence in sentences:
        first.setdefault(sentence.document, " ".join(sentence.words))
    chosen = {document for document, words in first.items() if in_part(words, part)}
    return [sentence for sentence in sentences if sentence.document in chosen]


class _Names:
    """The tags of a file: where each is first met, and what it stands for."""

    def __init__(self, task: Task):
        self.task = task
        self.labels = dict(zip(task.written, task.labels, strict=True)) if task.written else {}
        self.written: dict[str, str] = {}  # tags by the way the file writes them
        self.places: dict[str, str] = {}  # where each tag is first met

    def __call__(self, cell: str, where: str) -> str:
        if cell not in self.written:
            if self.labels and cell not in self.labels:
                raise InputError(f"{where}: tag {shorten(cell)}; expected one of {', '.join(self.labels)}")
            self.written[cell] = self.labels.get(cell, cell)
            self.places.setdefault(self.written[cell], where)
        return cell

    def scheme(self, file: str) -> Scheme:
        """How the tags mark entities; that of the task's labels decides. Raises InputError for one of another type."""
        labels = self.task.labels
        if labels and not read_scheme(dict.fromkeys(labels, file), file, of_model=True).entities:
            for tag in (tag for tag in self.places if tag not in labels):
                raise InputError(f"{self.places[tag]}: tag {shorten(tag)}; expected one of {listed(labels, LABELS)}")
            return Scheme(PARTS_OF_SPEECH, {tag: tag for tag in self.places}, entities=False)
        scheme = read_scheme(self.places | ({OUTSIDE: self.places.get(OUTSIDE, file)} if labels else {}), file)
        types = {label[2:] for label in labels}
        for tag, where in self.places.items():
            if types and scheme.standard[tag][2:] not in types:
                expected = ", ".join(sorted(filter(None, types)))
                raise InputError(f"{where}: tag {shorten(tag)}; expected O, or one of the types {expected}")
        return scheme


def _columns(task: Task, path: Path, names: _Names | None) -> Iterator[Sentence]:
    """One unit a line. `names`: None if the tags do not matter."""
    characters, document, first = by_character(task), 0, 0
    at, last = (task.header.index(task.text[0]), task.header.index(task.label)) if task.header else (0, -1)
    width = len(task.header) if names else 0
    words: list[str] = []
    tags: list[str] = []
    if not path.is_file():
        raise InputError(f"{path}: {not_found(path)}")
    with open(path, "rb") as file:
        for number, line in enumerate(itertools.chain(decoded(file, str(path), task.form.encoding), [""]), 1):
            line = line.rstrip("\r\n")
            cells = (line.split("\t") if line else []) if characters else _CELLS.findall(line)
            begins_document = cells[:1] == [DOCUMENT]
            if (not cells or begins_document) and words:
                yield Sentence(first, document, words, tags if names else None)
                words, tags = [], []
            document += begins_document
            if not cells or begins_document or (characters and line.startswith("##")):
                continue
            width = width or len(cells)
            if len(cells) != width or len(cells) <= max(at, 1 if names else 0):
                raise InputError(_width_error(path, number, len(cells), width))
            first = first if words else number
            words.append(cells[at])
            if names:
                tags.append(names(cells[last], f"{path}, line {number}"))


def _width_error(path: Path, line: int, found: int, width: int) -> str:
    if found == width:
        return f"{path}, line {line}: {found} column; expected a word, then further columns, the last one its tag"
    return f"{path}, line {line}: {found} columns; expected {width}; is the line cut off?"


def _rows(task: Task, path: Source, names: _Names | None) -> Iterator[Sentence]:
    """One sentence a row."""
    columns = [task.text[0], *([task.label] if names else [])]
    characters = by_character(task)
    for document, (line, (text, *cells)) in enumerate(read_table(path, columns, lists=columns, form=task.form)):
        where = location(path, line)
        words = words_of(text, characters, where)
        tags = None
        if names:
            tags = [names(tag, where) for tag in _tags_in(cells[0], len(words))]
            if len(words) != len(tags):
                raise InputError(f"{where}: {len(words)} words, but {len(tags)} tags; expected a tag for each word")
        yield Sentence(line, document, words, tags)


def words_of(cell: str, characters: bool, where: str) -> list[str]:
    """The words (or characters) of a cell: a text, or a list as JSON. Raises InputError if a word is a space."""
    words = _units(cell, characters)
    if not characters and " " in words:
        raise InputError(f"{where}: a word is a space; name the column `character` if its units are characters")
    return words


def _units(cell: str, characters: bool = False) -> list[str]:
    """The strings of a list; else the characters of a text, or what stands between its blanks."""
    found = as_list(cell)
    if found is None:
        found = list(cell) if characters else cell.split()
    return found


def _tags_in(cell: str, words: int) -> list[str]:
    """The tags of a cell: a list, or what stands between its blanks or commas. words: how many there should be."""
    found = _units(cell)
    if len(found) == 1 < words and as_list(cell) is None:
        found = [tag for tag in cell.strip().split(",") if tag] or found
    elif len(found) > 1 and all(tag.endswith(",") and len(tag) > 1 for tag in found[:-1]):
        found = [tag.removesuffix(",") or tag for tag in found]
    return found


# ---- rows of a tagging task


class Tagged(NamedTuple):
    """A sentence, or any text to predict for."""

    text: str
    units: tuple[tuple[int, int], ...]  # where each word or character begins and ends in `text`
    tags: tuple[str, ...] | None = None  # one a unit, in IOB2, or parts of speech; None: not known
    line: int = 0  # where it begins in its file, counted from 1; the row's number in a Parquet file
    document: int = 0  # rows of one document follow each other and share windows
    scheme: str = ""  # how the file writes the tags, if not with a prefix, a hyphen and a type


def read(task: Task, path: Source, labelled: bool = True) -> list[Tagged]:
    """The sentences of one file, tags of any scheme turned into IOB2; part-of-speech tags stay.

    Raises InputError with file and line if the file is damaged or a tag is none.
    """
    characters = by_character(task)
    if (rows := read_spans(path, (task.text[0], task.label), task.form, labelled)) is not None:
        return list(_of_spans(task, path, rows, labelled))
    return [_row(sentence, characters) for sentence in read_sentences(task, path, labelled)]


def _of_spans(
    task: Task, path: Source, rows: Iterable[tuple[int, str, list[Span]]], labelled: bool
) -> Iterator[Tagged]:
    """Rows of texts with spans of characters (span_files.py). Raises InputError for a type that the task lacks.

    The units are characters: `units.in_words` makes words of them, which depend on the tokenizer.
    """
    part = part_of(path)[1] if isinstance(path, Path) else ""
    types, document = {label[2:] for label in task.labels if label != OUTSIDE}, -1
    for document, (line, text, spans) in enumerate(rows):
        if types and (unknown := [kind for _, _, kind in spans if kind not in types]):
            expected = ", ".join(sorted(types))
            raise InputError(f"{location(path, line)}: {shorten(unknown[0])}; expected one of the types {expected}")
        if in_part(text, part):
            units = tuple((i, i + 1) for i in range(len(text)))
            yield Tagged(text, units, tuple(tags_of(units, spans)) if labelled else None, line, document, SPANS)
    if document < 0:
        raise InputError(f"{path}: no texts with spans in this file")


def _row(sentence: Sentence, characters: bool) -> Tagged:
    between = between_words(characters)
    edges = itertools.accumulate((len(word) + len(between) for word in sentence.words), initial=0)
    units = tuple((start, start + len(word)) for word, start in zip(sentence.words, edges, strict=False))
    tags = sentence.tags
    if tags is not None and sentence.scheme != PARTS_OF_SPEECH:
        tags = to_iob2(tags)
    text = between.join(sentence.words)
    return Tagged(text, units, None if tags is None else tuple(tags), sentence.line, sentence.document, sentence.scheme)


def between_words(characters: bool) -> str:
    """What joins the words of a sentence, or its characters, to a text."""
    return "" if characters else " "


def from_texts(
    tokenizer: Tokenizer, texts: Sequence[str | Sequence[str] | Tagged], characters: bool = False
) -> list[Tagged]:
    """Rows to predict for, each text a document. Units: words, or characters.

    texts: in place of a text also the list of its words (or characters), which are then the units, or a row.
    """
    whole = iter(divided(tokenizer, [text for text in texts if isinstance(text, str) and not characters]))

    def row(text: str | Sequence[str] | Tagged) -> Tagged:
        if isinstance(text, Tagged):
            return text
        if characters or not isinstance(text, str):
            return _row(Sentence(0, 0, [*text], None), characters)
        return next(whole)

    return [row(text)._replace(line=0, document=n) for n, text in enumerate(texts)]


def between_blanks(text: str) -> Tagged:
    """A text whose units are the words between its blanks."""
    return Tagged(text, tuple(match.span() for match in re.finditer(r"\S+", text)))


def divided(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Tagged]:
    """Rows of texts, divided into words."""
    composed = [compose(text) for text in texts]
    encodings = tokenizer.encode_batch([one.text for one in composed])
    rows = []
    for text, one, encoding in zip(texts, composed, encodings, strict=True):
        units = np.array(_words_of(tokenizer, one.text, encoding), np.int64).reshape(-1, 2)
        rows.append(Tagged(text, tuple(map(tuple, one.spans(units).tolist()))))
    return rows


def _words_of(tokenizer: Tokenizer, text: str, encoding: Encoding) -> list[tuple[int, int]]:
    """Where each word begins and ends; punctuation is a word by itself, but not inside a word like Jean-Pierre.

    Tokens other than WordPiece's may hold both a word and its comma: there white space and punctuation divide words.
    """
    parts: Iterable[tuple[tuple[int, int], bool]] = ((span, False) for _, span in _SPLIT(text))
    if tokenizer.kind == "wordpiece":
        parts = zip(encoding.offsets[1:-1], tokenizer.continuation[encoding.ids[1:-1]].tolist(), strict=True)
    units: list[tuple[int, int]] = []
    for (start, end), continues in parts:
        inner = _inside_word(text, start) or _inside_word(text, start - 1)
        if units and (continues or (inner and units[-1][1] == start)):
            start = units.pop()[0]
        units.append((start, end))
    return units


def _inside_word(text: str, i: int) -> bool:
    """Whether character i is a mark between two letters or digits of one word."""
    return 0 < i < len(text) - 1 and text[i] in _INNER and text[i - 1].isalnum() and text[i + 1].isalnum()
