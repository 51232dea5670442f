"""`bertworks submit`: the submission for GLUE's leaderboard."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from .arguments import Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Predict GLUE's test files with finished runs, and write the submission.

    Example:
        bertworks submit runs/glue/* --data glue --out submission.zip

    Missing files are listed: the leaderboard takes complete submissions only.
    """

    runs: Annotated[tuple[Path, ...], Positional, required("RUN")]
    """a run folder for each task; MNLI's also predicts AX"""
    data: Path  # folder with the tasks' folders: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX
    out: Path = Path("submission.zip")  # zip file to write
    fill: Literal["nothing", "majority"] = "nothing"  # majority: a task without a run gets its most frequent label


def submit(argv: list[str]) -> None:
    """Write the zip file, and print what is missing in it."""
    arguments = parse(Arguments, argv, "submit")
    from ..experiments.submission import ENTRIES
    from ..experiments.submission import submit as write_submission

    results = write_submission(arguments.runs, arguments.data, arguments.out, arguments.fill == "majority")
    cut = sum(facts["cut"] for facts in results["files"].values())
    truncated = f"; {cut:,} inputs were truncated" if cut else ""
    print(f"{arguments.out}: {len(results['files'])} of {len(ENTRIES)} files{truncated}")
    for name, why in results["missing"].items():
        print(f"missing {name}: {why}", file=sys.stderr)
    if results["missing"]:
        print("the leaderboard takes complete submissions only", file=sys.stderr)
