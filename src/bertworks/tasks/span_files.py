"""Tagging examples from texts with spans of characters, as annotation tools export them.

    doccano         {"text", "label": [[start, end, type], ...]}
    Prodigy, spaCy  {"text", "spans": [{"start", "end", "label"}]}

The rows come from JSON, Parquet or memory. The tokenizer of a model divides the texts into words, as in prediction
(sentences.in_words). Offsets count characters.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..files import InputError, shorten
from .labels import whole_number
from .records import Source
from .rows import text_of
from .table import TableForm, has_objects, locator, objects_of

Span = tuple[int, int, str]  # first character, the one after the last, type
KEYS = ("label", "labels", "spans", "entities", "ents")  # usual names of the column of spans
SPANS = "spans of characters"  # how the rows write tags, as tags.Scheme has it


def read_spans(
    source: Source, columns: tuple[str, str], form: TableForm, labelled: bool = True
) -> Iterator[tuple[int, str, list[Span]]] | None:
    """(line, text, spans) of each row; None if the rows are not texts with spans. columns: of text and spans.

    The first row with anything in the column of spans decides. Raises InputError with file and line, while iterating,
    for an unfit span, and for spans that overlap. Without `labelled` the spans are not read.
    """
    if not has_objects(source):
        return None
    names = dict.fromkeys((columns[1], *KEYS))

    def rows() -> Iterator[tuple[int, Any, Any]]:
        for line, row in objects_of(source, (columns[0], "text", "answer", *names), form):
            if not labelled or row.get("answer", "accept") == "accept":  # Prodigy's answer
                spans = next((row[name] for name in names if row.get(name)), ())
                yield line, row.get(columns[0], row.get("text")), spans

    _, text, spans = next((row for row in rows() if row[2]), (0, "", ()))
    if not (isinstance(text, str) and spans and isinstance(spans, list) and isinstance(spans[0], list | dict)):
        return None
    where = locator(source)
    return (
        (line, text_of(text, f"{where(line)}: the text"), spans_of(text, spans, where(line)) if labelled else [])
        for line, text, spans in rows()
    )


def spans_of(text: str, spans: Iterable[Any], where: str) -> list[Span]:
    """The spans of a text, in order, each once.

    Raises InputError for an unfit span or one outside the text, and for spans that overlap: a word has one tag.
    """
    checked = sorted({_span(text, span, where) for span in spans})
    for before, after in itertools.pairwise(checked):
        if after[0] < before[1]:
            shown = " and ".join(f"{kind} {shorten(text[start:end])}" for start, end, kind in (before, after))
            raise InputError(f"{where}: the spans {shown} overlap; expected one tag for each word; leave one out")
    return checked


def _span(text: str, span: Any, where: str) -> Span:
    """A span from a list or a dictionary, without white space at its ends."""
    expected = None
    if isinstance(span, Mapping):
        expected = span.get("text")
        span = [*(span.get(key, span.get(f"{key}_offset")) for key in ("start", "end")), span.get("label")]
    if not isinstance(span, Sequence) or len(span) != 3 or not isinstance(span[2], str) or not span[2].strip():
        raise InputError(f"{where}: span {shorten(span)}; expected start, end and one label")
    start, end = (whole_number(value, f"{where}: offset of a span") for value in span[:2])
    inner = text[max(start, 0) : end]
    if not 0 <= start < end <= len(text) or not inner.strip():
        raise InputError(f"{where}: span {start} to {end}; expected a word within the {len(text)} characters")
    if isinstance(expected, str) and expected.strip() != inner.strip():
        problem = f"the span {shorten(expected)} is not at {start}, where {shorten(inner)} is"
        raise InputError(f"{where}: {problem}; expected offsets in characters of the text")
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip()), span[2].strip()


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
