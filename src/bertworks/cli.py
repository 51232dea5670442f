"""`bertworks VERB ...`: one command, a verb a function. Every import sits inside its verb, so that --help is instant."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

Verb = Callable[[list[str]], None]


def tokenizer_train(argv: list[str]) -> None:
    """Train a vocabulary on text: INPUT... --out DIR [--vocab-size 30000] [--cased | --uncased]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from .data.corpus import InputOptions, read_documents
    from .tokenizer import Tokenizer, TokenizerConfig

    def train(
        inputs: tyro.conf.Positional[tuple[str, ...]],
        out: Path,
        config: Annotated[TokenizerConfig, tyro.conf.arg(name="")] = TokenizerConfig(),  # noqa: B008
        input: InputOptions = InputOptions(),  # noqa: B008
    ) -> None:
        """Train a WordPiece vocabulary (--cased and --uncased stand for --no-lowercase and --lowercase).

        Args:
            inputs: files, folders, globs or archives of text
            out: folder for tokenizer.json, vocab.txt and tokenizer_config.json
        """
        tokenizer = Tokenizer.train((document.text for document in read_documents(inputs, input)), config)
        tokenizer.save(out)
        print(f"{out}: {tokenizer.vocab_size:,} pieces. Next: bertworks tokenizer check {out} {' '.join(inputs)}")

    short = {"--cased": "--no-lowercase", "--uncased": "--lowercase"}
    tyro.cli(train, prog="bertworks tokenizer train", args=[short.get(word, word) for word in argv])


def tokenizer_check(argv: list[str]) -> None:
    """Judge a vocabulary on text: pieces per word and [UNK] by script, and what cannot match."""
    from pathlib import Path

    import tyro
    from rich import print as show
    from rich.markup import escape
    from rich.table import Table

    from .data.corpus import InputOptions, read_documents
    from .tokenizer import Tokenizer
    from .tokenizer_check import check

    def run(
        tokenizer: tyro.conf.Positional[Path],
        inputs: tyro.conf.Positional[tuple[str, ...]],
        lowercase: bool | None = None,
        input: InputOptions = InputOptions(),  # noqa: B008
    ) -> None:
        """Pieces per word and share of [UNK] by script, and warnings where vocabulary, normaliser and text do not fit.

        Args:
            tokenizer: folder, tokenizer.json or vocab.txt
            inputs: files, folders, globs or archives of text
            lowercase: must be said for a vocab.txt (--uncased and --cased stand for True and False)
        """
        texts = (document.text for document in read_documents(inputs, input))
        report = check(Tokenizer.load(tokenizer, lowercase), texts)
        table = Table("script", title=f"{tokenizer} on {report.chars:,} characters")
        for name in ("words", "pieces per word", "[UNK]"):
            table.add_column(escape(name), justify="right")
        for row in [*report.scripts, report.total]:
            shares = (f"{row.pieces / row.words:.2f}", f"{row.unknown / row.words:.3%}") if row.words else ("-", "-")
            table.add_row(row.script, f"{row.words:,}", *shares)
        show(table, *(f"[bold yellow]warning:[/] {escape(warning)}" for warning in report.warnings), sep="\n")

    short = {"--cased": "--lowercase=False", "--uncased": "--lowercase=True"}
    tyro.cli(run, prog="bertworks tokenizer check", args=[short.get(word, word) for word in argv])


def corpus_build(argv: list[str]) -> None:
    """Text to a corpus store: INPUT... --tokenizer DIR --out STORE [--workers N]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from .data.build import BuildConfig, build
    from .tokenizer import Tokenizer

    def run(
        inputs: tyro.conf.Positional[tuple[str, ...]],
        tokenizer: Path,
        out: Path,
        config: Annotated[BuildConfig, tyro.conf.arg(name="")] = BuildConfig(),  # noqa: B008
    ) -> None:
        """Build a corpus store. Typing the same line again after a stop continues the build.

        Args:
            inputs: files, folders, globs or archives of text
            tokenizer: folder made by `bertworks tokenizer train`, or any with a tokenizer.json
            out: folder for the store, a new one
        """
        train = build(inputs, Tokenizer.load(tokenizer), out, config)["counts"]["train"]
        print(f"{out}: {train['tokens']:,} tokens in {train['documents']:,} documents to train on")
        print(f"Next: bertworks corpus show {out}")

    try:
        tyro.cli(run, prog="bertworks corpus build", args=argv)
    except KeyboardInterrupt:
        print("\nstopped; the same line continues", file=sys.stderr)
        raise SystemExit(130) from None


def corpus_show(argv: list[str]) -> None:
    """What a corpus store holds and how it was built: STORE."""
    from pathlib import Path

    import tyro

    from .data.show import show

    def run(store: tyro.conf.Positional[Path], documents: int = 3) -> None:
        """Check a store and print its manifest, its counts and the beginning of some documents.

        Args:
            store: folder made by `bertworks corpus build`
            documents: how many documents to print
        """
        show(store, documents)

    tyro.cli(run, prog="bertworks corpus show", args=argv)


def pretrain(argv: list[str]) -> None:
    """Pre-train on a store: masked LM and next sentence. Typing the same line again resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from .config import load_recipe
    from .pretrain import PretrainConfig
    from .pretrain import estimate as estimate_run
    from .pretrain import pretrain as run

    recipe = argv[0] if argv and not argv[0].startswith("-") else None
    base = load_recipe(recipe, PretrainConfig) if recipe else PretrainConfig()

    @dataclass(frozen=True)
    class Command:
        """Pre-train on a store. Usage: bertworks pretrain RECIPE.toml --corpus STORE --out RUN [--optim.lr 1e-4 ...]"""

        corpus: Path  # store made by `bertworks corpus build`
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[PretrainConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        init: Path | None = None  # model folder to continue from
        estimate: bool = False  # only say how long it will take and how much memory it needs

    command = tyro.cli(
        Command, args=argv[1:] if recipe else argv, default=_with_recipe(Command, base), prog="bertworks pretrain"
    )
    if command.estimate:
        for name, value in estimate_run(command.recipe, command.corpus).items():
            print(f"{name:18} {value:,.2f}")
        return
    results = run(command.recipe, command.corpus, command.out, command.init)
    if results is None:
        raise SystemExit(3)


def _with_recipe(command: Any, base: Any) -> Any:
    """Defaults for tyro: everything as declared, the recipe as read from its file."""
    import tyro

    return command(corpus=tyro.MISSING, out=tyro.MISSING, recipe=base)


VERBS: dict[str, Verb] = {
    "tokenizer train": tokenizer_train,
    "tokenizer check": tokenizer_check,
    "corpus build": corpus_build,
    "corpus show": corpus_show,
    "pretrain": pretrain,
}


def main(argv: list[str] | None = None) -> None:
    """Find the verb, run it; bad input prints one message and exits with 1, wrong arguments exit with 2."""
    from .files import InputError

    argv = sys.argv[1:] if argv is None else argv
    for words in (2, 1):
        verb = VERBS.get(" ".join(argv[:words]))
        if verb:
            break
    else:
        print(_help())
        if argv and argv[0] not in ("-h", "--help"):
            print(f"\nunknown verb: {argv[0]}", file=sys.stderr)
            raise SystemExit(2)
        raise SystemExit(0)
    try:
        verb(argv[words:])
    except InputError as error:
        print(f"bertworks: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:<{width}}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(["usage: bertworks VERB [arguments]   (bertworks VERB --help explains one)", "", *lines])


if __name__ == "__main__":
    main()
