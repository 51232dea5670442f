"""What a study is: a TOML file that says which variants of two recipes are measured, on what, and the paper's figures.

    base = "80/10/10"                       the variant that the others are compared with
    pretrain = "../pretrain/study.toml"     the recipes that variants differ from, relative to this file
    finetune = "../finetune/study.toml"
    seeds = [1, 2, 3]                       of fine-tuning; a variant is pre-trained once, with the seed of its recipe
    [[variants]] name = "100/0/0"           a row: dotted keys of both recipes, pretrain.masking.mask_share = 1.0
    [[columns]] name = "MNLI", task = "mnli", data = "glue/MNLI"
    [paper."100/0/0"] MNLI = 84.3           the figure shown beside ours
    [claim] row = "100/0/0", column = "MNLI", ...   the one comparison that the study is for (claims.py)

plan.py expands it to runs, study.py computes them, results.py, tables.py and figures.py show the results.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..bounds import check_least, check_seed
from ..training.config import OBJECTIVES

FORMAT = 1  # of a study's results.json
HELD_OUT = {  # metrics of pre-training on held-out text
    f"{term}_{metric}" for objective in OBJECTIVES.values() for term in objective.terms
    for metric in ("loss", "accuracy", "perplexity")
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A row of the table: what is different from the base recipes, and what its fine-tuning starts from."""

    name: str
    pretrain: dict[str, Any] = field(default_factory=dict)  # fields of the pre-training recipe that differ
    finetune: dict[str, Any] = field(default_factory=dict)  # the same of the fine-tuning recipe, in every column
    snapshots: tuple[int, ...] = ()  # steps of the pre-training whose snapshots are rows of their own
    concat: tuple[str, ...] = ()  # no pre-training of its own: the models of two other variants, concatenated
    model: str = ""  # no pre-training of its own: this model folder
    # no pre-training of its own: word2vec on the store, with these settings of StaticConfig
    static: dict[str, Any] = field(default_factory=dict)
    baseline: Literal["", "words", "characters", "overlap"] = ""  # no model at all: a linear model (baselines.py)
    # {field of the fine-tuning recipe: [values]}: the setting is chosen on held-out training examples
    choose: dict[str, Any] = field(default_factory=dict)
    row: bool = True  # false: no row of its own, only a part of concatenated models
    columns: tuple[str, ...] = ()  # the only columns in which it is measured; none: all
    line: str = ""  # of a study with an axis: the curve that this row is a point of
    x: float | None = None  # its value on the axis; of snapshots the step

    def __post_init__(self) -> None:
        kinds = [name for name in ("pretrain", "concat", "model", "static", "baseline") if getattr(self, name)]
        if len(kinds) > 1 or (self.snapshots and kinds and kinds != ["pretrain"]):
            raise ValueError(f"variant {self.name!r} has {' and '.join(kinds)}; expected one of them")
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
    seeds: int = 0  # number of the study's seeds that are run, its first ones; 0: all
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
            expected = ", ".join(sorted(HELD_OUT))
            raise ValueError(f"column {self.name!r}: pretrain = {self.pretrain!r}; expected {expected}")
        check_least(self, ("train_rows", "dev_rows", "seeds"), 0)
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
    beyond: tuple[str, ...] = ()  # two rows, whose difference is subtracted: the claim is about the interaction
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
    seeds: tuple[int, ...] = (1, 2, 3)  # of fine-tuning
    # of pre-training: every variant is pre-trained with each, and fine-tuned from each with seeds that differ; a
    # figure is then a mean over the seeds of fine-tuning, and n counts pre-trainings. None: once, by the recipe
    pretrain_seeds: tuple[int, ...] = ()
    source: str = ""  # which table of which paper
    axis: str = ""  # what the rows' x is, if they are points of curves
    paper_axis: str = ""  # the same of the paper's curves
    # {variant: {column: figure}}; curves {line: {column: [[x, figure]]}}
    paper: dict[str, dict[str, float | list[tuple[float, float]]]] = field(default_factory=dict)
    claim: Claim | None = None  # none: all differences are exploratory
    notes: tuple[str, ...] = ()  # sentences below the table
    search: bool = False  # the best variant is chosen on development data, and the best model of each task is kept

    def __post_init__(self) -> None:
        variants, columns = ([item.name for item in items] for items in (self.variants, self.columns))
        for what, values in (("variants", variants), ("columns", columns), ("seeds", self.seeds)):
            if not values or len({*values}) < len(values):
                listed = ", ".join(map(str, values)) or "none"
                raise ValueError(f"{what} {listed}; expected one or more, and no two equal ones")
        if len({*self.pretrain_seeds}) < len(self.pretrain_seeds):
            raise ValueError("expected pretrain_seeds that differ")
        check_seed(*self.seeds, *self.pretrain_seeds)
        shown = [variant for variant in self.variants if variant.row]
        rows = [variant.name for variant in shown]
        if self.base or not self.search:
            _check_name("base", self.base, rows)
        for name in (name for variant in self.variants for name in variant.concat):
            _check_name("concat", name, [variant.name for variant in self.variants if not variant.baseline])
        for name in (name for variant in self.variants for name in variant.columns):
            _check_name("columns", name, columns)
        for row, figures in self.paper.items():
            _check_name("paper", row, [*variants, *(variant.line for variant in self.variants)])
            for column in figures:
                _check_name("paper", column, columns)
        if self.claim:
            pair, beyond = (self.claim.row, self.claim.against or self.base), self.claim.beyond
            if len(beyond) not in (0, 2):
                raise ValueError(f"claim: beyond names {len(beyond)} rows; expected two, or none")
            rows += [f"{variant.name}, step {step:,}" for variant in shown for step in variant.snapshots]
            for name in (*pair, *beyond):
                _check_name("claim", name, rows)
            _check_name("claim", self.claim.column, columns)

    def without(self, names: list[str]) -> "Study":
        """The same without some of its columns."""
        columns = tuple(column for column in self.columns if column.name not in names)
        paper = {row: {c: f for c, f in figures.items() if c not in names} for row, figures in self.paper.items()}
        variants = tuple(
            replace(variant, columns=tuple(name for name in variant.columns if name not in names))
            for variant in self.variants
            if not variant.columns or {*variant.columns} - {*names}
        )
        return replace(self, variants=variants, columns=columns, paper=paper)

    def figure(self, row: str, column: str) -> float | None:
        """The paper's figure; None if it has none, or a curve."""
        figure = self.paper.get(row, {}).get(column)
        return None if isinstance(figure, list) else figure

    def curve(self, line: str, column: str) -> list[tuple[float, float]]:
        """The paper's curve, as [x, figure] pairs; [] if it has none."""
        curve = self.paper.get(line, {}).get(column)
        return curve if isinstance(curve, list) else []


def _check_name(what: str, name: str, names: list[str]) -> None:
    if name not in names:
        listed = ", ".join(repr(one) for one in dict.fromkeys(names) if one)
        raise ValueError(f"{what}: {name!r} is no row or column of the study; expected one of {listed}")
