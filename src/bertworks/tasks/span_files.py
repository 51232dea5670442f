"""Tagging examples from texts with spans of characters, as annotation tools export them.

    doccano         {"text", "label": [[start, end, type], ...]}, also "labels", or "entities" [{"start_offset", ...}]
    Prodigy, spaCy  {"text", "spans": [{"start", "end", "label"}]}, also "ents"; rows that are not accepted are left out

The rows come from JSON, Parquet or memory. The tokenizer of a model divides the texts into words, as in prediction
(sentences.in_words). Offsets count characters.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..files import InputError, shorten
from .cells import whole_number
from .records import Source
from .rows import text_of
from .table import TableForm, has_objects, locator, objects_of

Span = tuple[int, int, str]  # first character, the one after the last, type
KEYS = ("spans", "entities", "ents", "labels", "label")  # usual names of the column of spans
SPANS = "spans of characters"  # how the rows write tags, as tags.Scheme has it


def read_spans(
    source: Source, columns: tuple[str, str], form: TableForm, labelled: bool = True
) -> Iterator[tuple[int, str, list[Span]]] | None:
    """(line, text, spans) of each row; None if the rows are no texts with spans. columns: of text and spans.

    Raises InputError with file and line, while iterating, for a span that is none, and for spans that overlap. Without
    `labelled` the spans are not read.
    """
    if not has_objects(source):
        return None
    names = (*columns, "text", "answer", *KEYS)
    kinds = (_has_spans(row, columns) for _, row in objects_of(source, names, form))
    if not next((kind for kind in kinds if kind is not None), False):
        return None
    return _spans(source, columns, names, form, labelled)


def _spans(
    source: Source, columns: tuple[str, str], names: Sequence[str], form: TableForm, labelled: bool
) -> Iterator[tuple[int, str, list[Span]]]:
    where = locator(source)
    for line, row in objects_of(source, names, form):
        if labelled and row.get("answer", "accept") != "accept":
            continue
        text, spans = _fields(row, columns)
        text = text_of(text, f"{where(line)}: the text")
        yield line, text, spans_of(text, spans or (), where(line)) if labelled else []


def _fields(row: Mapping[str, Any], columns: tuple[str, str]) -> tuple[Any, Any]:
    """The text of a row, and its list of spans, None if it has none."""
    text, label = columns
    lists = (row[key] for key in (label, *KEYS) if isinstance(row.get(key), list))
    return row.get(text, row.get("text")), next(lists, None)


def _has_spans(row: Mapping[str, Any], columns: tuple[str, str]) -> bool | None:
    """Whether a row is a text with spans; None if it is a text without any, which may be either."""
    text, spans = _fields(row, columns)
    labels = () if spans is not None or "answer" in row else (columns[1], *KEYS)
    if not isinstance(text, str) or any(row.get(key) is not None for key in labels):
        return False
    return all(isinstance(span, list | dict) for span in spans) if spans else None


def spans_of(text: str, given: Iterable[Any], where: str) -> list[Span]:
    """The spans of a text, in order, each once, without white space at their ends.

    Raises InputError for a span that is none or not in the text, and for spans that overlap: a word has one tag.
    """
    found = sorted({span for one in given if (span := _span(text, one, where)) is not None})
    for before, after in itertools.pairwise(found):
        if after[0] < before[1]:
            shown = " and ".join(f"{kind} {shorten(text[start:end])}" for start, end, kind in (before, after))
            raise InputError(f"{where}: the spans {shown} overlap; expected one tag for each word; leave one out")
    return found


def _span(text: str, given: Any, where: str) -> Span | None:
    """A span that is a list or a dictionary; None if it holds white space alone."""
    expected = None
    if isinstance(given, Mapping):
        expected = given.get("text")
        given = [*(given.get(key, given.get(f"{key}_offset")) for key in ("start", "end")), given.get("label")]
    if not isinstance(given, Sequence) or len(given) != 3 or not isinstance(given[2], str) or not given[2].strip():
        raise InputError(f"{where}: span {shorten(given)}; expected start, end and one label")
    start, end = whole_number(given[0], f"{where}: start of a span"), whole_number(given[1], f"{where}: end of a span")
    if not 0 <= start < end <= len(text):
        raise InputError(f"{where}: span {start} to {end}; expected a part of the text's {len(text)} characters")
    inner = text[start:end]
    if isinstance(expected, str) and expected.strip() != inner.strip():
        found = f"the span {shorten(expected)} is not at {start}, where {shorten(inner)} is"
        raise InputError(f"{where}: {found}; expected offsets in characters of the text")
    start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    return (start, end, given[2].strip()) if start < end else None


def tags_of(units: Sequence[tuple[int, int]], spans: Iterable[Span]) -> list[str]:
    """The tag of each word or character in IOB2. Of two spans that touch a word, the first decides."""
    tags, i = ["O"] * len(units), 0
    for start, end, kind in spans:
        while i < len(units) and units[i][1] <= start:
            i += 1
        inside = i
        while inside < len(units) and units[inside][0] < end:
            tags[inside] = f"{'B' if inside == i else 'I'}-{kind}"
            inside += 1
        i = inside
    return tags
