"""`bertworks doctor`: what experts look at, and what the verbs that end a run print of it."""

import json as json_text
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import InputError
from ..tasks.selection import comma_separated, refuse_beside
from .arguments import Flat, Positional, TrainRows, parse
from .ending import FAILED, UNSOUND

if TYPE_CHECKING:
    from ..apps.doctor.examination import Given
    from ..apps.doctor.findings import Report


@dataclass(frozen=True)
class Arguments:
    """Examine a run, a corpus store, a model folder, a table or the machine.

    Every finding has its evidence and advice. Exit status 4: there are errors.

    Example:
        bertworks doctor
        bertworks doctor runs/first --corpus store
        bertworks doctor topics/train.csv --dev topics/dev.csv --label topic
        bertworks doctor glue/MRPC --task mrpc --model runs/first
    """

    path: Positional[Path | None] = None  # run folder, folder of runs, store, model folder or table; none: the machine
    corpus: Path | None = None  # corpus store of a pre-training run, to measure its predictions at [MASK]
    model: Path | None = None  # model folder whose tokenizer shall read the rows: their length and unknown words
    rows: Flat[TrainRows] = field(default_factory=TrainRows)
    max_seq_length: int = 0  # tokens that an input may have; 0: as many as the model's or the task's inputs
    fix: bool = False  # mend what is safe: leftovers, vocab.txt, a missing card; a copy of a table without duplicates
    json: bool = False  # print the report as JSON
    strict: bool = False  # exit with status 1 if there are warnings


def doctor(argv: list[str]) -> None:
    """Examine, print the report, and exit with 4 for errors, 1 for warnings with --strict."""
    arguments = parse(Arguments, argv, "doctor")
    from ..apps.doctor.examination import examine
    from ..apps.doctor.listing import show
    from ..tasks.selection import refuse_idle_sheet

    rows = arguments.rows
    if rows.data is None:
        refuse_idle_sheet(rows.sheet, [arguments.path, rows.train, rows.dev])
    report = examine(arguments.path, _given(arguments), arguments.fix)
    if arguments.json:
        print(json_text.dumps(report.as_json(), ensure_ascii=False, indent=1))
    else:
        show(report, arguments.fix)
    if report.worst == "error":
        raise SystemExit(UNSOUND)
    if report.worst == "warning" and arguments.strict:
        raise SystemExit(FAILED)


def _given(arguments: Arguments) -> "Given":
    """What the flags say besides the path."""
    from ..apps.doctor.examination import Given
    from ..apps.doctor.tables import Columns
    from ..data.encodings import codec_of
    from ..tasks.table import TableForm

    rows = arguments.rows
    texts, choices = comma_separated(rows.text), comma_separated(rows.choices)
    form = TableForm(codec_of(rows.encoding), rows.sheet)
    columns = Columns(texts, rows.label, rows.kind or "", choices, form=form)
    given = Given(arguments.corpus, arguments.model, None, None, rows.dev, columns, arguments.max_seq_length)
    if arguments.path is None and not (rows.task and rows.data):
        others: dict[str, object] = {
            "--corpus": arguments.corpus,
            "--model": arguments.model,
            "--task": rows.task,
            "--data": rows.data,
            "--dev": rows.dev,
            "--train": rows.train,
            "--text": "" if texts == ("text",) else rows.text,  # its default
            "--label": rows.label,
            "--choices": rows.choices,
            "--max-seq-length": arguments.max_seq_length,
        }
        refuse_beside("doctor without a path", others)
    if rows.data and not rows.task:
        raise InputError(f"--data {rows.data}: the folder of a known task's files; give --task NAME with it")
    if rows.task:
        from ..tasks.catalogue import find_task
        from ..tasks.kinds import load_data

        refuse_beside("--task", {"--train": rows.train, "--dev": rows.dev})
        task = replace(find_task(rows.task), form=form)
        return replace(given, task=task, data=load_data(task, rows.data) if rows.data else None)
    if rows.train is not None:
        from ..tasks.kinds import own_table

        task, data = own_table(rows.find()[0], *rows.find()[1])
        return replace(given, task=task, data=data, dev=None, columns=Columns((), "", form=form))  # of the rows
    return given


def print_findings(
    examine: Callable[[], "Report"], advise: bool = True, unharmed: str = "what was made is complete"
) -> None:
    """Print a line on stderr for each warning and error that the examination finds.

    advise: whether the lines have advice; that of a sweep would name flags that it sets itself. unharmed: what is as it
    would be without the examination, for the message if it fails.
    """
    from ..apps.doctor.listing import print_brief

    print_brief(examine, advise, unharmed=unharmed)
