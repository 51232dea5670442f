"""Files with a word per line and its tag in another column: CoNLL-2003, CoNLL-U, GermEval, KLUE and others.

    CoNLL-2003   Kim NNP B-NP B-PER     the word first, its tag last; blanks or tabs between the columns
    GermEval     1  Kim  B-PER  O       numbered words, then the tags of outer and of nested entities
    CoNLL-U      1  Kim  Kim  PROPN ... ten columns with names; ranges (3-4) and empty words (8.1) are left out

A blank line ends a sentence, and a line -DOCSTART- begins a document. Where the units are characters, one tab stands
between the columns, because a unit may be a space, and lines with ## are comments. Otherwise lines with # before a
sentence are comments, if they do not have the columns of a word or all sentences have them.

`Task.text` and `Task.label` may be numbers of columns, counted from 1, or names: those of `Task.header` or of CoNLL-U.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..data.parsers import list_names
from ..files import InputError, not_found, shorten
from .base import Task
from .formats import decoded
from .table import TABLES, TableForm, ending_of, names_of
from .tags import is_typed

ENDINGS = (".conll", ".conllu", ".conllx", ".iob", ".iob2", ".bio", ".bioes", ".ner", ".tagged")
DOCUMENT = "-DOCSTART-"
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
WORDS = ("text", "word", "words", "token", "tokens", "form", "character")  # names for the usual column of words
TAGS = ("label", "labels", "tag", "tags", "ner", "ner_tag", "ner_tags")  # names for the usual column of tags
SAMPLE = 2_000  # lines that decide whether a file has columns
_CELLS = re.compile("[^ \t]+")  # other blanks, such as the no-break space, occur inside words
_NO_WORD = re.compile(r"\d+[-.]\d+")  # the id of a range of words or of an empty word in CoNLL-U


class Sentence(NamedTuple):
    """Words and tags."""

    line: int  # counted from 1; the row's number in a Parquet file
    document: int
    words: list[str]
    tags: list[str] | None
    lines: Sequence[int] = ()  # of each word in a file with a word per line
    scheme: str = ""  # how the file writes tags (tags.Scheme)


class Block(NamedTuple):
    """The lines of a sentence: tuples of their cells, which Python's garbage collector need not visit."""

    document: int
    numbers: list[int]  # of the lines in the file, counted from 1
    rows: list[tuple[str, ...]]


def is_column_file(path: Path, task: Task, tagged_only: bool = False) -> bool:
    """Whether a file has a word per line, rather than a text or a row of a table.

    A .tsv is one if it has no column of the task's name, and no blanks inside its cells. tagged_only: files of other
    endings need tags of entities, numbered words or documents; else they are column files unless they are tables.
    """
    ending = ending_of(path)
    if ending in ENDINGS:
        return True
    if ending == ".tsv":
        return bool(task.header) or (path.is_file() and _is_headless(path, task))
    return ending not in TABLES and (not tagged_only or _looks_tagged(path, task.form))


def _is_headless(path: Path, task: Task) -> bool:
    """Whether a .tsv has none of the task's columns, and no texts in its cells."""
    if {task.text[0], task.label} & {*names_of(path, task.form)}:
        return False
    with open(path, "rb") as file:
        lines = itertools.islice(decoded(file, str(path), task.form.encoding), SAMPLE)
        return not any(" " in line.strip() for line in lines if not line.startswith("#"))


def _looks_tagged(path: Path, form: TableForm) -> bool:
    """Whether all lines have the same columns, and tags of entities, numbered words or documents."""
    blocks = list(_blocks(path, form.encoding, False, SAMPLE)) if path.is_file() else []
    rows = [row for block in blocks for row in block.rows if not row[0].startswith("#")]
    if {len(row) for row in rows} in ({1}, set()) or any(len(row) != len(rows[0]) for row in rows):
        return False
    tags = {row[-1] for row in rows}
    return (len(tags) > 1 and all(map(is_typed, tags))) or is_numbered(blocks) or blocks[-1].document > 0


def read_columns(task: Task, path: Path, labelled: bool) -> list[Sentence]:
    """The sentences of a file. Raises InputError with file and line if lines differ in columns, or a column is missing.

    The usual column of words is the first, or the second if the words are numbered. That of tags is the last; if the
    words are numbered, the last one with tags of entities that are not nested in those of the column before. Without
    -DOCSTART- every sentence is a document of its own.
    """
    if not path.is_file():
        raise InputError(f"{path}: {not_found(path)}")
    characters = task.text == ("character",)
    blocks, names, numbered = list(_blocks(path, task.form.encoding, characters)), task.header, False
    if blocks and not (characters or names):
        numbered = is_numbered(blocks) and len(blocks[0].rows[-1]) > 1 + labelled
        blocks = list(_without_comments(blocks, numbered))
    if not blocks:
        return []
    width = (len(names) if labelled else 0) or len(blocks[0].rows[0])
    names = names or (CONLLU if numbered and width == len(CONLLU) else ())
    found = _column(task.text[0], WORDS, names, width, path)
    word = int(numbered) if found is None else found
    _check_width(blocks, width, labelled, path)
    tag = _column(task.label, TAGS, names, width, path) if labelled else word
    if tag is None:
        tag = _usual_tags(blocks, word, width, numbered, path)
    return [
        Sentence(
            block.numbers[0],
            block.document if blocks[-1].document else number,
            [row[word] for row in block.rows],
            [row[tag] for row in block.rows] if labelled else None,
            block.numbers,
        )
        for number, block in enumerate(blocks)
    ]


