"""Files with a word per line and its tag in another column: CoNLL-2003, CoNLL-U, KLUE and others.

    CoNLL-2003   Kim NNP B-NP B-PER     the word first, its tag last; blanks or tabs between the columns
    GermEval     1  Kim  B-PER  O       numbered words; the column of the tags is given: --label 3
    CoNLL-U      1  Kim  Kim  PROPN ... ten columns: --label 4 for the universal parts of speech

Of numbered words, ranges (3-4) and empty words (8.1) are left out.
A blank line ends a sentence, and a line -DOCSTART- begins a document. Where the units are characters, one tab separates
the columns, because a unit may be a space, and lines with ## are comments. Otherwise lines with # before a sentence are
comments if they do not have the columns of a word.

`Task.text` and `Task.label` may be numbers of columns, counted from 1, or names of `Task.header`.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..data.parsers import list_names
from ..files import InputError, shorten
from .base import Task
from .formats import decoded
from .table import TABLES, TableForm, check_exists, names_of, suffix_of
from .tags import is_typed

ENDINGS = (".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".bioes", ".ner", ".tagged")
DOCUMENT = "-DOCSTART-"
CONLLU_TABS = 9  # of a line in CoNLL-U, whose words may contain blanks
# usual names of the columns of words and tags
WORDS = ("text", "word", "words", "token", "tokens", "character")
TAGS = ("label", "labels", "tag", "tags", "ner", "ner_tag", "ner_tags")
SAMPLE = 2_000  # lines that decide whether a file has columns
_CELLS = re.compile("[^ \t]+")  # other blanks, such as the no-break space, occur inside words
_NO_WORD = re.compile(r"\d+[-.]\d+")  # the id of a range of words, or of an empty word


class Sentence(NamedTuple):
    """Words and tags."""

    line: int  # counted from 1; the row's number in a Parquet file
    document: int
    words: list[str]
    tags: list[str] | None
    lines: Sequence[int] = ()  # of each word in a file with a word per line


class Block(NamedTuple):
    """The lines of a sentence, as tuples, which Python's garbage collector need not visit."""

    document: int
    lines: list[tuple[int, tuple[str, ...]]]  # the number in the file, counted from 1, and the cells


def is_column_file(path: Path, task: Task, tagged_only: bool = False) -> bool:
    """Whether a file has a word per line, rather than a text or a row of a table.

    A .tsv is one if it has no column of the task's name, and no blanks inside its cells. tagged_only: files of other
    endings need tags of entities in their last column; else they are column files unless they are tables.
    """
    suffix = suffix_of(path)
    if suffix in ENDINGS or (suffix == ".tsv" and task.header):
        return True
    if suffix == ".tsv" and path.is_file() and not {task.text[0], task.label} & {*names_of(path, task.form)}:
        with open(path, "rb") as file:
            lines = itertools.islice(decoded(file, str(path), task.form.encoding), SAMPLE)
            return not any(" " in line.strip() for line in lines if not line.startswith("#"))
    return suffix not in TABLES and (not tagged_only or _is_tagged(path, task.form))


def _is_tagged(path: Path, form: TableForm) -> bool:
    """Whether all lines have the same number of columns, the last one with different tags of entities."""
    blocks = _blocks(path, form.encoding, False, SAMPLE) if path.is_file() else ()
    rows = [row for block in blocks for _, row in block.lines]
    tags = {row[-1] for row in rows}
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 and len(tags) > 1 and all(map(is_typed, tags))


