"""The rows of JSON and Parquet as objects: names of columns and values of any type."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files import InputError, parse_json, read_json, shorten
from ..tokenizer import normalize
from .lines import MAX_LINE, decoded
from .rows import check_characters

BATCH = 1024  # rows of a Parquet file held at a time


def json_objects(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line that is not blank."""
    with open(path, "rb") as file:
        for number, line in enumerate(decoded(file, str(path), encoding), 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, f"{path}, line {number}", finite=False)
            except InputError as error:
                raise InputError(f"{error}; is the line cut off?") from None
            if not isinstance(value, dict):
                raise InputError(f"{path}, line {number}: found a {type(value).__name__}; expected an object")
            yield number, value


def json_list(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(item, object) of a list of objects, which may be the value of `data`; or of one object per line."""
    rows = json_items(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: found {shorten(rows)}; expected a list of objects, such as a text and its label")
    yield from enumerate(rows, 1)


def json_items(path: Path) -> Any:
    """What a .json file holds: its value, or the list of the values of its lines."""
    try:
        value = read_json(path)
    except InputError:
        with open(path, "rb") as file:
            first = next(decoded(file, str(path)), "")
            if not first.rstrip().endswith("}"):
                raise
        return [row for _, row in json_objects(path, "utf-8")]
    return value["data"] if isinstance(value, dict) and isinstance(value.get("data"), list) else value


def parquet_names(path: Path) -> list[str]:
    """The names of the columns of a Parquet file."""
    from pyarrow import ArrowException, parquet

    try:
        return list(parquet.read_schema(path).names)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({shorten(str(error), 200)})") from None


def parquet_objects(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row, the wanted cells of it); other columns are not read."""
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            ours = {normalize("NFC", name): name for name in file.schema_arrow.names}
            # if a column is missing, all: the message lists those that there are
            wanted = [ours[name] for name in dict.fromkeys(names)] if {*names} <= {*ours} else list(ours.values())
            for batch in file.iter_batches(BATCH, columns=wanted):
                for cells in _rows_of(batch):
                    number += 1
                    yield number, cells
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: UTF-8, odd dates
        fault = (str(error).splitlines() or [type(error).__name__])[0]
        after = f", after row {number}" if number else ""
        found = f"{path}{after}: not a readable Parquet file ({shorten(fault, 200)})"
        raise InputError(f"{found}; is it cut off?") from None


def _rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a batch. Where some cell cannot be read they come one by one, up to the row that has it."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = (batch.slice(i, 1).to_pylist()[0] for i in range(batch.num_rows))
    yield from rows


def text_of_value(value: Any, may_be_list: bool, where: str) -> str:
    """A value as text: strings as they are; numbers, booleans and lists as JSON writes them.

    Where a list may be, also objects with a `text`, such as the answers to a question.
    """
    if value is None:
        return ""
    objects = value if isinstance(value, list) else [value]
    if may_be_list and objects and all(isinstance(one, dict) and "text" in one for one in objects):
        return json.dumps(value, ensure_ascii=False)
    items = value if may_be_list and isinstance(value, list) else [value]
    wrong = [item for item in items if not isinstance(item, str | int | float)]
    if wrong:
        expected = "a string" + (", or a list of strings" if may_be_list else "")
        inside = " with a " + type(wrong[0]).__name__ + " in it" if items is value else ""
        raise InputError(f"{where} is a {type(value).__name__}{inside}; expected {expected}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in items):
        raise InputError(f"{where} is {shorten(value)}; expected a text or a finite number")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_LINE:
        raise InputError(f"{where} has {len(text):,} characters; expected at most {MAX_LINE:,}; divide it")
    check_characters(text, where)
    return text
