"""Predictions for files: a JSON object, or a row of a table, for each line, row of a table, or question of SQuAD's.

An input without text is not predicted; its object is `{"line": 3, "empty": true}`.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, atomic_write, refuse_input, to_json
from ..tasks.base import Task
from ..tasks.catalogue import TASKS
from ..tasks.lines import decoded
from ..tasks.questions import read as read_questions
from ..tasks.records import EXPECTED, Records, Source, is_table, refuse_no_rows, source_of
from ..tasks.rows import check_count, text_rows_of
from ..tasks.selection import refuse_idle_sheet
from ..tasks.sentences import between_words, words_of
from ..tasks.table import (
    PLAIN,
    TABLES,
    MissingColumn,
    TableForm,
    as_list,
    column_names,
    ending_of,
    location,
    part_of,
    read_table,
)
from .ensemble import Ensemble
from .predictor import Predictor
from .result_tables import SEPARATORS, WORKBOOK, check_file, write_table

TEXT = ".txt"  # a table, or lines of text (`_names_columns`)
TEXT_COLUMNS = {"span": ("question", "context")}  # of a kind, by default; of all other kinds: text


class Item(NamedTuple):
    """One input of a file."""

    name: dict[str, Any]  # its line in the file, or the id of a question
    texts: Sequence[str]  # one or two texts; of a multiple choice a text, then the choices
    cells: Mapping[str, str] | None = None  # the same as in the file, by column; None: `texts` alone are known
    words: Sequence[str] | None = None  # of a text to tag, if the table divides it into words (or characters)

    @property
    def empty(self) -> bool:
        return not any(text.strip() for text in self.texts)

    @property
    def echo(self) -> dict[str, str]:
        """The input by its columns; of texts without columns by their numbers."""
        return dict(self.cells or {f"text{i or ''}": text for i, text in enumerate(self.texts)})


@dataclass
class Counts:
    """Inputs of a file."""

    inputs: int = 0
    empty: int = 0  # without text, so not predicted


class Columns(NamedTuple):
    """The columns of a table that hold texts."""

    text: tuple[str, ...] = ()  # one or two; (): those of fine-tuning on one's own table, else the default of the kind
    choices: tuple[str, ...] = ()
    form: TableForm = PLAIN  # encoding of the file, and its sheet
    found: bool = False  # whether `text` is what fine-tuning stored, not what was given
    words: tuple[str, ...] = ()  # the columns whose texts were divided into words by fine-tuning
    characters: bool = False  # whether these words are characters

    def or_those_of(self, settings: Mapping[str, Any], names: Collection[str]) -> "Columns":
        """The columns, where not given those that fine-tuning stored; `names`: the columns of the table.

        A table that lacks the words of a tagger, but has the usual column, has texts to tag there.
        """
        text, choices, words = (tuple(settings.get(name, ())) for name in ("text", "choices", "words"))
        text = text or (words if "text" not in names or {*words} <= {*names} else ())
        columns = Columns(self.text or text, self.choices or choices, self.form, not self.text)
        return columns._replace(words=words, characters=bool(settings.get("characters")))


def predict_file(
    predictor: Predictor | Ensemble,
    file: str,
    columns: Columns,
    out: Path | None,
    all_scores: bool = False,
    n_best: int = 1,
    echo: bool = False,
) -> Counts:
    """Predict for every input of a file, whatever the folder's kind. Returns the counts.

    predictor: of one folder, or of several classifiers as one (ensemble.py).
    file: lines of text ("-": standard input), a table (table.py), or questions in SQuAD's layout (.json). out: file
    that is replaced at the end; None: standard output. JSON lines, or a table if `out` ends in .csv, .tsv or .xlsx.
    echo: each result has its input too. Raises InputError with file and line.
    """
    refuse_input(out, file)
    if out is not None:
        check_file(out)
    counts = Counts()
    write_results(predict_data(predictor, file, columns, counts, all_scores, n_best, echo), out)
    return counts


def predict_string(
    predictor: Predictor | Ensemble,
    texts: Sequence[str],
    out: Path | None,
    all_scores: bool = False,
    n_best: int = 1,
    echo: bool = False,
) -> None:
    """Predict for the texts of a single input, and write the result as `predict_file` does."""
    if out is not None:
        check_file(out)
    items = [Item({}, texts)]
    write_results(_results(items, lambda rows: predict_texts(predictor, rows, all_scores, n_best), Counts(), echo), out)


def predict_data(
    predictor: Predictor | Ensemble,
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
    data, settings = data if isinstance(data, str) else _in_memory(data), predictor.loaded.settings
    names = () if columns.text else _names_of(data, columns.form)
    columns = _official(columns.or_those_of(settings, names), settings, names)
    items = read_inputs(data, predictor.kind, columns, whole=echo)
    return _results(items, lambda rows: predict_texts(predictor, rows, all_scores, n_best), counts, echo)


def next_sentence_file(predictor: Predictor, file: str, columns: tuple[str, str], out: Path | None) -> Counts:
    """Write whether the second text follows the first for every row of a table, as JSON lines. Returns the counts.

    A row with an empty text is not predicted. out: file that is replaced at the end; None: standard output. Raises
    InputError with file and line.
    """

    def pairs() -> Iterator[Item]:
        try:
            for row in read_table(Path(file), columns):
                yield Item({"line": row.line}, row.values if all(text.strip() for text in row.values) else ())
        except MissingColumn as error:
            raise InputError(f"{error}; name the two text columns, separated by a comma, with --text") from None

    counts = Counts()
    write_results(_results(pairs(), lambda rows: map(dict, predictor.next_sentence_stream(rows)), counts), out)
    return counts


def write_results(results: Iterable[dict[str, Any]], out: Path | None) -> None:
    """Write results as JSON lines, or as a table if `out` ends in .csv, .tsv or .xlsx; None: to standard output."""
    ending = "" if out is None else ending_of(out)
    mode = "wb" if ending == WORKBOOK else "w"
    with contextlib.nullcontext(sys.stdout) if out is None else atomic_write(out, mode) as target:
        if out is not None and ending in (*SEPARATORS, WORKBOOK):
            return write_table(results, target, out)
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
    predictor: Predictor | Ensemble, rows: Iterable[Sequence[Any]], all_scores: bool = False, n_best: int = 1
) -> Iterator[dict[str, Any]]:
    """The predictions of a folder of any kind, in order; rows as `Item.texts`, of a tagger also a list of words each.

    Raises InputError if a row has not as many texts as the kind needs, or the folder has no supervised head.
    """
    check_count(n_best, "n_best")
    kind = predictor.kind
    if isinstance(predictor, Predictor) and predictor.pooling and not kind:
        raise InputError(
            f"{predictor.folder} is an embedder: it gives vectors, and predicts no labels; use `bertworks features "
            f"{predictor.folder} FILE --pool mean --out vectors.npz`, or Predictor.embed in Python"
        )
    rows = _counted(rows, kind if "name" in predictor.loaded.settings else kind.replace("single", ""))
    if isinstance(predictor, Ensemble):
        return _classified(predictor, rows, all_scores)
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


def _classified(
    predictor: Predictor | Ensemble, rows: Iterable[Sequence[str]], all_scores: bool
) -> Iterator[dict[str, Any]]:
    return map(
        dict, predictor.classify_stream(((row[0], row[1] if len(row) == 2 else None) for row in rows), all_scores)
    )


def _official(columns: Columns, settings: Mapping[str, Any], names: Collection[str]) -> Columns:
    """The columns of the official files of the known task that a model was fine-tuned on, if this table has them."""
    task = TASKS.get(settings.get("name", ""))
    if columns.text or task is None or not {*task.text, *task.choices} <= {*names}:
        return columns
    return columns._replace(text=task.text, choices=task.choices)


def _names_of(data: Any, form: TableForm) -> Collection[str]:
    """The names of a table's columns; () of a file that is not there, and of what is no table."""
    if isinstance(data, str):
        known = ending_of(data) in (*TABLES, TEXT) and part_of(data)[0].is_file()
        return column_names(data, form) if known else ()
    source = source_of(data, "data") if is_table(data) else None
    return (source.columns or tuple(data[0])) if isinstance(source, Records) else ()


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


