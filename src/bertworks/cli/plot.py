"""`bertworks plot`: figures of runs and studies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ..files import InputError
from .arguments import Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Draw the curves of runs in one figure, and a figure for each study.

    Example:
        bertworks plot runs/one runs/other --out curves.png --x tokens
    """

    folders: Annotated[tuple[Path, ...], Positional, required("FOLDER")]
    """run folders and folders of studies, finished or not"""
    # file to write, .png or .svg; without an ending: both; none: RUN/curves of the first run, STUDY/study of each study
    out: Path | None = None
    x: Literal["step", "tokens", "seconds"] = "step"  # horizontal axis of the curves


def plot(argv: list[str]) -> None:
    """Draw the figures, and print the names of their files."""
    arguments = parse(Arguments, argv, "plot")
    from ..experiments.figures import plot_study
    from ..experiments.tables import read_study
    from ..reporting.figures import plot_runs

    out = arguments.out
    studies = {folder: found for folder in arguments.folders if (found := read_study(folder))}
    runs = [folder for folder in arguments.folders if folder not in studies]
    if out and len(studies) + bool(runs) > 1:
        raise InputError(f"--out {out} is one figure, but every study has a figure of its own; leave --out out")
    files = []
    for folder, results in studies.items():
        drawn = plot_study(results, out or folder / "study")
        if not drawn:
            raise InputError(f"{folder}: nothing to draw yet; a study's figure needs two finished variants")
        files += drawn
    if runs or not studies:
        files += plot_runs(runs, out or (runs[0] / "curves" if runs else Path("curves")), arguments.x)
    for file in files:
        print(file)
