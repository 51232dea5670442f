"""Rows of a tagging task, from files of tagged sentences and from raw texts.

    .conll, .conllu, .txt ...    a word per line (column_files.py); .tsv too if it has no names of columns
    .tsv, .csv                   a sentence per row: words with spaces between, tags with spaces between
    .jsonl, .json, .parquet      a sentence per row: lists of words and tags
    .jsonl, .json, .parquet      a text per row with spans of characters: doccano, Prodigy (span_files.py)

Where `Task.text` is ("character",), the units are characters, with nothing between them: a letter that is written
with several code points (NFD) is one unit.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import pre_tokenizers

from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..tokenizer import Encoding, Tokenizer, compose
from .base import Task
from .column_files import Sentence, is_column_file, read_columns
from .labels import as_list
from .records import Source
from .sequences import CHUNK
from .span_files import SPANS, Span, read_spans, tags_of
from .table import locator, read_table
from .tags import OUTSIDE, PARTS_OF_SPEECH, Scheme, chunks, read_scheme, to_iob2

_SPLIT = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
_INNER = ".&-'\u2019"  # marks inside words, as CoNLL's texts are divided


def by_character(task: Task) -> bool:
    """Whether the units are characters."""
    return task.text == ("character",)


def _scheme(labels: Sequence[str], places: dict[str, str], file: str) -> Scheme:
    """How the tags mark entities; that of the task's labels decides. Raises InputError for a tag of another type."""
    if not labels:
        return read_scheme(places)
    if read_scheme(dict.fromkeys(labels, file), of_model=True).entities:
        scheme, allowed = read_scheme({OUTSIDE: file} | places), {label[2:] for label in labels}
        types = {tag: scheme.standard[tag][2:] for tag in places}
    else:
        types, allowed = {tag: tag for tag in places}, {*labels}
        scheme = Scheme(PARTS_OF_SPEECH, types, entities=False)
    for tag, where in places.items():
        if types[tag] not in allowed:
            expected = listed(sorted(filter(None, allowed)), LABELS)
            raise InputError(f"{where}: tag {shorten(tag)}; expected one of {expected}")
    return scheme


def _of_table(task: Task, path: Source, labelled: bool) -> Iterator[Sentence]:
    """One sentence per row."""
    columns, characters, where = [task.text[0], *([task.label] if labelled else [])], by_character(task), locator(path)
    for document, (line, (text, *tags_in_row)) in enumerate(read_table(path, columns, lists=columns, form=task.form)):
        words = words_of(text, characters, where(line))
        tags = words_of(tags_in_row[0], False, where(line)) if labelled else None
        if tags is not None and len(words) != len(tags):
            what = "characters" if characters else "words"
            raise InputError(f"{where(line)}: {len(words)} {what}, but {len(tags)} tags; expected a tag for each")
        yield Sentence(line, document, words, tags)


def words_of(cell: str, characters: bool, where: str) -> list[str]:
    """The words (or characters) of a cell: a text, or a list as JSON. Raises InputError if a word is a space."""
    words = as_list(cell)
    if words is None:
        return characters_of(cell) if characters else cell.split()
    if not characters and " " in words:
        raise InputError(f"{where}: a word is a space; name the column `character` if its units are characters")
    return words


def characters_of(text: str) -> list[str]:
    """The characters of a text; the code points that NFC composes are one."""
    return [text[start:end] for start, end in character_units(text)]


def character_units(text: str) -> tuple[tuple[int, int], ...]:
    """Where each character of a text begins and ends."""
    composed = compose(text)
    units = np.arange(len(composed.text))
    return tuple(map(tuple, composed.spans(np.stack([units, units + 1], 1)).tolist()))


# ---- rows of a tagging task


class Tagged(NamedTuple):
    """A sentence, or any text to predict for."""

    text: str
    units: tuple[tuple[int, int], ...]  # where each word or character begins and ends in `text`
    tags: tuple[str, ...] | None = None  # one per unit, in IOB2, or parts of speech; None: not known
    line: int = 0  # where it begins in its file, counted from 1; the row's number in a Parquet file
    document: int = 0  # rows of one document follow each other and share windows
    scheme: str = ""  # how the file writes the tags, if not with a prefix, a hyphen and a type


def read(task: Task, path: Source | str, labelled: bool = True) -> list[Tagged]:
    """The sentences of one file, tags of any scheme turned into IOB2; part-of-speech tags stay.

    Tags are not looked at unless `labelled`. Raises InputError with file and line if a line has not as many columns as
    the others, a tag is none, words and tags differ in number, or the file mixes two schemes.
    """
    path, characters = Path(path) if isinstance(path, str) else path, by_character(task)
    if (texts := read_spans(path, (task.text[0], task.label), task.form, labelled)) is not None:
        return _with_spans(task, path, texts, labelled)
    columns = isinstance(path, Path) and is_column_file(path, task)
    sentences = read_columns(task, path, labelled) if columns else [*_of_table(task, path, labelled)]  # type: ignore[arg-type]
    if not labelled:
        return [_row(sentence, characters) for sentence in sentences]
    where, places = locator(path), dict[str, str]()  # where each tag is first met
    for sentence in sentences:
        for i, tag in enumerate(sentence.tags or ()):
            if tag not in places:
                places[tag] = where(sentence.lines[i] if sentence.lines else sentence.line)
    scheme = _scheme(task.labels, places, str(path))
    return [_row(sentence, characters, scheme) for sentence in sentences]