def _blocks(path: Path, encoding: str, characters: bool, most: int | None = None) -> Iterator[Block]:
    found = Block(0, [], [])
    with open(path, "rb") as file:
        for number, line in enumerate(itertools.islice(decoded(file, str(path), encoding), most), 1):
            line = line.rstrip("\r\n")
            if characters and line.startswith("##"):
                continue
            if characters or line.count("\t") == len(CONLLU) - 1:  # words of CoNLL-U may have blanks
                cells = line.split("\t") if line else []
            else:
                cells = _CELLS.findall(line)
            if cells and cells[0] != DOCUMENT:
                found.numbers.append(number)
                found.rows.append(tuple(cells))
                continue
            if found.rows:
                yield found
            found = Block(found.document + bool(cells), [], [])
    if found.rows:
        yield found


def is_numbered(blocks: Sequence[Block]) -> bool:
    """Whether the first column counts the words of each sentence, from 0 or 1."""

    def counts(block: Block) -> bool:
        ids = [row[0] for row in block.rows if not (row[0].startswith("#") or _NO_WORD.fullmatch(row[0]))]
        start = int(ids[:1] == ["1"])
        return ids == [str(i) for i in range(start, start + len(ids))]

    return any(len(block.rows) > 1 for block in blocks) and all(map(counts, blocks))


def _without_comments(blocks: Sequence[Block], numbered: bool) -> Iterator[Block]:
    """The blocks without comments, and of numbered words without those that are none of the text."""
    all_rows = [row for block in blocks for row in block.rows]
    width = len(next((row for row in all_rows if not row[0].startswith("#")), all_rows[0]))
    everywhere = len(blocks) > 1 and all(block.rows[0][0].startswith("#") for block in blocks)
    for document, numbers, rows in blocks:
        if numbered:
            kept = [row[0].isdecimal() for row in rows]
        else:
            comments = (row[0].startswith("#") and (everywhere or len(row) != width) for row in rows)
            first = sum(itertools.takewhile(bool, comments))
            kept = [i >= first for i in range(len(rows))]
        if any(kept):
            yield Block(document, [*itertools.compress(numbers, kept)], [*itertools.compress(rows, kept)])


def _column(name: str, usual: Sequence[str], names: Sequence[str], width: int, path: Path) -> int | None:
    """The index of a column; None for the usual one. Raises InputError if there is none of this number or name."""
    if name.isdecimal() and 1 <= int(name) <= width:
        return int(name) - 1
    known = [one.lower() for one in names]
    if name.lower() in known:
        return known.index(name.lower())
    if name.lower() in usual:
        return None
    listed = f", or one of {list_names(names)}" if names else ""
    raise InputError(
        f"{path}: no column {shorten(name)}; expected the number of a column, 1 to {width}{listed}; name the columns "
        "of words and tags with text and label"
    )


def _check_width(blocks: Sequence[Block], width: int, labelled: bool, path: Path) -> None:
    if width == 1 and labelled:
        raise InputError(f"{path}, line {blocks[0].numbers[0]}: 1 column; expected a word and its tag")
    for block in blocks:
        for number, row in zip(block.numbers, block.rows, strict=True):
            if len(row) != width:
                expected = f"{len(row)} columns; expected {width}; is the line cut off?"
                raise InputError(f"{path}, line {number}: {expected}")


def _usual_tags(blocks: Sequence[Block], word: int, width: int, numbered: bool, path: Path) -> int:
    """The index of the column of tags. Raises InputError if several columns may be the one."""
    cells = {i: {row[i] for block in blocks for row in block.rows} for i in range(word + 1, width)}
    types = {i: {tag[2:] for tag in tags if tag[2:]} for i, tags in cells.items() if all(map(is_typed, tags))}
    typed = [i for i, found in types.items() if found]
    if width <= word + 2 or not (numbered or width - 1 in typed):
        return width - 1
    if not typed and width == len(CONLLU):
        return CONLLU.index("upos")
    if not typed:
        raise InputError(f"{path}: {width} columns, and none has tags of entities; name that of the tags as label")
    tag = typed.pop()
    while typed and types[typed[-1]] & types[tag]:
        if not numbered:
            found = f"columns {typed[-1] + 1} and {tag + 1} both have tags such as {min(types[tag])}"
            raise InputError(f"{path}: {found}; expected one column; give its number as label: {typed[-1] + 1}")
        tag = typed.pop()
    return tag
