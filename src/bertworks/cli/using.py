"""Verbs that use or show what is trained, and the demo. Imports stay inside the verbs, for the sake of --help."""

import sys
from typing import Annotated

from .arguments import model_first


def fill_mask(argv: list[str]) -> None:
    """Guess the words at [MASK]: FOLDER "text with [MASK]" [--top-k 5]."""
    from pathlib import Path

    import tyro

    from ..inference.predictor import Predictor

    def run(folder: tyro.conf.Positional[Path], text: tyro.conf.Positional[str], top_k: int = 5) -> None:
        """The likeliest pieces for each [MASK], with their probabilities.

        Args:
            folder: model folder or run folder with a masked-LM head (or --model FOLDER)
            text: text with one or more [MASK]
            top_k: candidates for each mask
        """
        predictor = Predictor(folder)
        if predictor.note:
            print(predictor.note, file=sys.stderr)
        for number, candidates in enumerate(predictor.fill_mask(text, top_k), 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")

    tyro.cli(run, prog="bertworks fill-mask", args=model_first(argv))


def predict(argv: list[str]) -> None:
    """Predict for every line or row of a file, whatever the folder does: FOLDER FILE [--out FILE]; `-` is stdin."""
    from pathlib import Path

    import tyro

    from ..files import InputError, to_json
    from ..inference.files import Columns, predict_file, predict_texts
    from ..inference.predictor import Predictor

    def run(
        folder: tyro.conf.Positional[Path],
        file: tyro.conf.Positional[str] = "",
        string: tuple[str, ...] = (),
        text: str = "",
        choices: str = "",
        out: Path | None = None,
        all_scores: bool = False,
        n_best: int = 1,
    ) -> None:
        """Write a JSON object for each input: a label, entities, an answer or a choice, by the folder's kind.

        Args:
            folder: run folder of `bertworks finetune`, or a model folder with a supervised head (or --model FOLDER)
            file: text, a line each (empty lines are not predicted); .csv, .tsv, .jsonl, .parquet; questions in
                SQuAD's layout (.json); - for stdin
            string: instead of a file the texts of one input: a text, a pair, question and context, text and choices
            text: text column of a table, or two of them with a comma between
            choices: columns of a multiple choice, commas between
            out: file to write; standard output if left out
            all_scores: classification: add the probabilities of all labels
            n_best: answers: how many of them
        """
        if bool(file) == bool(string):
            raise InputError("give a FILE, - for standard input, or --string with the texts of one input")
        predictor = Predictor(folder)
        if predictor.note:
            print(predictor.note, file=sys.stderr)
        if string:
            for result in predict_texts(predictor, [string], all_scores, n_best):
                print(to_json(result))
            return
        columns = Columns(*(tuple(name for name in names.split(",") if name) for names in (text, choices)))
        counts = predict_file(predictor, file, columns, out, all_scores, n_best)
        cut = predictor.truncated
        lost = f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to {predictor.max_length}"
        empty = f", {counts.empty:,} of them empty and not predicted" if counts.empty else ""
        print(f"{counts.inputs:,} inputs{lost if cut['examples'] else ''}{empty}", file=sys.stderr)

    tyro.cli(run, prog="bertworks predict", args=model_first(argv))


def plot(argv: list[str]) -> None:
    """Curves of runs, several on one axis, or the picture of a study: RUN|STUDY... [--out F] [--x tokens]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    from ..experiments.figures import plot_study, read_study
    from ..files import InputError
    from ..reporting.figures import plot_runs

    def run(
        folders: tyro.conf.Positional[tuple[Path, ...]],
        out: Path | None = None,
        x: Literal["step", "tokens", "seconds"] = "step",
    ) -> None:
        """Draw what run folders logged, all on one axis, and what studies found, a picture each; as PNG and SVG.

        Args:
            folders: of `bertworks pretrain`, `bertworks finetune` or `bertworks study`, finished or not
            out: file that ends in .png or .svg, or a name without ending for both; if left out, RUN/curves of the
                first run and STUDY/study of every study
            x: what the horizontal axis of runs shows
        """
        studies = {folder: found for folder in folders if (found := read_study(folder))}
        runs = [folder for folder in folders if folder not in studies]
        if out and len(studies) + bool(runs) > 1:
            raise InputError(f"--out {out} is one picture, but every study has one of its own; give no --out")
        files = []
        for folder, results in studies.items():
            drawn = plot_study(results, out or folder / "study")
            if not drawn:
                raise InputError(f"{folder}: nothing to draw yet; a study's picture needs two finished variants")
            files += drawn
        if runs or not studies:
            files += plot_runs(runs, out or (runs[0] / "curves" if runs else Path("curves")), x)
        for file in files:
            print(file)

    tyro.cli(run, prog="bertworks plot", args=argv)


def demo(argv: list[str]) -> None:
    """The whole road in minutes on this machine's own text, no download: [--minutes 5] [--out runs/demo]."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..demo.run import DemoConfig, default_config
    from ..demo.run import demo as run

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
