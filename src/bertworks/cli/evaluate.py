"""`bertworks evaluate`: the metrics of a fine-tuned folder."""

from typing import Annotated

from .arguments import DevRows, model_flag


def evaluate(argv: list[str]) -> None:
    """Judge a fine-tuned folder: --model FOLDER --task NAME --data DIR, or --dev FILE --text --label."""
    from pathlib import Path

    import tyro

    from ..files import to_json, write_json
    from ..inference.evaluation import evaluate as judge

    def run(
        model: Path,
        rows: Annotated[DevRows, tyro.conf.arg(name="")] = DevRows(),  # noqa: B008
        out: Path | None = None,
    ) -> None:
        """Print the metrics of a fine-tuned folder as JSON. Labels are matched by name.

        Args:
            model: run folder of `bertworks finetune`, or a model folder with a supervised head (or FOLDER without flag)
            out: write the JSON here too
        """
        results = judge(model, *rows.read())
        print(to_json(results, indent=1))
        if out is not None:
            write_json(out, results)

    tyro.cli(run, prog="bertworks evaluate", args=model_flag(argv))
