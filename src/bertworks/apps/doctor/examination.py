"""What a path is, and the checks for it: a run, a folder of runs, a corpus store or a model folder."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...checkpoint.folder import load_tokenizer
from ...checkpoint.locate import CONFIG, find_model
from ...data.manifest import MANIFEST, PARTS
from ...data.opening import open_store
from ...files import InputError, not_found
from ...reporting.run_files import LOG, RESULTS, run_folders
from ...reporting.tables import counted
from ...tasks.base import Data, Task
from ...tasks.checks import SEVERITIES, Finding, Severity, check_labelled_data
from ...tasks.kinds import read_rows, with_labels
from ...tasks.selection import TrainRows
from ...training.identity import RECIPE
from ...training.state import STATE_FOLDER
from . import finetuned, folders, machine, pretrained, runs, stores

S = TypeVar("S")
Checks = Iterable[Callable[[S], Iterable[Finding]]]
PRETRAINING = ("pretrain", "distill", "static")  # kinds of results
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json")
EXPECTED = "expected a run, a folder of runs, a corpus store, a model folder or a table"


@dataclass(frozen=True)
class Report:
    """The result of an examination."""

    target: str
    kind: str  # "pre-training run", "corpus store", ...
    findings: list[Finding]  # the gravest first

    @property
    def worst(self) -> Severity | None:
        """The gravest severity; None if there is no finding."""
        return self.findings[0].severity if self.findings else None

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {**vars(self), "worst": self.worst, "findings": [vars(finding) for finding in self.findings]}


def examine(path: Path | str | None = None, corpus: Path | None = None) -> Report:
    """Examine a run, a folder of runs, a corpus store or a model folder; without a path, this machine.

    corpus: the store of a pre-training run, to compute its predictions at [MASK]. Labelled data: `of_data`.
    Raises InputError if there is nothing at `path`, or nothing that is known here.
    """
    if path is None:
        return _report("this machine", "threads, memory, disk", machine.CHECKS, machine.Machine())
    path = Path(path)
    if not os.path.exists(path):
        raise InputError(f"{path}: {not_found(path, 'file or folder')}; {EXPECTED}")
    if not path.is_dir():
        raise InputError(f"{path}: not a folder; {EXPECTED}; tables are examined by `of_data`, and with their columns")
    if (path / MANIFEST).exists() or (path / PARTS).is_dir():
        return of_store(path, thorough=True)
    if any((path / name).exists() for name in (LOG, RESULTS, RECIPE)) or (path / STATE_FOLDER).is_dir():
        return _of_run(path, corpus)
    if (path / CONFIG).exists():
        return _report(path, "model folder", folders.CHECKS, folders.ModelFolder(path))
    if inside := run_folders(path):
        return _of_runs(path, inside, corpus)
    if any((path / name).exists() for name in TOKENIZERS):
        raise InputError(_tokenizer(path))
    raise InputError(f"{path}: {EXPECTED}")


def _tokenizer(path: Path) -> str:
    return f"{path}: a tokenizer; `bertworks tokenizer check {path} TEXT` tells whether it fits a text"


def _report(target: Path | str, kind: str, checks: Checks[S], subject: S) -> Report:
    return Report(str(target), kind, _sorted(_findings_of(checks, subject)))


def _findings_of(checks: Checks[S], subject: S) -> list[Finding]:
    """What checks find. A file that they cannot read is an error."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check(subject)
        except InputError as error:
            findings.append(Finding("files", "error", str(error)))
    return findings


def _sorted(findings: list[Finding]) -> list[Finding]:
    """The gravest first, each once: several checks may read one damaged file."""
    return sorted(dict.fromkeys(findings), key=lambda finding: SEVERITIES.index(finding.severity))


def _of_run(path: Path, corpus: Path | None) -> Report:
    """A run and its model folder; of a summary of several runs, the runs in it."""
    inside = run_folders(path)
    if inside and not (path / LOG).is_file():
        return _of_runs(path, inside, corpus)
    report = _of_one_run(path, corpus)
    if not (path / "model" / CONFIG).exists():
        return report
    of_model = _findings_of(folders.CHECKS, folders.ModelFolder(path / "model"))
    return replace(report, findings=_sorted([*report.findings, *of_model]))


