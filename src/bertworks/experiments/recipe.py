"""What a study is: a TOML file that says which variants of two recipes are measured, on what, and the paper's figures.

    base = "80/10/10"                       the variant that the others are compared with
    pretrain = "../pretrain/study.toml"     the recipes that variants differ from, relative to this file
    finetune = "../finetune/study.toml"
    seeds = [1, 2, 3]                       of fine-tuning; a variant is pre-trained once, with the seed of its recipe
    [[variants]] name = "100/0/0"           a row: dotted keys of both recipes, pretrain.masking.mask_share = 1.0
    [[columns]] name = "MNLI", task = "mnli", data = "glue/MNLI"
    [paper."100/0/0"] MNLI = 84.3           the figure shown beside ours
    [claim] row = "100/0/0", column = "MNLI", ...   the one comparison that the study is for (claims.py)

plan.py expands it to cells, study.py runs them, results.py, tables.py and figures.py show what came out.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..config import check_least, check_seed, load_recipe
from ..training.config import OBJECTIVES

FORMAT = 1  # of a study's results.json
HELD_OUT = {  # metrics of pre-training on held-out text
    f"{term}_{metric}"
    for objective in OBJECTIVES.values()
    for term in objective.terms
    for metric in ("loss", "accuracy", "perplexity")
}


@dataclass(frozen=True)
class Variant:
    """A row of the table: what is different from the base recipes, and what its fine-tuning starts from."""

    name: str
    pretrain: dict[str, Any] = field(default_factory=dict)  # fields of the pre-training recipe that differ
    finetune: dict[str, Any] = field(default_factory=dict)  # the same of the fine-tuning recipe, in every column
    snapshots: tuple[int, ...] = ()  # steps of the pre-training whose snapshots are rows of their own
    concat: tuple[str, ...] = ()  # no pre-training of its own: the models of two other variants side by side
    model: str = ""  # no pre-training of its own: this model folder
    # no pre-training of its own: word2vec on the store, with these settings of StaticConfig
    static: dict[str, Any] = field(default_factory=dict)
    baseline: bool = False  # no model at all: a logistic regression (baselines.py)
    # {field of the fine-tuning recipe: [values]}: the setting is chosen on training rows that are kept back
    choose: dict[str, Any] = field(default_factory=dict)
    row: bool = True  # false: no row of its own, only made for others to be put side by side
    line: str = ""  # of a study with an axis: the curve that this row is a point of
    x: float | None = None  # its value on the axis; of snapshots the step

    def __post_init__(self) -> None:
        given = [name for name in ("pretrain", "concat", "model", "static", "baseline") if getattr(self, name)]
        if len(given) > 1 or (self.snapshots and given and given != ["pretrain"]):
            raise ValueError(f"variant {self.name!r} has {' and '.join(given)}; expected one of them")
        if self.concat and len(self.concat) != 2:
            raise ValueError(f"variant {self.name!r}: concat names {len(self.concat)} variants; expected two")
        if self.baseline and (self.finetune or self.choose):
            raise ValueError(f"variant {self.name!r}: a baseline has no settings of fine-tuning; leave them out")


@dataclass(frozen=True)
class Column:
    """A column of the table: a task to fine-tune on, or a held-out metric of the pre-training itself."""

    name: str
    task: str = ""  # its name (bertworks recipes tasks lists them)
    data: str = ""  # its folder, below --data
    metric: str = ""  # which of its metrics; none: its first
    train: str = ""  # name of the training file, if it is not the official one
    dev: str = ""  # the same of the development file
    train_rows: int = 0  # so many rows of the training file, its first ones; 0: all
    draw: bool = False  # each run draws its train_rows with its seed, by whole documents, instead of the first ones
    dev_rows: int = 0  # the same of the development file
    finetune: dict[str, Any] = field(default_factory=dict)  # fields of the fine-tuning recipe that differ here
    choose: dict[str, Any] = field(default_factory=dict)  # as of a variant; both are combined
    choose_seeds: int = 1  # number of seeds over which the chosen setting has the best mean
    panel: str = ""  # of a column that is a point of curves, a curve for each variant: the picture's panel
    x: float | None = None  # its value on the axis
    pretrain: str = ""  # instead of a task: mlm_accuracy, nsp_accuracy, mlm_perplexity (e to the mlm_loss) ...
    # fields of the pre-training recipe that make one held-out set, on which the models of all variants are evaluated;
    # none: each is evaluated on instances of its own recipe
    evaluate: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.task) == bool(self.pretrain):
            raise ValueError(f"column {self.name!r}: expected either task or pretrain")
        if self.pretrain and self.pretrain not in HELD_OUT:
            raise ValueError(
                f"column {self.name!r}: pretrain = {self.pretrain!r}; expected {', '.join(sorted(HELD_OUT))}"
            )
        check_least(self, ("train_rows", "dev_rows"), 0)
        check_least(self, ("choose_seeds",), 1)
        if self.evaluate and not self.pretrain:
            raise ValueError(f"column {self.name!r}: evaluate is of a held-out metric; name it with pretrain")
        if bool(self.panel) != (self.x is not None):
            raise ValueError(f"column {self.name!r}: expected both panel and x, or neither")

    @property
    def percent(self) -> bool:
        """Whether its values are shown in hundredths; perplexities and losses are not."""
        return not self.pretrain.endswith(("_perplexity", "_loss"))


@dataclass(frozen=True)
class Claim:
    """The one comparison that a study is for, named before the study is run: two rows in one column."""

    row: str  # the variant, or its snapshot ("masked LM, step 150"), that the claim is about
    column: str
    expect: Literal["higher", "lower", "equal"]  # what the paper's finding predicts for the row
    finding: str  # what the paper found, in one phrase with its figure
    against: str = ""  # the row that it is compared with; none: the base variant
    beyond: tuple[str, ...] = ()  # two rows, whose difference is subtracted: what the claim is about is the interaction
    margin: float = 1.0  # for "equal": the largest difference that counts as none, in points or the metric's unit


@dataclass(frozen=True)
class Study:
    """A study as its file has it. Paths in it are relative to that file."""

    title: str
    base: str  # the variant that others are compared with; "": none, in a search
    variants: tuple[Variant, ...]
    columns: tuple[Column, ...]
    finetune: str  # file of the fine-tuning recipe
    pretrain: str = ""  # file of the pre-training recipe; none: every variant has a model of its own
    name: str = ""  # none: that of the file
    size: Literal["cpu", "paper"] = "cpu"  # hours on two cores, or what the paper did
    seeds: tuple[int, ...] = (1, 2, 3)  # of fine-tuning
    # of pre-training: every variant is pre-trained with each, and fine-tuned from each with seeds that differ; a
    # figure is then a mean over the seeds of fine-tuning, and n counts pre-trainings. None: once, by the recipe
    pretrain_seeds: tuple[int, ...] = ()
    source: str = ""  # which table of which paper
    axis: str = ""  # what the rows' x is, if they are points of curves
    paper_axis: str = ""  # the same of the paper's curves
    paper: dict[str, Any] = field(
        default_factory=dict
    )  # {variant: {column: figure}}; curves {line: {column: [[x, figure]]}}
    claim: Claim | None = None  # none: all differences are exploratory
    notes: tuple[str, ...] = ()  # sentences below the table
    search: bool = False  # the best variant is chosen on development data, and the best model of each task is kept

    def __post_init__(self) -> None:
        for what, found in (("variants", self.variants), ("columns", self.columns)):
            names = [one.name for one in found]
            if not names or len({*names}) < len(names):
                raise ValueError(f"{what} {', '.join(names) or 'none'}; expected one or more, and names that differ")
        if not self.seeds or len({*self.seeds}) < len(self.seeds):
            raise ValueError("expected one seed or more, and seeds that differ")
        if len({*self.pretrain_seeds}) < len(self.pretrain_seeds):
            raise ValueError("expected pretrain_seeds that differ")
        check_seed(*self.seeds, *self.pretrain_seeds)
        if self.base or not self.search:
            _check_known("base", self.base, [variant.name for variant in self.variants if variant.row])
        for name in (name for variant in self.variants for name in variant.concat):
            _check_known("concat", name, [variant.name for variant in self.variants])
        self._check_paper()
        self._check_claim()

    def _check_claim(self) -> None:
        """Raises ValueError if the claim is about rows or a column that the study lacks."""
        if self.claim is None:
            return
        rows = [v.name for v in self.variants if v.row]
        rows += [f"{v.name}, step {step:,}" for v in self.variants if v.row for step in v.snapshots]
        pair, beyond = (self.claim.row, self.claim.against or self.base), self.claim.beyond
        if len(beyond) not in (0, 2):
            raise ValueError(f"claim: beyond names {len(beyond)} rows; expected two, or none")
        for name in (*pair, *beyond):
            _check_known("claim", name, rows)
        _check_known("claim", self.claim.column, [column.name for column in self.columns])

    def _check_paper(self) -> None:
        """Raises ValueError if a figure of the paper belongs to no row or column."""
        rows = [name for variant in self.variants for name in (variant.name, variant.line)]
        for row, figures in self.paper.items():
            _check_known("paper", row, rows)
            if not isinstance(figures, dict):
                raise ValueError(f"paper: {row!r} has {figures!r}; expected a table of columns")
            for column, figure in figures.items():
                _check_known("paper", column, [column.name for column in self.columns])
                pairs = figure if isinstance(figure, list) else [[0, figure]]
                if not all(len(pair) == 2 and all(isinstance(n, int | float) for n in pair) for pair in pairs):
                    raise ValueError(f"paper: {row!r} has {figure!r}; expected a number, or [x, number] pairs")

    def with_columns(self, columns: tuple[Column, ...]) -> "Study":
        """The same with some of its columns."""
        names = {column.name for column in columns}
        paper = {row: {c: f for c, f in figures.items() if c in names} for row, figures in self.paper.items()}
        return replace(self, columns=columns, paper=paper)

    def figure(self, row: str, column: str) -> float | None:
        """What the paper printed; None if it did not, or printed a curve."""
        found: Any = self.paper.get(row, {}).get(column)
        return None if isinstance(found, list) else found

    def curve(self, line: str, column: str) -> list[list[float]]:
        """The paper's curve, as [x, figure] pairs; none if it has none."""
        found: Any = self.paper.get(line, {}).get(column)
        return found if isinstance(found, list) else []


def _check_known(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        listed = ", ".join(repr(one) for one in dict.fromkeys(known) if one)
        raise ValueError(f"{what}: {name!r} is no row or column of the study; expected one of {listed}")


def load_study(path: Path | str) -> Study:
    """Read a study. Raises InputError with file and key."""
    return load_recipe(path, Study)