def read_inputs(data: Any, kind: str, columns: Columns, whole: bool = False) -> Iterator[Item]:
    """The inputs of a file for a folder of this kind, or of data in memory: texts, tuples of texts, or a table.

    whole: whether the cells are those of all columns, of a file with a header (.csv, .tsv, .xlsx). Raises InputError
    with file and line, or with the row.
    """
    text = columns.text or TEXT_COLUMNS.get(kind, ("text",))
    if not isinstance(data, str):
        data = _in_memory(data)
        if is_table(data):
            yield from _rows_of(source_of(data, "data", (*text, *columns.choices)), kind, columns, text)  # type: ignore[arg-type]  # a table
        else:
            yield from (Item({"line": number}, row) for number, row in enumerate(text_rows_of(data, "data"), 1))
        return
    refuse_idle_sheet(columns.form.sheet, [data])
    path, ending = Path(data), ending_of(data)
    if kind == "span" and ending == ".json":
        for question in read_questions(Task("prediction", ("question", "context"), kind="span"), path, False):
            cells = {"question": question.question, "context": question.context}
            yield Item({"id": question.id}, [*cells.values()], cells)
    elif data != "-" and (ending in TABLES or (ending == TEXT and _names_columns(data, columns, text))):
        more = list[str]()
        if whole and ending in (".csv", ".tsv", ".xlsx") and part_of(path)[0].is_file():
            names = column_names(path, columns.form)
            more = [name for name in names if name and names.count(name) == 1 and name not in (*text, *columns.choices)]
        yield from _rows_of(path, kind, columns, text, more)
    else:
        for number, line in read_lines(data, columns.form.encoding):
            yield Item({"line": number}, (line,))


