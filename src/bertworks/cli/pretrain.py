"""`bertworks pretrain`: an encoder from a corpus store."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..files import InputError
from ..pretraining.recipe import PretrainConfig
from ..reporting.log import duration, mebibytes
from ..reporting.progress import is_first_process
from .arguments import Flat, Positional, parse_recipe, value_of
from .exit_status import run_to_its_end


@dataclass(frozen=True)
class Arguments:
    """Pre-train an encoder on a corpus store. Rerun the command to resume.

    Example:
        bertworks pretrain cpu --corpus store --out runs/cpu
        bertworks pretrain cpu --corpus store --out runs/cpu --optim.lr 1e-4

    From raw text, which first builds a vocabulary and a store:
        bertworks pretrain korean --texts texts/ --language ko \\
            --corpus store --out runs/ko

    RECIPE is a name from `bertworks recipes` or a .toml file. Every field of it
    is a flag, whose default is the recipe's value.

    Most used (-H explains all flags):
        --corpus                 corpus store made by `bertworks corpus build`
        --texts, --language      raw text to build vocabulary and store from
        --out                    folder to write the model, log and results to
        --init                   model to continue from, instead of random weights
        --loop.hours             budget, instead of the recipe's; or --loop.steps, .tokens
        --optim.lr               peak learning rate
        --phases.0.batch-size    sequences per update; .length: tokens of each
        --model.hidden-size      size of the model; also --model.num-hidden-layers
        --objective              mlm+nsp (the paper), mlm (RoBERTa), ...
        --estimate               print the expected time and memory, train nothing
    """

    corpus: Path  # corpus store made by `bertworks corpus build`; with --texts the folder to build it in
    out: Path  # run folder to write; an unfinished run in it is resumed
    config: Flat[PretrainConfig]
    recipe: Positional[str | None] = None  # name from `bertworks recipes`, or a .toml file (or: --recipe RECIPE)
    # model folder or run folder whose weights and architecture the run starts from; none: random weights and the
    # recipe's architecture
    init: Path | None = None
    # text files, folders or archives: build a WordPiece vocabulary of the recipe's size (cased for Korean) in
    # CORPUS-tokenizer, and the store, before training. For other settings use `bertworks tokenizer train` and
    # `bertworks corpus build` instead
    texts: tuple[str, ...] = ()
    language: str = "en"  # language of --texts (ISO code: en, ko, de, ...)
    encoding: str = "utf-8"  # encoding of --texts
    # also log to this tracker, into the run folder (needs the extra `tensorboard`)
    log: Literal["tensorboard"] | None = None
    estimate: bool = False  # print the expected time and memory of the run, and train nothing


def pretrain(argv: list[str]) -> None:
    """Pre-train, or print the estimate; draw the curves of a finished run."""
    arguments = parse_recipe(Arguments, PretrainConfig, argv, "pretrain", _of_initial_model)
    from ..training.run import refuse_other_folder

    refuse_other_folder(arguments.out)  # before minutes of building a store
    config = _with_store(arguments) if arguments.texts else arguments.config
    if arguments.estimate:
        from ..pretraining.estimate import estimate

        return _print_estimate(estimate(config, arguments.corpus, init=arguments.init))
    from .. import api
    from ..apps.doctor.examination import of_pretraining
    from ..apps.doctor.listing import print_warnings
    from ..reporting.tracking import followed

    with followed(arguments.out, arguments.log if is_first_process() else None):
        run_to_its_end(
            lambda: api.pretrain(config, arguments.corpus, arguments.out, init=arguments.init).details or None
        )
    draw_curves(arguments.out)
    print_warnings(lambda: of_pretraining(arguments.out, arguments.corpus))


def _of_initial_model(recipe: PretrainConfig, argv: list[str]) -> PretrainConfig:
    """The recipe with the architecture of the model of --init, if that is given."""
    init = value_of(argv, "--init")
    if not init:
        return recipe
    from ..pretraining.job import of_shape

    return of_shape(recipe, Path(init))


def _with_store(arguments: Arguments) -> PretrainConfig:
    """Make vocabulary and store from --texts, unless they are there; returns the recipe with the vocabulary's size."""
    if arguments.init is not None:
        raise InputError("--texts makes a new vocabulary, which the weights of --init do not have; give a --corpus "
                         "built with the tokenizer of that folder")  # fmt: skip
    from ..pretraining.texts import build_from_texts

    config, corpus, requested = arguments.config, arguments.corpus, arguments.config.model.vocab_size
    settings = (requested, arguments.language, arguments.encoding)
    size = run_to_its_end(lambda: build_from_texts(arguments.texts, corpus, *settings)).vocab_size
    if size != requested:
        print(f"{corpus}-tokenizer: the text has {size:,} tokens, which is the model's vocabulary", file=sys.stderr)
    return replace(config, model=replace(config.model, vocab_size=size))


def _print_estimate(estimates: dict[str, float]) -> None:
    """Print the estimates, in the units of a run's log."""
    rows = {}
    for name, value in estimates.items():
        if name.endswith("hours"):
            rows[name.removesuffix("hours") + "time"] = duration(value * 3600)
        else:
            rows[name] = mebibytes(value) if name == "memory" else f"{value:,.0f}"
    for name, text in rows.items():
        print(f"{name:{max(map(len, rows))}}  {text}")


def draw_curves(run: Path) -> None:
    """Draw the curves of a finished run into its folder; a figure that fails costs a message, never the run."""
    if not is_first_process():
        return
    try:
        from ..reporting.figures import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no curves were drawn ({type(error).__name__}: {error}); the run is complete", file=sys.stderr)
