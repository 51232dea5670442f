"""`bertworks submit`: answers for GLUE's leaderboard."""

import sys


def submit(argv: list[str]) -> None:
    """Answer GLUE's test files with finished runs: RUN... --data GLUE --out submission.zip [--fill majority]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    def run(
        runs: tyro.conf.Positional[tuple[Path, ...]],
        data: Path,
        out: Path = Path("submission.zip"),
        fill: Literal["nothing", "majority"] = "nothing",
    ) -> None:
        """Write the zip file that GLUE's leaderboard takes, and say what is missing in it.

        Args:
            runs: run folders of `bertworks finetune --task ...`, one a task; MNLI's answers MNLI-m, MNLI-mm and AX
            data: folder with the tasks' folders: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX
            out: the zip file
            fill: majority answers tests without a run by the most frequent training label, as is usual for WNLI
        """
        from ..experiments.submission import ENTRIES, submit

        results = submit(runs, data, out, fill == "majority")
        cut = sum(facts["cut"] for facts in results["files"].values())
        print(f"{out}: {len(results['files'])} of {len(ENTRIES)} files" + (f"; {cut:,} inputs were cut" if cut else ""))
        for name, why in results["missing"].items():
            print(f"missing {name}: {why}", file=sys.stderr)
        if results["missing"]:
            print("the leaderboard takes complete submissions only", file=sys.stderr)

    tyro.cli(run, prog="bertworks submit", args=argv)
