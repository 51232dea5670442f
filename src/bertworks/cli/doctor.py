"""`bertworks doctor`: checks of runs, stores, model folders, labelled data and the machine."""

import json as json_text
import os
from dataclasses import dataclass, field
from pathlib import Path

from ..tasks.selection import refuse_beside
from ..tasks.table import part_of
from .arguments import Flat, Positional, TrainRows, parse
from .exit_status import UNSOUND


@dataclass(frozen=True)
class Arguments:
    """Examine a run, a corpus store, a model folder, labelled data or this machine.

    Every finding has its evidence and advice. Exit status 4: there are errors.

    Example:
        bertworks doctor
        bertworks doctor runs/first --corpus store
        bertworks doctor topics/train.csv --dev topics/dev.csv --label topic
        bertworks doctor glue/MRPC --task mrpc --model runs/first
    """

    # run, folder of runs, store, model folder or training table (hub:org/name#split too); none: this machine
    path: Positional[Path | None] = None
    corpus: Path | None = None  # corpus store of a pre-training run, to compute its predictions at [MASK]
    model: Path | None = None  # model folder whose vocabulary is compared with the training texts
    rows: Flat[TrainRows] = field(default_factory=TrainRows)
    json: bool = False  # print the report as JSON


def doctor(argv: list[str]) -> None:
    """Examine, print the report; exit with 4 for errors."""
    arguments = parse(Arguments, argv, "doctor")
    from ..apps.doctor.examination import examine, of_data
    from ..apps.doctor.listing import show

    path, rows = arguments.path, arguments.rows
    if rows.task:
        refuse_beside("task", rows.of_own_table)
    if path is not None and (os.path.isfile(part_of(path)[0]) or str(path).startswith("hub:") or rows.task):
        refuse_beside(str(path), {"--train": rows.train, "--data": rows.data, "--corpus": arguments.corpus})
        report = of_data(rows, path, arguments.model)
    elif path is None and (rows.train or rows.data):
        refuse_beside("labelled data", {"--corpus": arguments.corpus})
        report = of_data(rows, None, arguments.model)
    else:
        report = examine(path, arguments.corpus)
    if arguments.json:
        print(json_text.dumps(report.as_json(), ensure_ascii=False, indent=1))
    else:
        show(report)
    if report.worst == "error":
        raise SystemExit(UNSOUND)
