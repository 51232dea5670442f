"""Predictions for files: a JSON object, or a row of a table, for each line, row of a table, or question of SQuAD's.

An input without text is not predicted; its object is `{"line": 3, "empty": true}`. In a table (.csv, .tsv) it has no
values but its own.
"""

import contextlib
import csv
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import InputError, atomic_write, to_json
from ..reporting.outputs import check_output
from ..tasks.rows import check_integer
from ..tasks.table import TABLES, suffix_of
from .file_inputs import Columns, InputRow, columns_for, in_memory, read_inputs
from .predictor import Predictor
from .steps import head_steps

EMPTY = "empty"  # the field of the result of an input without text
SEPARATORS = {".csv": ",", ".tsv": "\t"}  # of tables, by the end of a file's name


@dataclass
class Counts:
    """Inputs of a file."""

    inputs: int = 0
    empty: int = 0  # without text, so not predicted


def check_file(out: Path | None, data: Iterable[Any] = (), folders: Iterable[Any] = ()) -> None:
    """Raises InputError for the name of a file that predictions are not written to, or as `check_output`."""
    check_output(out, data, folders)
    suffix = "" if out is None else suffix_of(out)
    if suffix in TABLES and suffix not in (*SEPARATORS, ".jsonl"):
        raise InputError(f"{out}: expected a name that ends in .jsonl (JSON lines), .csv or .tsv")


def predict_data(
    predictor: Predictor,
    data: Any,
    columns: Columns,
    counts: Counts,
    all_scores: bool = False,
    n_best: int = 1,
    include_input: bool = False,
) -> Iterator[dict[str, Any]]:
    """A prediction for every input of a file or of data in memory (`read_inputs`), whatever the folder's kind.

    Results of a file have the input's line or id. counts: updated. include_input: add the text of each input, or a list
    of its texts, as `input`. Raises InputError with file and line, or with the row.
    """
    is_file = isinstance(data, str)
    data = data if is_file else in_memory(data)
    waiting: deque[InputRow] = deque()  # inputs without a result yet

    def texts() -> Iterator[Sequence[Any]]:
        for item in read_inputs(data, predictor.kind, columns_for(predictor.loaded.settings, data, columns)):
            waiting.append(item)
            if not item.empty:
                yield item.texts if item.words is None else (item.words,)

    def next_result(prediction: dict[str, Any]) -> dict[str, Any]:
        item = waiting.popleft()
        counts.inputs += 1
        counts.empty += item.empty
        inputs = {"input": item.texts[0] if len(item.texts) == 1 else [*item.texts]} if include_input else {}
        return {**(item.name if is_file else {}), **inputs, **prediction}

    for prediction in predict_texts(predictor, texts(), all_scores, n_best):
        while waiting[0].empty:
            yield next_result({EMPTY: True})
        yield next_result(prediction)
    while waiting:
        yield next_result({EMPTY: True})


def predict_texts(
    predictor: Predictor, rows: Iterable[Sequence[Any]], all_scores: bool = False, n_best: int = 1
) -> Iterator[dict[str, Any]]:
    """The predictions of a folder of any kind, in order; rows as `InputRow.texts`, for a tagger also a list of words.

    Raises InputError if a row has not as many texts as the kind needs, the folder has no supervised head, or `n_best`
    is above 1 for a kind other than span.
    """
    check_integer(n_best, "n_best", 1)
    kind = predictor.kind
    if n_best > 1 and kind != "span":
        model = f"the model is of the kind {kind or 'pre-trained'}"
        raise InputError(f"n_best = {n_best}: {model}; several answers need the kind span; leave it out")
    if predictor.pooling and not kind:
        model = f"{predictor.folder} is an embedder: it gives vectors, and predicts no labels"
        raise InputError(f"{model}; use `bertworks features`, or Predictor.embed in Python")
    steps = head_steps(predictor.loaded)
    for prepared, scores in predictor.scored(steps, map(steps.row, rows)):
        results = prepared.decode(scores, predictor.loaded.settings)
        if kind == "tagging":
            counted = zip(results, prepared.tokens.tolist(), strict=True)
            yield from ({"entities": entities, "tokens": tokens} for entities, tokens in counted)
        elif kind == "span":
            yield from ({"answers": best[:n_best]} if n_best > 1 else dict(best[0]) for best in results)
        else:
            hidden = () if all_scores or kind == "choice" else ("scores",)
            yield from ({name: value for name, value in one.items() if name not in hidden} for one in results)


# ---- writing


def write_results(results: Iterable[dict[str, Any]], out: Path | None, excel: bool = False) -> None:
    """Write results as JSON lines, or as a table if `out` ends in .csv or .tsv; None: to standard output.

    excel: begin a table with a byte order mark.
    """
    separator = None if out is None else SEPARATORS.get(suffix_of(out))
    with contextlib.nullcontext(sys.stdout) if out is None else atomic_write(out, "w") as target:
        if separator:
            target.write("\ufeff" if excel else "")
            csv.writer(target, delimiter=separator, lineterminator="\n").writerows(table_rows(results))
        else:
            target.writelines(to_json(result) + "\n" for result in results)


def table_rows(results: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    """The names of the columns, then a row for each result; nothing if there are no results.

    Each field has a column, scores have one for each label, lists are JSON. The columns are those of the first result
    of an input with text.
    """
    records, first = map(_flattened, results), list[dict[str, Any]]()
    for one in records:
        first.append(one)
        if EMPTY not in one:
            break
    if first:
        header = [name for name in first[-1] if name != EMPTY]
        yield header
        for one in itertools.chain(first, records):
            yield [one.get(name, "") for name in header]


def _flattened(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as values of one row."""
    values: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            values |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            values[name] = to_json(value) if isinstance(value, list | tuple) else value
    return values
