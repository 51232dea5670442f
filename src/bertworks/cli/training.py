"""Verbs that train a model, and the one that judges it. Imports stay inside the verbs, for the sake of --help."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

from .arguments import DevRows, model_flag


def pretrain(argv: list[str]) -> None:
    """Pre-train on a store: masked LM and next sentence. Typing the same line again resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..pretraining.estimate import estimate as estimate_run
    from ..pretraining.run import PretrainConfig
    from ..pretraining.run import pretrain as run

    @dataclass(frozen=True)
    class Command:
        """Pre-train on a store. Usage: bertworks pretrain RECIPE --corpus STORE --out RUN [--optim.lr 1e-4 ...]

        RECIPE: a name that `bertworks recipes` lists, or a .toml file of your own.
        """

        corpus: Path  # store made by `bertworks corpus build`
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[PretrainConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        init: Path | None = None  # model folder to continue from
        estimate: bool = False  # only say how long it will take and how much memory it needs

    command = _parse(Command, PretrainConfig, argv, "pretrain")
    if command.estimate:
        found = estimate_run(command.recipe, command.corpus, init=command.init)
        for name, value in found.items():
            print(f"{name:{max(map(len, found))}} {value:,.2f}")
        return
    _run_to_its_end(lambda: run(command.recipe, command.corpus, command.out, command.init))
    _plot_quietly(command.out)


def distill(argv: list[str]) -> None:
    """Teach a smaller student what a pre-trained teacher knows: --teacher FOLDER --corpus STORE --out RUN. Resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..pretraining.distill import DistillConfig
    from ..pretraining.distill import distill as run

    @dataclass(frozen=True)
    class Command:
        """Distil a pre-trained model. Usage: bertworks distill RECIPE --teacher FOLDER --corpus STORE --out RUN

        RECIPE: a name that `bertworks recipes` lists, or a .toml file of your own.
        """

        teacher: Path  # model folder or run folder with a masked-LM head
        corpus: Path  # store made with the teacher's tokenizer
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[DistillConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field

    command = _parse(Command, DistillConfig, argv, "distill")
    _run_to_its_end(lambda: run(command.recipe, command.teacher, command.corpus, command.out))
    _plot_quietly(command.out)


def _parse(command: Any, recipe: Any, argv: list[str], verb: str) -> Any:
    """The arguments: the recipe first, if there is one; its values are the defaults of the other flags."""
    import dataclasses

    import tyro

    from ..config import find_recipe, load_recipe
    from ..files import InputError

    path = find_recipe(argv[0], verb) if argv and not argv[0].startswith("-") else None
    base = load_recipe(path, recipe) if path else recipe()
    needed = (f.name for f in dataclasses.fields(command) if f.default is dataclasses.MISSING)
    start = command(**{**dict.fromkeys(needed, tyro.MISSING), "recipe": base})
    try:
        parsed = tyro.cli(command, args=argv[1:] if path else argv, default=start, prog=f"bertworks {verb}")
    except ValueError as error:  # a value that the recipe's own checks refuse
        raise InputError(str(error)) from None
    loop = parsed.recipe.loop
    if not (path or loop.steps or loop.tokens or loop.hours):
        raise InputError(
            f"no RECIPE, and no budget; write `bertworks {verb} RECIPE ...` (`bertworks recipes` lists them), or give "
            "one of --loop.steps, --loop.tokens, --loop.hours"
        )
    return parsed


def _run_to_its_end(run: Callable[[], Any]) -> None:
    """Leave with status 3 if the run was stopped before."""
    try:
        results = run()
    except KeyboardInterrupt:  # while the last evaluation ran: all is saved
        print("\nstopped; type the same line again to go on", file=sys.stderr)
        results = None
    if results is None:
        raise SystemExit(3)


def _plot_quietly(run: Any) -> None:
    """Curves into a finished run's folder; a plot that fails costs a line, never the run."""
    import os

    if os.environ.get("RANK", "0") != "0":  # one process of a torchrun draws
        return
    try:
        from ..reporting.figures import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no plot was made ({type(error).__name__}: {error}); the run is whole", file=sys.stderr)


def concat(argv: list[str]) -> None:
    """Join a left-to-right and a right-to-left model for fine-tuning, ELMo's way: LEFT RIGHT --out FOLDER."""
    from pathlib import Path

    import tyro

    from ..checkpoint.concat import concatenate

    def run(left: tyro.conf.Positional[Path], right: tyro.conf.Positional[Path], out: Path) -> None:
        """Write a folder with both encoders; their vectors stand end to end.

        Args:
            left: run or model folder of objective "ltr"
            right: run or model folder of objective "rtl", of the same shape and vocabulary
            out: the model folder to write
        """
        concatenate(left, right, out)
        print(f"{out}: a pair of encoders. Next: bertworks finetune --model {out} ...")

    tyro.cli(run, prog="bertworks concat", args=argv)


def static(argv: list[str]) -> None:
    """Static word vectors as a model folder: word2vec on a store (--corpus), or a file of vectors (--vectors)."""
    from pathlib import Path

    import tyro

    from ..files import InputError
    from ..pretraining.static import StaticConfig, read_static, train_static

    def run(
        out: Path,
        config: Annotated[StaticConfig, tyro.conf.arg(name="")] = StaticConfig(),  # noqa: B008
        corpus: Path | None = None,
        vectors: Path | None = None,
        tokenizer: Path | None = None,
    ) -> None:
        """An encoder without layers: the baseline from before contextual vectors.

        Args:
            out: the model folder to write
            corpus: store to train word2vec on
            vectors: instead, a text file of vectors, as word2vec and GloVe write it
            tokenizer: with --vectors, the vocabulary whose words are looked up
        """
        if corpus is not None:
            facts = train_static(corpus, out, config)
        elif vectors is not None and tokenizer is not None:
            facts = read_static(vectors, tokenizer, out)
        else:
            raise InputError("give --corpus STORE, or --vectors FILE with --tokenizer DIR")
        print(f"{out}: {facts['pieces_with_a_vector']:,} of {facts['pieces']:,} pieces have a vector. Next: "
              f"bertworks finetune --model {out} --top.bilstm-layers 2 ...")  # fmt: skip

    try:
        tyro.cli(run, prog="bertworks static", args=argv)
    except ValueError as error:  # a number that the settings refuse
        raise InputError(str(error)) from None


def finetune(argv: list[str]) -> None:
    """Fine-tune: --task NAME --data DIR, or your own --train, --dev, --text, --label; --sweep; --suite. Resumes."""
    from .finetuning import run

    run(argv)


def evaluate(argv: list[str]) -> None:
    """Judge a fine-tuned folder: --model FOLDER --task NAME --data DIR, or --dev FILE --text --label."""
    from pathlib import Path

    import tyro

    from ..files import to_json, write_json
    from ..inference.evaluate import evaluate as judge

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


def compare(argv: list[str]) -> None:
    """Two finished runs on the same dev rows: their difference, with a confidence interval. RUN RUN [--out FILE]."""
    from pathlib import Path

    import tyro

    from ..experiments.compare import compare as compare_runs
    from ..experiments.compare import table
    from ..files import write_json

    def run(
        first: tyro.conf.Positional[Path],
        second: tyro.conf.Positional[Path],
        samples: int = 10_000,
        seed: int = 1,
        out: Path | None = None,
    ) -> None:
        """The second run's metrics minus the first's, paired by example; runs of several seeds also by seed.

        Args:
            first: run folder of `bertworks finetune`, or one with several seeds
            second: another one on the same task and development rows
            samples: times that the examples are drawn anew for the interval
            seed: of these draws
            out: write all of it here, as JSON
        """
        results = compare_runs(first, second, samples, seed)
        if out is not None:
            write_json(out, results)
        table(results).show()

    tyro.cli(run, prog="bertworks compare", args=argv)
