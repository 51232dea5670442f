"""What a call in Python returns: plain objects that print as tables, on a terminal and in a notebook.

`Rows` is a list of dictionaries, so `pandas.DataFrame(rows)` and `json.dumps(rows)` work. The others are dataclasses.
"""

import abc
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .run_files import read_log as read_records
from .tables import ResultTable, number

SHOWN_ROWS, SHOWN_CHARACTERS = 10, 60  # of a list that is printed; characters of a cell, wide ones counted twice
SHOWN_WIDTH = 80  # columns of its table
COLLAPSED = "collapsed: the same answer for every development row"


class Printed(abc.ABC):
    """A result that prints as its table."""

    @abc.abstractmethod
    def table(self) -> ResultTable:
        """The table that is printed."""

    def __str__(self) -> str:
        return self.table().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table().html()


@dataclass(frozen=True, repr=False)
class RunResults(Printed):
    """What a run of fine-tuning or pre-training gave."""

    folder: Path  # the run folder; every function takes it as a model
    details: dict[str, Any] = field(default_factory=dict)  # all of results.json; {} if the run was stopped
    findings: tuple[str, ...] = ()  # about the labelled examples of a finished run, one line each, with advice

    @property
    def finished(self) -> bool:
        """Whether the run has ended; if not, call the function again to resume."""
        return bool(self.details)

    @property
    def metrics(self) -> dict[str, float]:
        """On development rows or held-out text, as fractions; of several seeds their mean. {} if not finished."""
        return dict(self.details.get("metrics", {}))

    @property
    def std(self) -> dict[str, float]:
        """Standard deviation of each metric over the seeds; {} for a single seed."""
        return dict(self.details.get("std", {}))

    def log(self) -> "Rows":
        """The records of the run's log, oldest first."""
        return read_log(self.folder)

    def table(self) -> ResultTable:
        if not self.finished:
            title = f"{self.folder}: stopped and saved, without a model yet; call again to resume"
            return ResultTable(title, ("metric", "value"), [])
        header = ("metric", "mean", "sd over seeds") if self.std else ("metric", "value")
        std = self.std
        rows = [(name, number(value), *([number(std[name])] if std else [])) for name, value in self.metrics.items()]
        notes = [str(note) for note in self.details.get("notes", [])]
        if self.details.get("collapsed") is True:
            notes.append(COLLAPSED)
        return ResultTable(f"{self.folder}: {self._title()}", header, rows, tuple(notes))

    def _title(self) -> str:
        task = f" ({self.details['task']})" if "task" in self.details else ""
        return f"{self.details.get('kind', 'run')}{task}, {self.details.get('seconds', 0.0):,.1f} s"


@dataclass(frozen=True, repr=False)
class Evaluated(Printed):
    """Metrics of a model on labelled rows."""

    details: dict[str, Any]  # all that was measured, as `bertworks evaluate --out` writes it

    @property
    def task(self) -> str:
        """Name of the task; table: a table of one's own."""
        return str(self.details["task"])

    @property
    def metrics(self) -> dict[str, float]:
        """As fractions; losses in nats."""
        return dict(self.details["metrics"])

    @property
    def examples(self) -> int:
        """Number of rows."""
        return int(self.details["examples"])

    def table(self) -> ResultTable:
        beside = {name: value for name, value in self.details.items() if isinstance(value, float)}
        rows = [(name, number(value)) for name, value in (self.metrics | beside).items()]
        notes = (*([COLLAPSED] if self.details.get("collapsed") else []), *self.details.get("findings", ()))
        return ResultTable(f"{self.task}: {self.examples:,} rows", ("metric", "value"), rows, notes)


class Rows(list[dict[str, Any]]):
    """A list of dictionaries that prints as a table: predictions, or the records of a log."""

    def table(self) -> ResultTable:
        """The first rows, as a table of at most 80 columns; a character of Korean, for example, takes two."""
        from rich.cells import cell_len

        shown = self[:SHOWN_ROWS]
        names = [*dict.fromkeys(name for row in shown for name in row)]
        columns = {name: [_cell(row.get(name)) for row in shown] for name in names}
        widths = itertools.accumulate(3 + max(map(cell_len, (name, *texts))) for name, texts in columns.items())
        numbers = 4 + len(str(max(0, len(shown) - 1)))  # the first column, and the last bar
        fitting = max(1, sum(width <= SHOWN_WIDTH - numbers for width in widths))
        rows = [(str(i), *(columns[name][i] for name in names[:fitting])) for i in range(len(shown))]
        more = [f"{len(self) - len(shown):,} more rows"] if len(self) > len(shown) else []
        more += [f"more columns: {', '.join(names[fitting:])}"] if names[fitting:] else []
        return ResultTable(f"{len(self):,} rows", ("", *names[:fitting]), rows, tuple(more))

    def __repr__(self) -> str:
        return self.table().text() if self else "no rows"

    def _repr_html_(self) -> str:
        return self.table().html() if self else "<p>no rows</p>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = number(value) if isinstance(value, float) else _listed(value)
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= SHOWN_CHARACTERS else f"{set_cell_size(text, SHOWN_CHARACTERS - 1).rstrip()}…"


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(map(_cell, value))
    return str(value)


def read_log(run: Path | str | RunResults) -> Rows:
    """The records of a run's log, oldest first: losses, rates and metrics by step.

        pandas.DataFrame(bertworks.read_log("runs/first")).plot("step", "mlm_loss")

    run: run folder, or what a run returned. Raises InputError if there is no log, or for a line that no run writes.
    """
    return Rows(read_records(run.folder if isinstance(run, RunResults) else run))
