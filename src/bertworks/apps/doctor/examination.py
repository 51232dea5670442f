"""What a path is, and the checks for it: a run, a folder of runs, a store, a model folder, a table, a task's data.

The verbs that end a run use the shorter examinations: `of_pretraining`, `of_finetuning`, `of_store`, `of_rows`.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...checkpoint.folder import load_tokenizer
from ...checkpoint.locate import CONFIG, find_model
from ...checkpoint.metadata import input_length
from ...data.manifest import MANIFEST, PARTS
from ...files import InputError, not_found
from ...finetuning.recipe import FinetuneConfig
from ...reporting.run_files import LOG, RESULTS
from ...reporting.tables import counted
from ...tasks.base import Data, Task
from ...tasks.kinds import OWN_TABLE, load_data
from ...tasks.table import TABLES, part_of
from ...tokenizer import Tokenizer
from ...training.identity import RECIPE
from ...training.run import STATE_FOLDER, SUMMARIES
from . import finetuned, folders, logs, machine, pretrained, row_checks, rows, several, stores, tables
from .findings import Finding, NotChecked, Report
from .fixes import clean, copy_of_table, is_copied, leftovers, mend_folder
from .tables import Columns

DEMO = "demo.toml"  # settings in the folder of a demo
PRETRAINING = {"pretrain", "distill", "static"}  # kinds of results


@dataclass(frozen=True)
class Given:
    """What is known besides the path."""

    corpus: Path | None = None  # store of a pre-training run
    model: Path | None = None  # model whose tokenizer reads the rows
    task: Task | None = None  # known task: the path is the folder of its files
    data: Data | None = None  # the task's rows: those of a fine-tuned run, or what is examined
    dev: Path | None = None  # second table
    columns: Columns = field(default_factory=lambda: Columns((), ""))
    max_seq_length: int = 0  # tokens of an input; 0: the model's or the task's

    def refuse_idle(self, what: str) -> None:
        """Raises InputError for what would have no effect on the examination of `what`, one of READ."""
        columns = self.columns
        flags: dict[str, dict[str, Any]] = {
            "corpus": {"--corpus": self.corpus},
            "model": {"--model": self.model},
            "rows": {"--train" if self.task and self.task.name == OWN_TABLE else "--task": self.task},
            "dev": {"--dev": self.dev},
            "columns": {
                "--text": () if columns.text == ("text",) else columns.text,  # the default of the flag
                "--label": columns.label,
                "--kind": columns.kind,
                "--choices": columns.choices,
            },
            "max_seq_length": {"--max-seq-length": self.max_seq_length},
        }
        unread = [given for name, given in flags.items() if name not in READ[what]]
        if idle := [flag for given in unread for flag, value in given.items() if value]:
            raise InputError(f"{what} is examined without {' and '.join(idle)}; leave {' and '.join(idle)} out")


READ: dict[str, tuple[str, ...]] = {
    "a demo": (),
    "a corpus store": (),
    "a model folder": (),
    "a pre-training run": ("corpus",),
    "a folder of runs": ("corpus",),
    "a fine-tuned run": ("rows", "model", "max_seq_length"),
    "a table": ("dev", "columns", "model", "max_seq_length"),
    "a task's data": ("rows", "model", "max_seq_length"),
}
"""What may be given besides the path, by what is examined."""


def examine(path: Path | str | None = None, given: Given | None = None, fix: bool = False) -> Report:
    """Examine what is at `path`; without a path the rows that are given, or the machine.

    fix: also mend what is safe to mend (fixes.py); the report says what was done, and its findings are those before.
    Raises InputError if there is nothing at `path`, or nothing that is known here.
    """
    given = given or Given()
    if path is None and given.task is not None and given.data is not None:
        given.refuse_idle("a task's data")
        return of_rows(given.task, given.data, given.model, given.max_seq_length or _length(given.task))
    if path is None:
        report = Report("this machine", "machine")
        report.examine(machine.CHECKS, machine.Machine())
        return report
    if not isinstance(path, str | Path):
        raise InputError(f"path is a {type(path).__name__}; expected the path of a run, a store, a model folder or a "
                         "table; save rows that are in memory to a file first: frame.to_csv('rows.csv')")  # fmt: skip
    path = Path(path)
    if given.task is not None and given.data is None:
        return _data_folder(path, given)
    for one in (path, given.dev):
        if one is not None:
            _refuse_special(part_of(one)[0])
    if not os.path.exists(part_of(path)[0]):
        found = not_found(path, "file or folder")
        raise InputError(f"{path}: {found}; expected a run, a store, a model folder or a table")
    if not path.is_dir():
        return _table(path, given, fix)
    report = _folder(path, given, fix)
    report.examine({"leftovers": leftovers}, path)
    if fix:
        clean(path, report)
    return report


def _refuse_special(path: Path) -> None:
    """Raises InputError for a pipe or a device, which may block for ever and cannot be read twice."""
    if os.path.exists(path) and not (path.is_file() or path.is_dir()):  # no error for a name that is too long
        raise InputError(f"{path}: a pipe or a device; expected a file or a folder; save the rows to a file first")


def _folder(path: Path, given: Given, fix: bool) -> Report:
    if (path / DEMO).is_file():
        given.refuse_idle("a demo")
        report = Report(str(path), "demo")
        report.examine({"parts": several.parts_of_demo}, path)
        return report
    if (path / MANIFEST).exists() or (path / PARTS).is_dir():
        given.refuse_idle("a corpus store")
        return of_store(path, thorough=True)
    if any((path / name).exists() for name in (LOG, RESULTS, RECIPE)) or (path / STATE_FOLDER).is_dir():
        return _run(path, given, fix)
    if (path / CONFIG).exists():
        given.refuse_idle("a model folder")
        report = Report(str(path), "model folder")
        _model(path, report, fix)
        return report
    if several.runs_inside(path):
        return _runs(path, given)
    raise InputError(
        f"{path}: neither a run, a corpus store, a model folder nor a folder of runs; give one of them, or a table"
    )


def _model(folder: Path, report: Report, fix: bool) -> None:
    found = folders.ModelFolder(folder)
    report.examine(folders.CHECKS, found)
    if fix:
        mend_folder(found, report)


def _run(path: Path, given: Given, fix: bool) -> Report:
    files = logs.RunFiles(path)
    try:
        several_runs = _is_folder_of_runs(files)
    except InputError as error:
        report = _damaged(files, error)
        if (path / "model" / CONFIG).exists():
            _model(path / "model", report, fix)
        return report
    if several_runs:
        return _runs(path, given)
    if is_pretraining(files):
        given.refuse_idle("a pre-training run")
        report = of_pretraining(path, given.corpus, thorough=True)
    else:
        given.refuse_idle("a fine-tuned run")
        known = None if given.data is None or given.task is None else rows.Rows.of(given.task, given.data)
        report = of_finetuning(path)
        try:
            known = known or finetuned.rows_of_run(files, given.columns.form)
            report.examine(row_checks.CHECKS, _with_reader(known, given.model or path, given.max_seq_length))
            _once(report)
        except NotChecked as reason:
            report.skipped["rows"] = str(reason)
    if (path / "model" / CONFIG).exists():
        _model(path / "model", report, fix)
    return report


def _once(report: Report) -> None:
    """Leave out that training rows are too long, where the run says how many it cut; its advice names a length."""
    advice = next((one.advice for one in report.findings if one.check == "length"), "")
    if advice and any(one.check == "cut texts" for one in report.findings):
        kept = [one for one in report.findings if one.check != "length"]
        report.findings = [replace(one, advice=advice) if one.check == "cut texts" else one for one in kept]


def _damaged(files: logs.RunFiles, error: InputError) -> Report:
    """What is left to examine of a run whose results cannot be read: they say what kind of run it is."""
    report = Report(str(files.folder), "run")
    report.examine({"results": _refusing(error)}, files)
    report.examine(logs.CHECKS, files)
    return report


def _with_reader(known: rows.Rows, model: Path, max_seq_length: int) -> rows.Rows:
    """The rows with the tokenizer of the model that read them; without one if it is damaged, a finding of its own."""
    with suppress(InputError):
        tokenizer, length = _reader(model, max_seq_length)
        return replace(known, tokenizer=tokenizer, max_seq_length=length)
    return known


def _is_folder_of_runs(files: logs.RunFiles) -> bool:
    """Whether results.json summarises several runs. A damaged one does if there are runs inside, and no log beside it.

    Raises InputError if it is damaged and belongs to one run.
    """
    try:
        return bool(files.results.keys() & SUMMARIES) and not files.records
    except InputError:
        if (files.folder / LOG).exists() or not several.runs_inside(files.folder):
            raise
        return True


def is_pretraining(files: logs.RunFiles) -> bool:
    """Whether a run is one of pre-training; of an unfinished one the recipe tells."""
    kind = files.results.get("kind")
    return kind in PRETRAINING or (kind is None and "epochs" not in files.recipe)


def _runs(path: Path, given: Given) -> Report:
    """A folder of runs: what is found in several of them is listed once. A run that cannot be read is an error."""
    given.refuse_idle("a folder of runs")
    runs = several.runs_inside(path)
    report = Report(str(path), f"folder of {counted(len(runs), 'run')}")
    whole = logs.RunFiles(path)
    if (path / RESULTS).is_file():
        report.examine(several.SEED_CHECKS, whole)
    names = [run.relative_to(path).as_posix() for run in runs]
    found: list[Finding] = []
    for run, where in zip(runs, names, strict=True):
        files = logs.RunFiles(run)
        try:
            one = of_pretraining(run, given.corpus) if is_pretraining(files) else of_finetuning(run)
        except InputError as error:
            found.append(Finding("error", str(error), check="results", where=where))
            continue
        found += [replace(finding, where=where) for finding in one.findings]
        if not is_pretraining(files):
            report.skipped.setdefault("rows", f"examine a single run to check its rows: bertworks doctor {run}")
        report.checked += [name for name in one.checked if name not in report.checked]
        report.skipped |= one.skipped
    report.findings += several.merged(found, names)
    if report.skipped.get("updates") == finetuned.IN_SCORE and "updates" not in {one.check for one in report.findings}:
        report.checked = [name for name in report.checked if name != "updates"]
    groups = {group.relative_to(path).as_posix(): group for group in several.groups_of(path, runs)}
    spread = Report(str(path), "")
    for where, group in groups.items():
        spread.examine(several.SEED_CHECKS, logs.RunFiles(group), where)
    report.findings += several.merged(spread.findings, [*groups], "folders of seeds")
    report.checked += [name for name in spread.checked if name not in report.checked]
    report.skipped = {name: why for name, why in report.skipped.items() if name not in report.checked}
    return report


def of_pretraining(run: Path, corpus: Path | None = None, thorough: bool = False) -> Report:
    """The log, results and predictions of a pre-training run; with its store also what the model says at [MASK].

    thorough: compare the store's checksums first, which a run that has just ended has done.
    """
    files, report = logs.RunFiles(run), Report(str(run), "pre-training run")
    report.examine(logs.CHECKS, files)
    store = None if corpus is None else stores.open_store(report, corpus, thorough)
    report.examine(pretrained.CHECKS, pretrained.PretrainingRun(files, store))
    return report


def of_finetuning(run: Path) -> Report:
    """The log, results and predictions of a fine-tuned run, of its seeds, or of a folder of runs."""
    files = logs.RunFiles(run)
    if _is_folder_of_runs(files):
        return _runs(run, Given())
    report = Report(str(run), "fine-tuned run")
    report.examine(logs.CHECKS, files)
    report.examine(finetuned.CHECKS, finetuned.FinetunedRun(files))
    return report


def of_store(folder: Path, thorough: bool = False) -> Report:
    """A corpus store; `thorough` compares every checksum."""
    report = Report(str(folder), "corpus store")
    store = stores.open_store(report, folder, thorough)
    if store is not None:
        report.examine(stores.CHECKS, stores.OpenStore(store))
    return report


def of_rows(task: Task, data: Data, model: Path | None = None, max_seq_length: int = 0) -> Report:
    """The rows that a fine-tuning run is about to read."""
    report = Report(task.name, "rows")
    report.examine(row_checks.CHECKS, rows.Rows.of(task, data, *_reader(model, max_seq_length)))
    return report


def _reader(model: Path | None, max_seq_length: int) -> tuple[Tokenizer | None, int]:
    """The tokenizer of a model, and how long its inputs may be."""
    if model is None:
        return None, max_seq_length
    return load_tokenizer(model), max_seq_length or input_length(find_model(model), FinetuneConfig().max_seq_length)


def _data_folder(path: Path, given: Given) -> Report:
    assert given.task is not None
    given.refuse_idle("a task's data")
    length = given.max_seq_length or _length(given.task)
    report = of_rows(given.task, load_data(given.task, path), given.model, length)
    report.target, report.kind = str(path), f"rows of {given.task.name}"
    return report


def _length(task: Task) -> int:
    """How long the inputs of a task are by default, in tokens."""
    return FinetuneConfig.for_task(task).max_seq_length


def _table(path: Path, given: Given, fix: bool) -> Report:
    given.refuse_idle("a table")
    if tables.is_lines(path, given.columns):
        if path.name == "vocab.txt":
            raise InputError(f"{path}: a vocabulary; expected a table; `bertworks tokenizer check --uncased` (or "
                             "--cased) tells whether it fits a text")  # fmt: skip
        raise InputError(f"{path}: lines of text, without columns; expected a table; name a column with --text if its "
                         "first line has a name. `predict` and `corpus build` read the file as it is")  # fmt: skip
    report, opened = Report(str(path), "table"), list[tables.Table]()

    def reading(path: Path) -> Iterable[Finding]:
        if not tables.is_table(path):
            raise InputError(f"{path}: expected a table ({', '.join(TABLES)} or .txt) or a folder")
        if separated := [*tables.separated_otherwise(path, given.columns)]:
            return separated
        columns = tables.find_columns(path, given.columns)
        table = tables.Table(path, columns, given.dev, *_reader(given.model, given.max_seq_length))
        report.kind = f"table, {columns}"
        if not table.cells:
            return [Finding("error", "no rows", "look whether the file was written whole")]
        opened.append(table)
        return ()

    report.examine({"reading": reading}, path)
    sound = not report.findings
    if sound:
        tables.check_columns(path, opened[0].columns)
    for checks, subject in _table_checks(opened[0]) if sound else ():
        report.examine(checks, subject)
    if fix and sound:
        copy_of_table(opened[0], report)
    if fix or not is_copied(path):  # advice that was followed, or cannot be
        said = row_checks.COPIES
        report.findings = [replace(one, advice=one.advice.removesuffix(said)) for one in report.findings]
    return report


def _table_checks(table: tables.Table) -> Iterable[tuple[dict[str, Callable[..., Iterable[Finding]]], Any]]:
    """The checks of a table, then those of its rows, if they can be read as the task has them."""
    yield tables.CHECKS, table
    try:
        yield row_checks.CHECKS, table.rows
    except InputError as error:
        yield {"rows": _refusing(error)}, table


def _refusing(error: InputError) -> Callable[..., Iterable[Finding]]:
    """A check that finds what reading raised."""

    def check(_: Any) -> Iterable[Finding]:
        raise error

    return check
