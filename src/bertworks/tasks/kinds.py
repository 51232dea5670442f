"""The kinds of tasks by name, and the reading of a task's data, whatever its kind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import InputError, not_found
from ..tokenizer import normalize
from .base import OWN_TABLE as OWN_TABLE
from .base import Data, KindName, Task, TaskType
from .choice import CHOICE
from .classification import MULTILABEL, PAIR, REGRESSION, SINGLE
from .embedding import EMBEDDING, POSITIVE, scale_of
from .labels import plain_value
from .records import as_sequence, described, source_of
from .rows import checked_rows
from .sampling import Split, draw_rows, rows_in_part, split_rows
from .span import SPAN
from .table import MissingColumn, part_of, read_table
from .tagging import TAGGING, scheme_of

KINDS: dict[str, TaskType] = {
    "single": SINGLE,
    "pair": PAIR,
    "regression": REGRESSION,
    "multilabel": MULTILABEL,
    "choice": CHOICE,
    "tagging": TAGGING,
    "span": SPAN,
    "embedding": EMBEDDING,
}


def kind_of(task: Task) -> TaskType:
    """The task's kind. Raises InputError if it does not know one of the task's metrics."""
    kind = KINDS[task.kind]
    if unknown := [name for name in task.metrics if name not in kind.metrics]:
        raise InputError(f"{task.name}: metric {unknown[0]!r}; expected some of {', '.join(kind.metrics)}")
    return kind


def with_labels(task: Task, rows: Sequence[Any]) -> Task:
    """The task with the names of its labels and the scale of its scores, its own or those of training rows.

    Raises InputError if there are too few labels, or if two are the same but for their Unicode form.
    """
    kind = KINDS[task.kind]
    labels = kind.labels(task, rows)
    spellings: dict[str, str] = {}
    for label in labels:
        if (other := spellings.setdefault(plain_value(normalize("NFC", label)), label)) != label:
            spelled = f"labels {other!a} and {label!a} are one value in two spellings"
            raise InputError(f"{task.name}: {spelled}; expected one of them; rewrite the label column")
    least = 1 if task.kind in ("regression", "multilabel") else 2
    if kind.head in ("classifier", "tagger") and len(labels) < least:
        names = ", ".join(map(repr, labels)) or "none"
        raise InputError(f"{task.name}: labels of the training rows: {names}; expected {least} or more")
    if task.kind == "tagging" and not scheme_of(labels, task.name).entities:
        task = replace(task, metrics=("accuracy",))
    scale = scale_of(task, rows) if task.kind == "embedding" and task.label else task.scale
    return replace(task, labels=labels, scale=scale)


def load_data(task: Task, folder: Path | str) -> Data:
    """Training and development rows of a task from its folder. Raises InputError with file and line."""
    folder = Path(folder)
    if not task.train:
        raise InputError(f"{task.name} has only {task.test}, without labels; to answer it: bertworks predict")
    if not folder.is_dir():
        reason = not_found(folder, "folder")
        raise InputError(f"{folder}: {reason}; {task.name} needs the folder with {task.train} and {task.dev}")
    train, dev = (read_rows(task, folder / name) for name in (task.train, task.dev))
    more = {name: read_rows(task, folder / file) for name, file in task.more.items() if (folder / file).exists()}
    return Data(train, dev, str(folder), more)


def read_rows(task: Task, data: Any, labelled: bool = True, name: str = "rows") -> Sequence[Any]:
    """The rows of a task, as its kind makes them.

    data: a file's path, a pandas or polars DataFrame, a datasets.Dataset, a list of dictionaries (records.py), or rows
    that are made already. name: of the argument, for messages. Raises InputError with file and line, or with the row.
    """
    data = as_sequence(data)
    source = source_of(data, name, (*task.text, *task.choices))
    if source is None:
        return checked_rows(data, name)
    task = replace(task, form=task.form._replace(official=bool(task.dataset)))
    source, part = part_of(source) if isinstance(source, Path) else (source, "")
    try:
        rows = rows_in_part(KINDS[task.kind].read(task, source, labelled), part)
    except MissingColumn as error:
        official = f"expected a file in the form of {task.name}'s official ones"
        advice = "give the names of its columns as text and label" if task.name == OWN_TABLE else official
        raise MissingColumn(f"{error}; {advice}") from None
    if not rows:
        raise InputError(f"{source}: no rows in {f'the part #{part}' if part else 'this file'}")
    return rows


def own_table(task: Task, train: Any, dev: Any) -> tuple[Task, Data]:
    """A task of one's own: two tables of any form that `read_rows` takes. The labels are those of the training rows.

    Raises InputError with file and line, also for a label that only the development rows have.
    """
    train, dev = as_sequence(train), as_sequence(dev)
    rows, names = read_rows(task, train, name="train"), (described(train), described(dev))
    task = replace(with_labels(task, rows), train=names[0], dev=names[1])
    return task, Data(rows, read_rows(task, dev, name="dev"), ", ".join(names))


def split_data(task: Task, files: Sequence[Any], split: Split) -> tuple[Task, Data]:
    """A task and its rows, as `split` says: of one's own table or tables, or of the folder of a built-in task.

    Labels are those of the whole training file. Raises InputError with file and line, and if nothing can be divided.
    """
    if task.name != OWN_TABLE:
        data = load_data(task, *files)
    elif not split.dev_share:
        task, data = own_table(task, *files)
    else:
        (table,) = files
        table = as_sequence(table)
        rows, name, groups = read_rows(task, table, name="train"), described(table), None
        task = replace(with_labels(task, rows), train=name, dev=name)
        if split.group:
            source = source_of(table, "train")
            if source is None:
                raise InputError("group needs a table; rows that are made already have no columns; divide them first")
            whole = part_of(source)[0] if isinstance(source, Path) else source  # #train is decided by the texts alone
            table_rows = read_table(whole, [split.group], form=task.form)
            groups = {row.line: row.values[0] for row in table_rows}
        train, dev = split_rows(rows, split.dev_share, split.seed, groups)
        both = {getattr(row, "document", None) for row in train} & {getattr(row, "document", None) for row in dev}
        note = "; too few documents to divide, so sentences of one are in both parts" if both - {None} else ""
        data = Data(train, dev, f"{name}, {split.dev_share:g} of it to develop on, seed {split.seed}{note}")
    return task, replace(data, train=draw_rows(data.train, split.train_rows, split.seed))


def own_task(kind: KindName | str, text: tuple[str, ...], label: str, choices: tuple[str, ...] = ()) -> Task:
    """The task of a table of one's own, with the metrics of its kind; kind "": single or pair, by the columns.

    Raises InputError if kind and columns do not fit.
    """
    kind = kind or ("single", "pair")[min(len(text), 2) - 1]
    if kind not in KINDS:
        raise InputError(f"kind {kind!r}; expected one of {', '.join(KINDS)}")
    labels = tuple(label.split(",")) if kind == "multilabel" and "," in label else ()  # a column of 0 and 1 for each
    metrics = KINDS[kind].metrics[:2] if kind != "embedding" or label else POSITIVE
    return Task(OWN_TABLE, text, label, kind, labels, metrics=metrics, choices=choices)  # type: ignore[arg-type]
