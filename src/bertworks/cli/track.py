"""`bertworks track`: the logs of runs for TensorBoard, MLflow or Weights & Biases."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from .arguments import Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Write the logs of runs for another tracker, with that tracker's library.

    Example:
        bertworks track runs/base runs/sst2 --to tensorboard --out board
        tensorboard --logdir board

    MLflow gets a database (mlflow.db), W&B an offline run for `wandb sync`.
    """

    runs: Annotated[tuple[Path, ...], Positional, required("RUN")]
    """run folders, finished or not; a folder of seeds, a sweep or a suite gives all of them"""
    to: Literal["tensorboard", "mlflow", "wandb"] = "tensorboard"  # tracker; each needs the extra of its name
    out: Path | None = None  # folder to write to; none: a folder with the tracker's name in the first run folder


def track(argv: list[str]) -> None:
    """Write the files, and print their names."""
    arguments = parse(Arguments, argv, "track")
    from ..reporting.tracking import track as track_runs

    for path in track_runs(arguments.runs, arguments.to, arguments.out):
        print(path)
