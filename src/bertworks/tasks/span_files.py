"""Tagging rows of texts with spans of characters, as annotation tools export them.

    doccano         {"text", "label": [[start, end, type], ...]}, also "labels" or "entities" [{start_offset, ...}]
    Prodigy, spaCy  {"text", "spans": [{"start", "end", "label"}]}, also "ents"; rows that are not accepted are left out
    Label Studio    {"data": {"text"}, "annotations": [{"result": [{"value": {"start", "end", "text", "labels"}}]}]};
                    also its JSON-MIN; tasks without an annotation are left out if labels are wanted

The rows come from JSON, Parquet or memory. A model's tokenizer divides the texts into words, as
for prediction (units.py). Offsets count characters; where a span has its text, it decides (offsets.py).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..files import InputError, shorten
from ..typed import check_fields
from .cells import whole_number
from .offsets import locate
from .records import Source
from .rows import text_of
from .table import TableForm, has_objects, location, objects_of

Span = tuple[int, int, str]  # first character, the one after the last, type
KEYS = ("spans", "entities", "ents", "labels", "label")  # of the spans of a row
LABEL_STUDIO = {"data": dict, "annotations?": [{"result?": ([{"value?": (dict, None)}], None)}]}
SPANS = "spans of characters"  # how the rows write tags, as tags.Scheme has it
MORE = ("text", "answer", "data", "annotations")


def read_spans(
    path: Source, columns: tuple[str, str], form: TableForm, labelled: bool = True
) -> Iterator[tuple[int, str, list[Span]]] | None:
    """(line, text, spans) of each row; None if the rows are no texts with spans. columns: of text and spans.

    Raises InputError with file and line, while iterating, for a span that is none, and for spans that overlap. Without
    `labelled`, the spans are not read: no row has any.
    """
    forms = (_is_spans(row, columns) for _, row in _objects(path, columns, form))
    if not next((found for found in forms if found is not None), False):
        return None
    return _spans(path, columns, form, labelled)


def _spans(
    path: Source, columns: tuple[str, str], form: TableForm, labelled: bool
) -> Iterator[tuple[int, str, list[Span]]]:
    for line, row in _objects(path, columns, form):
        where = location(path, line)
        if isinstance(row.get("data"), dict):
            found = _label_studio(row, where, labelled)
        else:
            accepted = not labelled or row.get("answer", "accept") == "accept"
            found = _given(row, columns) if accepted else None
        if found is not None:
            text = text_of(found[0], f"{where}: the text")
            yield line, text, spans_of(text, found[1] or (), where) if labelled else []


def _objects(path: Source, columns: tuple[str, str], form: TableForm) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """(line, row) of a source that can hold objects; nothing of other sources."""
    return objects_of(path, (*columns, *KEYS, *MORE), form) if has_objects(path) else ()


def _given(row: Mapping[str, Any], columns: tuple[str, str]) -> tuple[Any, Any]:
    """The values of a row that may be its text and its spans."""
    text, label = columns
    return row.get(text, row.get("text")), next((row[k] for k in (label, *KEYS) if isinstance(row.get(k), list)), None)


def _is_spans(row: Mapping[str, Any], columns: tuple[str, str]) -> bool | None:
    """Whether a row is a text with spans, rather than words with tags; None if it may be either."""
    if isinstance(row.get("annotations", []), list) and isinstance(row.get("data"), dict):
        return True
    text, spans = _given(row, columns)
    others = () if spans is not None or "answer" in row else (columns[1], *KEYS)
    if not isinstance(text, str) or any(row.get(key) is not None for key in others):
        return False
    return all(isinstance(span, list | dict) for span in spans) if spans else None


def _label_studio(row: Mapping[str, Any], where: str, labelled: bool) -> tuple[Any, list[Any]] | None:
    """The text and the spans of a task of Label Studio; None if spans are wanted and nobody has annotated it."""
    check_fields(row, LABEL_STUDIO, where, "export the task again")
    data, done = row["data"], [one for one in row.get("annotations", ()) if not one.get("was_cancelled")]
    texts = [value for value in data.values() if isinstance(value, str)]
    text = data.get("text") or (texts[0] if len(texts) == 1 else None)
    values = [[item.get("value") or {} for item in one.get("result") or ()] for one in done]
    results = [[value for value in given if "labels" in value] for given in values]
    if not labelled:
        return text, []
    if not results:
        return None
    if any(sorted(map(str, other)) != sorted(map(str, results[0])) for other in results[1:]):
        raise InputError(f"{where}: {len(results)} annotations that differ; expected one; export one for each task")
    return text, results[0]


# ---- spans and words


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
    """A span of any form; None if it holds white space alone."""
    expected = None
    if isinstance(given, Mapping):
        expected, ends = given.get("text"), [given.get(key, given.get(f"{key}_offset")) for key in ("start", "end")]
        given = [*ends, *(given.get("labels") or [given.get("label")])]
    if not isinstance(given, Sequence) or len(given) != 3 or not isinstance(given[2], str) or not given[2].strip():
        raise InputError(f"{where}: span {shorten(given)}; expected start, end and one label")
    start, end = whole_number(given[0], f"{where}: start of a span"), whole_number(given[1], f"{where}: end of a span")
    if isinstance(expected, str) and expected.strip() and text[start:end] != expected:
        place = locate(text, expected, start, "UTF-16 units")
        if place is None:
            found = f"the span {shorten(expected)} is not at {start}, where {shorten(text[start:end])} is"
            raise InputError(f"{where}: {found}; expected offsets in characters of the text")
        start, end = place
    if not 0 <= start < end <= len(text):
        raise InputError(f"{where}: span {start} to {end}; expected a part of the text's {len(text)} characters")
    inner = text[start:end]
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
