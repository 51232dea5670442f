"""`bertworks predict`: predictions for every line or row of a file."""

import sys

from .arguments import model_first


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