def _of_one_run(path: Path, corpus: Path | None) -> Report:
    """The log and results of a run of either kind."""
    try:
        pretraining = is_pretraining(runs.RunFiles(path))
    except InputError as error:  # damaged results or recipe
        return Report(str(path), "run", [Finding("files", "error", str(error))])
    return of_pretraining(path, corpus) if pretraining else of_finetuning(path)


def is_pretraining(files: runs.RunFiles) -> bool:
    """Whether a run is one of pre-training; of an unfinished one the recipe tells."""
    kind = files.results.get("kind")
    return kind in PRETRAINING or (kind is None and "epochs" not in files.recipe)


def _of_runs(path: Path, inside: list[Path], corpus: Path | None) -> Report:
    """Each run in a folder, and each summary of seeds."""
    findings: list[Finding] = []
    summaries = sorted({folder for run in inside for folder in (path, run.parent) if (folder / RESULTS).is_file()})
    for folder in [*summaries, *inside]:
        if folder in summaries:
            of_run = _findings_of(finetuned.SEED_CHECKS, runs.RunFiles(folder))
        else:
            of_run = _of_one_run(folder, corpus).findings
        where = "" if folder == path else folder.relative_to(path).as_posix()
        findings += [replace(finding, where=where) for finding in of_run]
    return Report(str(path), f"folder of {counted(len(inside), 'run')}", _sorted(findings))


def of_pretraining(run: Path, corpus: Path | None = None) -> Report:
    """The log and results of a pre-training run; with its store also the predictions at [MASK].

    Raises InputError if it was trained on another store.
    """
    files = runs.RunFiles(run)
    store = None if corpus is None else open_store(corpus)
    if store and files.results.get("corpus") not in (None, store.fingerprint):
        raise InputError(f"{corpus} is not the store that {run} was trained on; give that store, or leave it out")
    findings = _findings_of(runs.CHECKS, files) + _findings_of(
        pretrained.CHECKS, pretrained.PretrainingRun(files, store)
    )
    return Report(str(run), "pre-training run", _sorted(findings))


def of_finetuning(run: Path) -> Report:
    """The log, results and predictions of a fine-tuned run, or of a run per seed."""
    files = runs.RunFiles(run)
    if (inside := run_folders(run)) and not (run / LOG).is_file():
        return _of_runs(run, inside, None)
    findings = _findings_of(runs.CHECKS, files) + _findings_of(finetuned.CHECKS, finetuned.FinetunedRun(files))
    return Report(str(run), "fine-tuned run", _sorted(findings))


def of_store(folder: Path, thorough: bool = False) -> Report:
    """A corpus store; `thorough` compares every checksum, else only sizes and headers."""
    try:
        findings = _findings_of(stores.CHECKS, stores.OpenStore(open_store(folder, verify=thorough)))
    except InputError as error:
        findings = [Finding("files", "error", str(error))]
    return Report(str(folder), "corpus store", _sorted(findings))


def of_data(rows: TrainRows, path: Path | None = None, model: Path | None = None) -> Report:
    """Labelled data: tables, or the folder of a built-in task, which may also be `path`.

    model: folder whose vocabulary is checked.
    """
    if path is not None and path.name in TOKENIZERS:
        raise InputError(_tokenizer(path))
    target = path or rows.train or rows.data
    try:
        task, data = _read(rows, path)
    except InputError as error:
        return Report(str(target), "labelled data", [Finding("files", "error", str(error))])
    tokenizer = None if model is None else load_tokenizer(find_model(model))
    findings = check_labelled_data(task, data.train, data.dev, tokenizer)
    kind = f"{len(data.train):,} training and {len(data.dev):,} development examples"
    return Report(str(target), kind, _sorted(findings))


def _read(rows: TrainRows, path: Path | None) -> tuple[Task, Data]:
    """The examples of a built-in task, of two tables, or of a training table alone. Raises InputError as finetuning."""
    if rows.task:
        return replace(rows, data=rows.data or path).read_data()
    rows = replace(rows, train=rows.train or path)
    if rows.dev is not None:
        return rows.read_data()
    task, [table, _] = replace(rows, dev=rows.train).find()
    examples = read_rows(task, table, name="train")
    return with_labels(task, examples), Data(examples, [], str(table))