def _in_memory(data: Any) -> Any:
    """Data in memory, with a length. Raises InputError for what has no rows."""
    refuse_no_rows(data, "data", f"{EXPECTED}, of texts, or of tuples of texts")
    return data if hasattr(data, "__len__") else [*data]


def _names_columns(file: str, columns: Columns, text: tuple[str, ...]) -> bool:
    """Whether a .txt file is a table: its text columns are given, or its first line names them, between tabs.

    Prints a warning for other tabs in the first line, which is then the first of the texts.
    """
    if columns.text and not columns.found:
        return True
    names = _names_of(file, columns.form)
    if len(names) > 1 and {*text, *columns.choices} <= {*names}:
        return True
    if len(names) > 1:
        print(
            f"{file}: each line is read as a text, although the first line has tabs; if it is a table, name its text "
            "column with --text",
            file=sys.stderr,
        )
    return False


def _rows_of(
    source: Source, kind: str, columns: Columns, text: tuple[str, ...], more: Sequence[str] = ()
) -> Iterator[Item]:
    """The inputs of a table; `more`: columns whose cells are kept besides. Raises InputError with the row."""
    wanted = (*text, *columns.choices)
    lists, divided_by = (text if kind == "tagging" else ()), int(kind == "span")
    may_be_list = isinstance(source, Records) or ending_of(source) in (".jsonl", ".parquet")
    try:
        for row in read_table(source, wanted, (), more, lists, divided_by=divided_by, form=columns.form):
            cells, values = dict(zip((*wanted, *more), row.values, strict=True)), row.values[: len(wanted)]
            words = None
            if lists and (text == columns.words or (may_be_list and as_list(values[0]) is not None)):
                words = words_of(values[0], columns.characters, location(source, row.line))
                values = [between_words(columns.characters).join(words)]
            yield Item({"line": row.line}, _with_beginning(values, len(text), columns.choices), cells, words)
    except MissingColumn as error:
        how = "in a list" if isinstance(source, Records) else "with a comma between"
        raise InputError(f"{error}; name the text column, or two {how}, with --text") from None


def _with_beginning(values: Sequence[str], texts: int, choices: Sequence[str]) -> Sequence[str]:
    """A text and its choices; a second text, if there is one, begins every choice (tasks/choice.py)."""
    if not choices or texts == 1:
        return values
    return [values[0], *(f"{values[1]} {choice}" for choice in values[2:])]


def read_lines(file: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Every line of a text file with its number, blank ones too; "-" is standard input. Raises InputError."""
    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file}: no such file; give a text itself with --string")
    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as opened:
        for number, line in enumerate(decoded(opened, "standard input" if file == "-" else file, encoding), 1):
            yield number, line.rstrip("\r\n")
