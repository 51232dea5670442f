"""The rows of a study and their cells: what a study's file becomes (plan.py), and what its report reads."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ..finetuning.recipe import FinetuneConfig
from ..model.config import ModelConfig
from ..tasks.base import Data, Task
from ..tasks.kinds import split_data
from ..tasks.sampling import WHOLE, Split
from .cells import InitialModel, StudyCell, Training
from .recipe import Study


@dataclass(frozen=True)
class Examples:
    """The examples of a column that a command gives, and no study's file."""

    task: Task
    files: tuple[Path, ...]  # the folder of a known task, or the training and the development table of one's own
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
    minute: bool = False  # tiny models and few rows
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
    shape: ModelConfig | None  # None: a baseline without a model
    tuned: dict[str, tuple[StudyCell, ...]] = field(default_factory=dict)  # by column, a cell for each seed
    seed: int | None = None  # of pre-training, if the study names several
    others: tuple["Row", ...] = ()  # the same variant with the other seeds of pre-training

    @property
    def every(self) -> tuple["Row", ...]:
        """One for each seed of pre-training."""
        return (self, *self.others)

    @property
    def trained(self) -> tuple[StudyCell, ...]:
        """The pre-training that it is made of."""
        found = [cell for cell in self.ancestors if isinstance(cell.work, Training)]
        return tuple({cell.name: cell for cell in found}.values())

    @property
    def random(self) -> bool:
        """Whether all its fine-tuning begins with random weights: its start gives the shape alone."""
        configs = [cell.work.config for cells in self.tuned.values() for cell in cells]
        tuned = [config for config in configs if isinstance(config, FinetuneConfig)]
        return bool(tuned) and all(config.random_init for config in tuned)

    @property
    def weights(self) -> str:
        """What identifies the weights that its fine-tuning starts from; "random" and "none" are those of no encoder."""
        if self.shape is None:
            return "none"
        return "random" if self.random else self.start.key

    @property
    def ancestors(self) -> list[StudyCell]:
        """The cells that make its model, in the order of work."""
        return [one for cell in self.start.needs for one in (*cell.ancestors, cell)]

    @property
    def cells(self) -> list[StudyCell]:
        """All its cells, in the order of work."""
        tuned = [cell for cells in self.tuned.values() for cell in cells]
        candidates = [one for cell in tuned for one in cell.trials]
        return [*self.ancestors, *candidates, *tuned, *(cell for row in self.others for cell in row.cells)]


@dataclass(frozen=True)
class Plan:
    """A study, its rows, and their cells."""

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
    def cells(self) -> list[StudyCell]:
        """Every cell once, in the order of work: the base variant's first, then row by row."""
        order = [self.base, *(row for row in self.rows if row is not self.base)]
        found: dict[str, StudyCell] = {}
        for cell in (cell for row in order for cell in row.cells):
            found.setdefault(cell.name, cell)  # named after the first row that needs it
        return list(found.values())
