"""The rows of a study and their runs: what a study's file becomes (plan.py), and what its report reads."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Data, Task
from ..tasks.kinds import split_data
from ..tasks.sampling import WHOLE, Split
from .recipe import Study
from .scheduler import Run
from .specs import InitialModel, Training


@dataclass(frozen=True)
class Examples:
    """The examples of a column that a command gives, and no study's file."""

    task: Task
    files: tuple[Path, ...]  # the folder of a built-in task, or the training and the development table of one's own
    split: Split = WHOLE
    data: Data | None = None  # of this process, which has read the files already

    def read(self) -> tuple[Task, Data]:
        """The task with its labels, and its rows. Raises InputError with file and line."""
        return (self.task, self.data) if self.data else split_data(self.task, self.files, self.split)

    def for_workers(self) -> "Examples":
        """The same for processes with another working directory, which read the files themselves."""
        return replace(self, files=tuple(file.absolute() for file in self.files), data=None)


@dataclass(frozen=True)
class StudyInputs:
    """What a study is made from."""

    recipe: Path  # the study's file
    corpus: Path | None = None  # store to pre-train on
    data: Path | None = None  # folder that has the columns' folders
    model: Path | None = None  # model folder instead of the pre-training of all variants that do not differ in it
    minute: bool = False  # tiny models and few examples
    study: Study | None = None  # of a command that has no study's file
    examples: dict[str, Examples] = field(default_factory=dict)  # of its columns

    def for_workers(self) -> "StudyInputs":
        """The same for processes with another working directory."""
        paths = {key: path.absolute() for key in ("corpus", "data", "model") if (path := getattr(self, key))}
        return replace(self, **paths, examples={name: one.for_workers() for name, one in self.examples.items()})


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, or a snapshot of one."""

    name: str
    line: str  # the curve that it is a point of
    x: float | None
    start: InitialModel
    tuned: dict[str, tuple[Run, ...]] = field(default_factory=dict)  # by column, a run for each seed
    seed: int | None = None  # of pre-training, if the study names several
    others: tuple["Row", ...] = ()  # the same variant with the other seeds of pre-training

    @property
    def replicates(self) -> tuple["Row", ...]:
        """One for each seed of pre-training."""
        return (self, *self.others)

    @property
    def ancestors(self) -> list[Run]:
        """The runs that make its model, in the order of work."""
        return [*self.start.run.ancestors, self.start.run] if self.start.run else []

    @property
    def trained(self) -> tuple[Run, ...]:
        """The pre-training that it is made of."""
        runs = {run.name: run for run in self.ancestors if isinstance(run.spec, Training)}
        return tuple(runs.values())

    @property
    def random(self) -> bool:
        """Whether all its fine-tuning begins with random weights: its start gives the shape alone."""
        configs = [run.spec.config for runs in self.tuned.values() for run in runs]
        tuned = [config for config in configs if isinstance(config, FinetuneConfig)]
        return bool(tuned) and all(config.random_init for config in tuned)

    @property
    def weights(self) -> str:
        """What identifies the weights that its fine-tuning starts from; "random" and "none" are those of no encoder."""
        return "random" if self.random else self.start.key

    @property
    def runs(self) -> list[Run]:
        """All its runs, in the order of work."""
        tuned = [run for runs in self.tuned.values() for run in runs]
        candidates = [candidate for run in tuned for candidate in run.candidates]
        return [*self.ancestors, *candidates, *tuned, *(run for row in self.others for run in row.runs)]


@dataclass(frozen=True)
class Plan:
    """A study, its rows, and their runs."""

    study: Study
    inputs: StudyInputs
    rows: list[Row]
    seeds: tuple[int, ...]
    corpus: str  # the store's fingerprint

    @property
    def base(self) -> Row:
        """The row that the others are compared with; of a sweep, which compares none, the first one."""
        return next((row for row in self.rows if row.name == self.study.base), self.rows[0])

    @cached_property
    def runs(self) -> list[Run]:
        """Every run once, in the order of work: the base variant's first, then row by row."""
        runs: dict[str, Run] = {}
        for row in (self.base, *self.rows):
            for run in row.runs:
                runs.setdefault(run.name, run)  # named after the first row that needs it
        return list(runs.values())
