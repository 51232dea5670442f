"""GLUE's leaderboard: predictions of finished runs for the official test files, as the zip file that it takes.

Each file of the zip begins with index<TAB>prediction and has a row for each row of the test file, with its index.
Labels are written as in the training files, the numbers of STS-B from 0 to 5. Inputs are truncated as in fine-tuning.
"""

import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..checkpoint.folder import find_model, read_config
from ..checkpoint.metadata import TASK
from ..checkpoint.names import LABELS, listed
from ..files import InputError, atomic_write
from ..inference.model import LoadedModel
from ..reporting.outputs import check_output
from ..tasks.base import Task
from ..tasks.catalogue import TASKS
from ..tasks.classification import named_labels, predictions, prepare
from ..tasks.kinds import read_rows
from ..tasks.table import read_table


class Entry(NamedTuple):
    """A file of the zip."""

    name: str
    task: str  # whose run predicts it
    test: str  # the test file in the folder of GLUE


ENTRIES = (
    Entry("CoLA.tsv", "cola", "CoLA/test.tsv"),
    Entry("SST-2.tsv", "sst2", "SST-2/test.tsv"),
    Entry("MRPC.tsv", "mrpc", "MRPC/test.tsv"),
    Entry("STS-B.tsv", "stsb", "STS-B/test.tsv"),
    Entry("QQP.tsv", "qqp", "QQP/test.tsv"),
    Entry("MNLI-m.tsv", "mnli", "MNLI/test_matched.tsv"),
    Entry("MNLI-mm.tsv", "mnli", "MNLI/test_mismatched.tsv"),
    Entry("AX.tsv", "mnli", "AX/diagnostic.tsv"),
    Entry("QNLI.tsv", "qnli", "QNLI/test.tsv"),
    Entry("RTE.tsv", "rte", "RTE/test.tsv"),
    Entry("WNLI.tsv", "wnli", "WNLI/test.tsv"),
)
INDEX = ("index", "id")  # its column in the test files; QQP's has the other name


def submit(runs: Sequence[Path | str], data: Path | str, out: Path | str, quiet: bool = False) -> dict[str, Any]:
    """Predict the test files under `data` with finished GLUE runs, and write the zip.

    Returned: `files` (for each in the zip its `rows` and how many were `cut`) and `missing` (for each that is not,
    why). Raises InputError for a run on no task of GLUE, two runs on one, a damaged test file, or if there is nothing
    to write.
    """
    data = Path(data)
    check_output(out, [data / entry.test for entry in ENTRIES], runs)
    folders, loaded = find_runs(runs), dict[str, LoadedModel]()
    texts, files, missing = dict[str, str](), dict[str, dict[str, int]](), dict[str, str]()
    for entry in ENTRIES:
        if not (data / entry.test).is_file():
            missing[entry.name] = f"no test file {data / entry.test}"
        elif entry.task not in folders:
            missing[entry.name] = f"no run on {entry.task} was given"
        else:
            if entry.task not in loaded:
                loaded = {entry.task: _load(folders[entry.task], TASKS[entry.task])}  # one model at a time
            texts[entry.name], files[entry.name] = _predicted(loaded[entry.task], TASKS[entry.task], data / entry.test)
            if not quiet:
                print(f"{entry.name}: {files[entry.name]['rows']:,} rows", file=sys.stderr)
    if not texts:
        raise InputError("nothing to write: " + "; ".join(f"{name}: {why}" for name, why in missing.items()))
    with atomic_write(Path(out)) as file, zipfile.ZipFile(file, "w") as archive:
        for name, text in texts.items():  # without dates: the same bytes for the same predictions
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return {"files": files, "missing": missing}


def find_runs(runs: Sequence[Path | str]) -> dict[str, Path]:
    """The runs by the name of their task, which their model folder holds. Raises InputError as `submit` does."""
    found: dict[str, Path] = {}
    wanted = sorted({entry.task for entry in ENTRIES})
    for run in map(Path, runs):
        name = (read_config(find_model(run))[1].get(TASK) or {}).get("name")
        if name not in wanted:
            raise InputError(f"{run} is fine-tuned on {name or 'no task'}; expected one of {', '.join(wanted)}")
        if name in found:
            raise InputError(f"{found[name]} and {run} are both runs on {name}; give one of them")
        found[name] = run
    return found


def _load(run: Path, task: Task) -> LoadedModel:
    loaded = LoadedModel.load(run)
    loaded.check_kind(task.kind)
    if task.kind != "regression" and set(loaded.labels) != set(task.labels):
        raise InputError(
            f"{run} knows the labels {listed(loaded.labels, LABELS)}; expected {', '.join(task.labels)}: fine-tune it "
            f"on the official files with --task {task.name}"
        )
    return loaded


def _predicted(loaded: LoadedModel, task: Task, test: Path) -> tuple[str, dict[str, int]]:
    """The file for the leaderboard as text, and its numbers of rows and of truncated rows."""
    rows = read_rows(replace(task, header=()), test, labelled=False)
    form = task.form._replace(unquoted=True, joined=bool(task.labels))
    cells = [row.values for row in read_table(test, (), optional=INDEX, form=form)]
    indices = [first or second for first, second in cells]
    if not all(indices):
        raise InputError(f"{test}, line {rows[indices.index('')].line}: no {' or '.join(INDEX)}; expected one per row")
    known = replace(task, labels=loaded.labels, written=())
    inputs = prepare(loaded.tokenizer, rows, known, loaded.limits).inputs
    predicted = named_labels(predictions(loaded.scores(inputs), known), known)
    if task.kind == "regression":
        answers = [f"{min(max(value, 0.0), 5.0):.3f}" for value in predicted]
    else:
        written = dict(zip(task.labels, task.written or task.labels, strict=True))
        answers = [written[label] for label in predicted]
    lines = (f"{index}\t{answer}\n" for index, answer in zip(indices, answers, strict=True))
    return "index\tprediction\n" + "".join(lines), {"rows": len(rows), "cut": inputs.truncation()["examples"]}
