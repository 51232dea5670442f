"""GLUE's leaderboard: what finished runs answer to the official test files, as the zip file that it takes.

Each file of the zip begins with index<TAB>prediction and has a row for each of the test file, with the index it has
there. Labels are written as in the training files, the numbers of STS-B from 0 to 5. Inputs are cut as in fine-tuning.

The leaderboard wants all eleven files. For what has no run the class that is most frequent in training can stand: WNLI
is usually answered so, the paper left it out (section 4.1).
"""

import statistics
import sys
import zipfile
from collections import Counter
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
from ..tasks.base import Example, Task
from ..tasks.catalogue import TASKS
from ..tasks.classification import named_labels, predictions, prepare
from ..tasks.kinds import read_rows
from ..tasks.table import read_table


class Entry(NamedTuple):
    """A file of the zip."""

    name: str
    task: str  # whose run answers it
    folder: str  # of that task in the folder of GLUE
    test: tuple[str, ...]  # where the test file may be in the folder of GLUE


ENTRIES = (
    Entry("CoLA.tsv", "cola", "CoLA", ("CoLA/test.tsv",)),
    Entry("SST-2.tsv", "sst2", "SST-2", ("SST-2/test.tsv",)),
    Entry("MRPC.tsv", "mrpc", "MRPC", ("MRPC/test.tsv",)),
    Entry("STS-B.tsv", "stsb", "STS-B", ("STS-B/test.tsv",)),
    Entry("QQP.tsv", "qqp", "QQP", ("QQP/test.tsv",)),
    Entry("MNLI-m.tsv", "mnli", "MNLI", ("MNLI/test_matched.tsv",)),
    Entry("MNLI-mm.tsv", "mnli", "MNLI", ("MNLI/test_mismatched.tsv",)),
    Entry("AX.tsv", "mnli", "MNLI", ("AX/diagnostic.tsv", "diagnostic/diagnostic.tsv", "MNLI/diagnostic.tsv")),
    Entry("QNLI.tsv", "qnli", "QNLI", ("QNLI/test.tsv",)),
    Entry("RTE.tsv", "rte", "RTE", ("RTE/test.tsv",)),
    Entry("WNLI.tsv", "wnli", "WNLI", ("WNLI/test.tsv",)),
)
INDEX = ("index", "id")  # how the test files call it; QQP's has the other name


def submit(
    runs: Sequence[Path | str], data: Path | str, out: Path | str, fill: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Answer the test files under `data` with finished GLUE runs, and write the zip.

    fill: answer test files without a run by the majority class of their training file. Returned: `files` (for each in
    the zip its `rows`, how many were `cut`, what they are `from`) and `missing` (for each that is not, why). Raises
    InputError for a run on no task of GLUE, two runs on one, a damaged test file, or if there is nothing to write.
    """
    data = Path(data)
    check_output(out, [data / name for entry in ENTRIES for name in entry.test], runs)
    folders = find_runs(runs)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; expected the one with CoLA, SST-2, MRPC, ...")
    loaded: dict[str, LoadedModel] = {}
    texts: dict[str, str] = {}
    files: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for entry in ENTRIES:
        test = next((data / name for name in entry.test if (data / name).is_file()), None)
        if test is None:
            missing[entry.name] = f"no test file {' or '.join(str(data / name) for name in entry.test)}"
        elif entry.task in folders:
            if entry.task not in loaded:
                loaded = {entry.task: _load(folders[entry.task], TASKS[entry.task])}  # one model at a time
            texts[entry.name], files[entry.name] = answer(loaded[entry.task], TASKS[entry.task], test)
        elif fill:
            texts[entry.name], files[entry.name] = guess(TASKS[entry.task], data / entry.folder, test)
        else:
            missing[entry.name] = f"no run on {entry.task} was given"
        if not quiet and entry.name in files:
            print(f"{entry.name}: {files[entry.name]['rows']:,} rows from {files[entry.name]['from']}", file=sys.stderr)
    if not texts:
        raise InputError("nothing to write: " + "; ".join(f"{name}: {why}" for name, why in missing.items()))
    _write(Path(out), texts)
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


def answer(loaded: LoadedModel, task: Task, test: Path) -> tuple[str, dict[str, Any]]:
    """The file for the leaderboard as text, and facts about it."""
    rows, indices = _read(task, test)
    task = replace(task, labels=loaded.labels, written=())
    inputs = prepare(loaded.tokenizer, rows, task, loaded.limits).inputs
    predicted = named_labels(predictions(loaded.scores(inputs), task), task)
    facts = {"rows": len(rows), "cut": inputs.truncation()["examples"], "from": str(loaded.folder)}
    return _text(task.name, indices, predicted), facts


def guess(task: Task, folder: Path, test: Path) -> tuple[str, dict[str, Any]]:
    """The same with one answer everywhere: the most frequent label of the training file, of a regression the mean."""
    rows, indices = _read(task, test)
    labels = [row.label for row in read_rows(task, folder / task.train)]
    predicted = (
        statistics.fmean(map(float, labels)) if task.kind == "regression" else Counter(labels).most_common(1)[0][0]
    )
    shown = f"{predicted:.3f}" if task.kind == "regression" else predicted
    facts = {"rows": len(rows), "cut": 0, "from": f"the training file alone: {shown} everywhere"}
    return _text(task.name, indices, [predicted] * len(rows)), facts


def _read(task: Task, test: Path) -> tuple[Sequence[Example], list[str]]:
    """The rows of a test file and their indices. Raises InputError with file and line."""
    rows = read_rows(replace(task, header=()), test, labelled=False)
    form = task.form._replace(unquoted=True)
    cells = [row.values for row in read_table(test, (), optional=INDEX, form=form._replace(joined=bool(task.labels)))]
    indices = [first or second for first, second in cells]
    if not all(indices):
        raise InputError(f"{test}, line {rows[indices.index('')].line}: no {' or '.join(INDEX)}; expected one a row")
    return rows, indices


def _text(name: str, indices: Sequence[str], predicted: Sequence[Any]) -> str:
    """index<TAB>prediction, a line each."""
    task = TASKS[name]
    if task.kind == "regression":
        cells = [f"{min(max(value, 0.0), 5.0):.3f}" for value in predicted]
    else:
        written = dict(zip(task.labels, task.written or task.labels, strict=True))
        cells = [written[label] for label in predicted]
    lines = (f"{index}\t{cell}\n" for index, cell in zip(indices, cells, strict=True))
    return "index\tprediction\n" + "".join(lines)


def _write(out: Path, texts: dict[str, str]) -> None:
    """The zip file, the same bytes for the same predictions."""
    with atomic_write(out) as file, zipfile.ZipFile(file, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
