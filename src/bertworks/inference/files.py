"""Predictions for files: a JSON object, or a row of a table, for each line, row of a table, or question of SQuAD's.

An input without text is not predicted; its object is `{"line": 3, "empty": true}`.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import InputError, atomic_write, to_json
from ..tasks.rows import check_count
from ..tasks.table import ending_of
from .file_inputs import Columns, Item, columns_for, in_memory, read_inputs
from .predictor import Predictor
from .result_tables import SEPARATORS, WORKBOOK, check_file, write_table


@dataclass
class Counts:
    """Inputs of a file."""

    inputs: int = 0
    empty: int = 0  # without text, so not predicted


def predict_file(
    predictor: Predictor,
    file: str,
    columns: Columns,
    out: Path | None,
    all_scores: bool = False,
    n_best: int = 1,
    echo: bool = False,
    excel: bool = False,
) -> Counts:
    """Predict for every input of a file, whatever the folder's kind. Returns the counts.

    file: lines of text ("-": standard input), a table, sentences, or questions (`read_inputs`). out: file that is
    replaced at the end; None: standard output. JSON lines, or a table if `out` ends in .csv, .tsv or .xlsx. echo: each
    result has its input too. excel: write a .csv as Excel expects it. Raises InputError with file and line.
    """
    check_file(out, [file], excel=excel)
    counts = Counts()
    write_results(predict_data(predictor, file, columns, counts, all_scores, n_best, echo), out, excel)
    return counts


def predict_string(
    predictor: Predictor,
    texts: Sequence[str],
    out: Path | None,
    all_scores: bool = False,
    n_best: int = 1,
    echo: bool = False,
    excel: bool = False,
) -> None:
    """Predict for the texts of a single input, and write the result as `predict_file` does."""
    check_file(out, excel=excel)
    results = _results(
        [Item({}, texts)], lambda rows: predict_texts(predictor, rows, all_scores, n_best), Counts(), echo
    )
    write_results(results, out, excel)


def predict_data(
    predictor: Predictor,
    data: Any,
    columns: Columns,
    counts: Counts,
    all_scores: bool = False,
    n_best: int = 1,
    echo: bool = False,
) -> Iterator[dict[str, Any]]:
    """A prediction for every input of a file or of data in memory (`read_inputs`), whatever the folder's kind.

    counts: updated. Raises InputError with file and line, or with the row.
    """
    data = data if isinstance(data, str) else in_memory(data)
    items = read_inputs(data, predictor.kind, columns_for(predictor.loaded.settings, data, columns), whole=echo)
    return _results(items, lambda rows: predict_texts(predictor, rows, all_scores, n_best), counts, echo)


def next_sentence_file(predictor: Predictor, file: str, columns: tuple[str, str], out: Path | None) -> Counts:
    """Write whether the second text follows the first for every row of a table, and return the counts.

    A row with an empty text is not predicted. out: as in `predict_file`. Raises InputError with file and line.
    """
    check_file(out, [file])

    items = read_inputs(file, "pair", Columns(columns))
    pairs = (item if all(text.strip() for text in item.texts) else item._replace(texts=()) for item in items)
    counts = Counts()
    predict = lambda rows: map(dict, predictor.next_sentence_stream(rows))  # noqa: E731
    write_results(_results(pairs, predict, counts), out)
    return counts


def write_results(results: Iterable[dict[str, Any]], out: Path | None, excel: bool = False) -> None:
    """Write results as JSON lines, or as a table if `out` ends in .csv, .tsv or .xlsx; None: to standard output.

    excel: write a byte order mark at the beginning of a .csv.
    """
    ending = "" if out is None else ending_of(out)
    mode = "wb" if ending == WORKBOOK else "w"
    with contextlib.nullcontext(sys.stdout) if out is None else atomic_write(out, mode) as target:
        if out is not None and ending in (*SEPARATORS, WORKBOOK):
            return write_table(results, target, out, excel)
        for result in results:
            print(to_json(result), file=target)


def _results(
    items: Iterable[Item],
    predict: Callable[[Iterator[Any]], Iterator[dict[str, Any]]],
    counts: Counts,
    echo: bool = False,
) -> Iterator[dict[str, Any]]:
    """The result of every item, which `counts` counts; `predict` gets the texts of those that are not empty."""
    waiting: deque[Item] = deque()  # inputs without a result yet

    def texts() -> Iterator[Sequence[Any]]:
        for item in items:
            waiting.append(item)
            if not item.empty:
                yield item.texts if item.words is None else (item.words,)

    def named(item: Item) -> dict[str, Any]:
        return {**item.name, "input": item.echo} if echo else item.name

    def empty_items() -> Iterator[dict[str, Any]]:
        """The inputs without text before the next prediction."""
        while waiting and waiting[0].empty:
            counts.empty += 1
            yield {**named(waiting.popleft()), "empty": True}

    def results() -> Iterator[dict[str, Any]]:
        for result in predict(texts()):
            yield from empty_items()
            yield {**named(waiting.popleft()), **result}
        yield from empty_items()

    for result in results():
        counts.inputs += 1
        yield result


def predict_texts(
    predictor: Predictor, rows: Iterable[Sequence[Any]], all_scores: bool = False, n_best: int = 1
) -> Iterator[dict[str, Any]]:
    """The predictions of a folder of any kind, in order; rows as `Item.texts`, of a tagger also a list of words each.

    Raises InputError if a row has not as many texts as the kind needs, the folder has no supervised head, or `n_best`
    is above 1 for a kind other than span.
    """
    check_count(n_best, "n_best")
    kind = predictor.kind
    if n_best > 1 and kind != "span":
        raise InputError(
            f"n_best = {n_best}: the model is of the kind {kind or 'pre-trained'}; several answers need question "
            "answering (span); leave it out, or give all_scores for the scores of all labels"
        )
    if predictor.pooling and not kind:
        raise InputError(
            f"{predictor.folder} is an embedder: it gives vectors, and predicts no labels; use `bertworks features "
            f"{predictor.folder} FILE --pool mean --specials --out vectors.safetensors`, or Predictor.embed in Python"
        )
    rows = _counted(rows, kind if "name" in predictor.loaded.settings else kind.replace("single", ""))
    if kind == "tagging":
        return _tagged(predictor, (row[0] for row in rows))
    if kind == "span":
        questions = ((row[0], row[1]) for row in rows)
        if n_best > 1:
            return ({"answers": found} for found in predictor.answer_stream(questions, n_best))
        return map(dict, predictor.answer_stream(questions))
    if kind == "choice":
        return map(dict, predictor.choose_stream((row[0], row[1:]) for row in rows))
    return _classified(predictor, rows, all_scores)


def _classified(predictor: Predictor, rows: Iterable[Sequence[str]], all_scores: bool) -> Iterator[dict[str, Any]]:
    return map(
        dict, predictor.classify_stream(((row[0], row[1] if len(row) == 2 else None) for row in rows), all_scores)
    )


def _tagged(predictor: Predictor, texts: Iterator[str | Sequence[str]]) -> Iterator[dict[str, Any]]:
    for prepared, scores in predictor.scored(predictor.tagger, texts):
        found = prepared.decode(scores, predictor.loaded.settings)
        for entities, tokens in zip(found, prepared.tokens.tolist(), strict=True):
            yield {"entities": entities, "tokens": tokens}


def _counted(rows: Iterable[Sequence[str]], kind: str) -> Iterator[Sequence[str]]:
    """The rows, each with as many texts as the kind has; one or two for classifiers of other software (kind "")."""
    numbers = {"single": (1, 1), "pair": (2, 2), "span": (2, 2), "choice": (3, 10**6), "tagging": (1, 1)}
    least, most = numbers.get(kind, (1, 2))
    for row in rows:
        if not least <= len(row) <= most:
            wanted = {"span": "a question and a context", "choice": "a text and two or more choices"}
            wanted |= {"pair": "two texts", "single": "one text", "tagging": "one text"}
            raise InputError(f"{len(row)} texts for the kind {kind}; expected {wanted.get(kind, 'one text, or two')}")
        yield row
