"""Verbs that use or show what is trained, and the demo. Imports stay inside the verbs, for the sake of --help."""

import sys
from typing import Annotated


def fill_mask(argv: list[str]) -> None:
    """Guess the words at [MASK]: FOLDER "text with [MASK]" [--top-k 5]."""
    from pathlib import Path

    import tyro

    from ..predictor import Predictor

    def run(folder: tyro.conf.Positional[Path], text: tyro.conf.Positional[str], top_k: int = 5) -> None:
        """The likeliest pieces for each [MASK], with their probabilities.

        Args:
            folder: model folder or run folder with a masked-LM head
            text: text with one or more [MASK]
            top_k: candidates for each mask
        """
        for number, candidates in enumerate(Predictor(folder).fill_mask(text, top_k), 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")

    tyro.cli(run, prog="bertworks fill-mask", args=argv)


def predict(argv: list[str]) -> None:
    """Label every line or row of a file: FOLDER FILE [--text col[,col2]] [--out FILE]; `-` reads lines from stdin."""
    from pathlib import Path

    import tyro

    from ..predictor import Predictor, predict_file

    def run(
        folder: tyro.conf.Positional[Path],
        file: tyro.conf.Positional[str],
        text: str = "text",
        out: Path | None = None,
        all_scores: bool = False,
    ) -> None:
        """Write a JSON object a row: line, label, score, and cut (tokens that did not fit).

        Args:
            folder: run folder of `bertworks finetune`, or a model folder with a classifier
            file: text, a line each; or .csv, .tsv, .jsonl; or - for lines from standard input
            text: text column of a table, or two of them with a comma between
            out: file to write; standard output if left out
            all_scores: add the probabilities of all labels
        """
        predictor = Predictor(folder)
        rows = predict_file(predictor, file, tuple(text.split(",")), out, all_scores)
        cut = predictor.truncated
        print(f"{rows:,} rows" + (f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to "
              f"{predictor.max_length}" if cut["examples"] else ""), file=sys.stderr)  # fmt: skip

    tyro.cli(run, prog="bertworks predict", args=argv)


def plot(argv: list[str]) -> None:
    """Loss and accuracy curves of runs, several on one axis: RUN... [--out F] [--x tokens]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    from ..plots import plot_runs

    def run(
        runs: tyro.conf.Positional[tuple[Path, ...]],
        out: Path | None = None,
        x: Literal["step", "tokens", "seconds"] = "step",
    ) -> None:
        """Draw what run folders logged, as PNG and SVG.

        Args:
            runs: folders of `bertworks pretrain` or `bertworks finetune`, finished or not
            out: file that ends in .png or .svg, or a name without ending for both; RUN/curves of the first if left out
            x: what the horizontal axis shows
        """
        for file in plot_runs(runs, out or (runs[0] / "curves" if runs else Path("curves")), x):
            print(file)

    tyro.cli(run, prog="bertworks plot", args=argv)


def demo(argv: list[str]) -> None:
    """The whole road in minutes on this machine's own text, no download: [--minutes 5] [--out runs/demo]."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..demo import DemoConfig, default_config
    from ..demo import demo as run

    @dataclass(frozen=True)
    class Command:
        """Pre-train a small BERT on the documentation strings of this Python, and show what that bought."""

        recipe: Annotated[DemoConfig, tyro.conf.arg(name="")]  # demo.toml, field by field
        out: Path = Path("runs/demo")  # run folder; the same line goes on where it stopped

    command = tyro.cli(Command, args=argv, default=Command(default_config()), prog="bertworks demo")
    try:
        results = run(command.recipe, command.out)
    except KeyboardInterrupt:
        print("\nstopped; the same line continues", file=sys.stderr)
        raise SystemExit(130) from None
    if results is None:
        raise SystemExit(3)