def _with_spans(task: Task, path: Source, texts: Iterable[tuple[int, str, list[Span]]], labelled: bool) -> list[Tagged]:
    """Rows of texts with spans of characters (span_files.py). Raises InputError for a type that the task lacks.

    The units are characters: `in_words` makes words of them, which depend on the tokenizer.
    """
    types, rows, where = {label[2:] for label in task.labels if label != OUTSIDE}, list[Tagged](), locator(path)
    for document, (line, text, spans) in enumerate(texts):
        if types and (unknown := [kind for _, _, kind in spans if kind not in types]):
            expected = ", ".join(sorted(types))
            raise InputError(f"{where(line)}: {shorten(unknown[0])}; expected one of the types {expected}")
        units = character_units(text)
        rows.append(Tagged(text, units, tuple(tags_of(units, spans)) if labelled else None, line, document, SPANS))
    return rows


def _row(sentence: Sentence, characters: bool, scheme: Scheme | None = None) -> Tagged:
    """A sentence as a text with units, its tags in IOB2 unless they are parts of speech."""
    between = between_words(characters)
    edges = itertools.accumulate((len(word) + len(between) for word in sentence.words), initial=0)
    units = tuple((start, start + len(word)) for word, start in zip(sentence.words, edges, strict=False))
    text, place = between.join(sentence.words), (sentence.line, sentence.document)
    if scheme is None:
        return Tagged(text, units, None, *place)
    tags = [scheme.standard[tag] for tag in sentence.tags or ()]
    return Tagged(text, units, tuple(to_iob2(tags) if scheme.entities else tags), *place, scheme.name)


def between_words(characters: bool) -> str:
    """What joins the words of a sentence, or its characters, to a text."""
    return "" if characters else " "


def from_texts(
    tokenizer: Tokenizer, texts: Sequence[str | Sequence[str] | Tagged], characters: bool = False
) -> list[Tagged]:
    """Rows to predict for, each text a document. Units: words, or characters.

    texts: in place of a text also the list of its words (or characters), which are then the units, or a row.
    """
    whole = iter(split_words(tokenizer, [text for text in texts if isinstance(text, str) and not characters]))
    rows = []
    for document, text in enumerate(texts):
        if isinstance(text, str) and not characters:
            row = next(whole)
        elif isinstance(text, Tagged):
            row = text
        else:
            row = _row(Sentence(0, 0, characters_of(text) if isinstance(text, str) else [*text], None), characters)
        rows.append(row._replace(line=0, document=document))
    return rows


def between_blanks(text: str) -> Tagged:
    """A text whose units are the words between its blanks."""
    return Tagged(text, tuple(match.span() for match in re.finditer(r"\S+", text)))


def split_words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Tagged]:
    """Rows of texts, split into words as in prediction."""
    composed = [compose(text) for text in texts]
    encodings = tokenizer.encode_batch([one.text for one in composed])
    rows = []
    for text, one, encoding in zip(texts, composed, encodings, strict=True):
        units = np.array(_words_of(tokenizer, one.text, encoding), np.int64).reshape(-1, 2)
        rows.append(Tagged(text, tuple(map(tuple, one.spans(units).tolist()))))
    return rows


def in_words(tokenizer: Tokenizer, rows: Sequence[Tagged]) -> tuple[list[Tagged], list[str]]:
    """The rows with words, as prediction has them, in place of spans of characters; the spans that cut a word.

    Of another row, the units stay as they are.
    """
    rows, cut = list(rows), []
    numbers = [i for i, row in enumerate(rows) if row.scheme == SPANS]
    for first in range(0, len(numbers), CHUNK):
        chunk = numbers[first : first + CHUNK]
        for i, new in zip(chunk, split_words(tokenizer, [rows[i].text for i in chunk]), strict=True):
            row = rows[i]
            entities = [(row.units[c.start][0], row.units[c.end - 1][1], c.type) for c in chunks(row.tags or ())]
            inside = {at for a, b in new.units for at in range(a + 1, b)}
            cut += [row.text[a:b] for a, b, _ in entities if a in inside or b in inside]
            tags = None if row.tags is None else tuple(tags_of(new.units, entities))
            rows[i] = row._replace(units=new.units, tags=tags)
    return rows, cut


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
