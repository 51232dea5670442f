"""Fine-tuning from Python: `bertworks.finetune`. It resolves its arguments as `bertworks finetune` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..checkpoint.locate import ModelLike, find_model
from ..checkpoint.start import start_folder
from ..config import flags_of_fields, with_fields
from ..reporting.arguments import argument_names, hinted
from ..reporting.results import RunResults
from ..tasks.base import KindName
from ..tasks.catalogue import find_task
from ..tasks.selection import DividedRows
from ..training.run import OnStep, out_folder, refuse_other_folder, watch_of
from .recipe import FinetuneConfig, idle_fields, listed_weights, refuse_idle, starting_recipe, with_restarts
from .run import finetune as run_finetuning

OWN = {"kind": None, "text": "text", "label": "", "choices": ()}  # arguments of tables of one's own


@hinted
def finetune(
    model: ModelLike,
    out: Path | str,
    *,
    train: Any = None,
    dev: Any = None,
    text: str | Sequence[str] = "text",
    label: str | Sequence[str] = "",
    kind: KindName | None = None,
    choices: str | Sequence[str] = (),
    task: str = "",
    data: Path | str | None = None,
    train_rows: int = 0,
    dev_share: float = 0.0,
    group: str = "",
    split_seed: int = 1,
    recipe: FinetuneConfig | Path | str | None = None,
    restarts: int = 0,
    on_step: OnStep | None = None,
    quiet: bool = False,
    **fields: Any,
) -> RunResults:
    """Fine-tune a model on your own rows or on a known task, and return the results. Call it again to resume.

        bertworks.finetune("runs/base", "runs/topics", train=frame, dev="dev.csv", epochs=2, optim={"lr": 1e-4})

    model: model folder, run folder, or a loaded model. out: run folder to write. train, dev: a path, a pandas or polars
    DataFrame, a datasets.Dataset, or a list of dictionaries. text: its text column, or two; a list or comma-separated.
    label: its label column; "": label, or of the kind embedding none (pairs that belong together). kind: single, pair,
    regression, multilabel, choice, tagging, span or embedding; none: single, or pair with two text columns. choices:
    columns of a multiple choice. task, data: instead of tables, a known task and the folder with its files.

    train_rows: number of training rows to draw; 0: all. dev_share: in place of dev, the share of train's rows to
    evaluate on. group: a column of train; rows with one value of it stay on one side. split_seed: of both draws.

    recipe: its name, a .toml file, or a FinetuneConfig; none: the task's own defaults. Fields of the recipe are further
    arguments; a table is a dictionary, as in TOML, and class_weights may be {"law": 3, "art": 1} or "balanced". Own
    tables train for 3 epochs and at least 100 updates, unless fields say more. restarts: number of runs with the seeds
    loop.seed, loop.seed + 1, ...; 0: see the field seeds.
    on_step: called with each record of the log (every `loop.log_every` updates, and every evaluation); when it returns
    True, the run stops after that update and is saved, without a model yet. To end early with the best model, use
    `patience`. quiet: print nothing.

    Raises InputError for unfit rows, folder or fields, with the row or the field, or if `out` belongs to another run.
    """
    with argument_names():
        folder, watch = out_folder(out), watch_of(on_step)
        refuse_other_folder(folder)
        columns: dict[str, Any] = {"kind": kind, "text": text, "label": label, "choices": choices}
        config = _recipe(recipe, task, columns, restarts, fields)
        tables: dict[str, Any] = {"data": data, "dev": dev, "train": train}
        rows = DividedRows(
            task, **tables, **columns, train_rows=train_rows, dev_share=dev_share, group=group, split_seed=split_seed
        )
        found, examples = rows.read_data()
        start = start_folder(model, folder)
        results = run_finetuning(config, found, examples, start, folder, quiet, watch)
        return RunResults(folder, results or {})


def _recipe(
    recipe: FinetuneConfig | Path | str | None,
    task: str,
    columns: dict[str, Any],
    restarts: int,
    fields: dict[str, Any],
) -> FinetuneConfig:
    """The recipe with the given fields. Raises InputError for one that is unknown, unfit or without an effect."""
    known = find_task(task) if task else None
    if "class_weights" in fields:
        fields = {**fields, "class_weights": listed_weights(fields["class_weights"])}
    if fields.get("teacher"):
        fields = {**fields, "teacher": str(find_model(fields["teacher"]))}
    names = {name for name, default in OWN.items() if columns[name] != default}
    given = flags_of_fields(fields) | {f"--{name}" for name in names}
    config = with_restarts(with_fields(starting_recipe(recipe, known, given), fields, finetune), restarts)
    refuse_idle(idle_fields(config, bool(known), restarts), given)
    return config