def read_columns(task: Task, path: Path, labelled: bool) -> list[Sentence]:
    """The sentences of a file. Without -DOCSTART- every sentence is a document of its own.

    Words are in the first column, or in the second one if the first numbers them; tags in the last, unless others are
    given. Raises InputError with file and line if lines differ in columns, a column is missing or must be given.
    """
    check_exists(path)
    blocks = [*_blocks(path, task.form.encoding, task.text == ("character",))]
    if not blocks:
        return []
    width = (len(task.header) if labelled else 0) or len(blocks[0].lines[0][1])
    _check_widths(blocks, width, labelled, path)
    is_numbered = width > 1 + labelled and all(map(_is_numbered, blocks))
    if is_numbered:
        words = ((one.document, [line for line in one.lines if not _NO_WORD.fullmatch(line[1][0])]) for one in blocks)
        blocks = [Block(document, lines) for document, lines in words if lines]
    word = _column(task.text[0], WORDS, int(is_numbered), task.header, width, path)
    tag = _column(task.label, TAGS, width - 1, task.header, width, path) if labelled else word
    if labelled and is_numbered and width > 3 and not task.header and task.label in TAGS:
        advice = f"name the column of the tags, such as label = {4 if width == 10 else 3}"  # CoNLL-U has ten
        raise InputError(f"{path}: {width} columns with numbered words; {advice}")
    sentences = []
    for index, (document, lines) in enumerate(blocks):
        tags = [row[tag] for _, row in lines] if labelled else None
        document, numbers = document if blocks[-1].document else index, [number for number, _ in lines]
        sentences.append(Sentence(numbers[0], document, [row[word] for _, row in lines], tags, numbers))
    return sentences


def _check_widths(blocks: Sequence[Block], width: int, labelled: bool, path: Path) -> None:
    for block in blocks:
        for number, row in block.lines:
            if len(row) != width or len(row) == labelled:
                problem = f"{len(row)} columns; expected {max(width, 1 + labelled)}, a word and its tag among them"
                raise InputError(f"{path}, line {number}: {problem}; is the line cut off?")


def _blocks(path: Path, encoding: str, characters: bool, limit: int | None = None) -> Iterator[Block]:
    """The sentences of a file without comments."""
    document, lines, shape = 0, list[tuple[int, str]](), (0, 0)
    with open(path, "rb") as file:
        decoded_lines = itertools.islice(decoded(file, str(path), encoding), limit)
        for number, line in enumerate(itertools.chain(decoded_lines, [""]), 1):
            line = line.rstrip("\r\n")
            if characters and line.startswith("##"):
                continue
            if (line if characters else line.strip(" \t")) and not line.startswith(DOCUMENT):
                lines.append((number, line))
                continue
            if lines and not characters and lines[0][1].startswith("#"):
                if shape == (0, 0) and not lines[-1][1].startswith("#"):
                    shape = _shape(lines[-1][1])
                lines = _without_comments(lines, shape)
            if lines:
                yield Block(document, [(number, _cells(text, characters)) for number, text in lines])
            lines, document = [], document + line.startswith(DOCUMENT)


def _without_comments(lines: list[tuple[int, str]], shape: tuple[int, int]) -> list[tuple[int, str]]:
    """The lines of a sentence without those with # before it that do not have the tabs and cells of a word."""
    return [*itertools.dropwhile(lambda item: item[1].startswith("#") and _shape(item[1]) != shape, lines)]


def _shape(line: str) -> tuple[int, int]:
    return line.count("\t"), len(_CELLS.findall(line))


def _cells(line: str, characters: bool) -> tuple[str, ...]:
    if characters or line.count("\t") == CONLLU_TABS:
        return tuple(line.split("\t"))
    return tuple(_CELLS.findall(line))


def _is_numbered(block: Block) -> bool:
    """Whether the first column counts the words, from 0 or 1."""
    ids = [row[0] for _, row in block.lines if not _NO_WORD.fullmatch(row[0])]
    start = int(ids[:1] == ["1"])
    return ids == [str(i) for i in range(start, start + len(ids))]


def _column(name: str, usual: Sequence[str], default: int, names: Sequence[str], width: int, path: Path) -> int:
    """The index of a column, `default` for a usual name. Raises InputError if the number or name does not exist."""
    known = [one.lower() for one in names]
    if name.isdecimal() and 1 <= int(name) <= width:
        return int(name) - 1
    if name.lower() in known:
        return known.index(name.lower())
    if name.lower() in usual:
        return default
    listed = f", or one of {list_names(names)}" if names else ""
    advice = "name the columns of words and tags with text and label"
    raise InputError(f"{path}: no column {shorten(name)}; expected its number, 1 to {width}{listed}; {advice}")
