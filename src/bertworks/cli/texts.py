"""Verbs on text: vocabularies and corpus stores. Imports stay inside the verbs, for the sake of --help."""

import shlex
import sys

CASES = {"--cased": "--lowercase=False", "--uncased": "--lowercase=True"}


def _cases(argv: list[str]) -> list[str]:
    """The arguments with --lowercase for --cased or --uncased. Raises InputError if both are given."""
    from ..files import InputError

    if {*CASES} <= {*argv}:
        raise InputError("--cased and --uncased; expected one of them; leave the other out")
    return [CASES.get(word, word) for word in argv]


def tokenizer_train(argv: list[str]) -> None:
    """Train a vocabulary on text: INPUT... --out DIR [--model wordpiece|bpe|unigram] [--vocab-size 30000] [--cased]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from ..data.corpus import InputOptions, read_documents
    from ..files import InputError, remove_temporaries
    from ..tokenizer import Tokenizer, TokenizerConfig

    def train(
        inputs: tyro.conf.Positional[tuple[str, ...]],
        out: Path,
        config: Annotated[TokenizerConfig, tyro.conf.arg(name="")] = TokenizerConfig(),  # noqa: B008
        input: InputOptions = InputOptions(),  # noqa: B008
        overwrite: bool = False,
    ) -> None:
        """Train a vocabulary (--cased and --uncased stand for --lowercase=False and --lowercase=True).

        Args:
            inputs: files, folders, globs or archives of text
            out: folder for tokenizer.json, the vocabulary as other software reads it, and tokenizer_config.json
            overwrite: replace another tokenizer in that folder; without this flag it is kept and the command fails
        """
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: a file; expected a folder, or a path where there is nothing yet")
        remove_temporaries(out)
        tokenizer = Tokenizer.train((document.text for document in read_documents(inputs, input)), config)
        if not overwrite and tokenizer.differs_from(out):
            raise InputError(f"{out} holds another tokenizer; give another --out, or --overwrite to replace it")
        tokenizer.save(out)
        next_line = shlex.join(["bertworks", "tokenizer", "check", str(out), *inputs])
        print(f"{out}: {tokenizer.vocab_size:,} pieces. Next: {next_line}")

    tyro.cli(train, prog="bertworks tokenizer train", args=_cases(argv))


def tokenizer_check(argv: list[str]) -> None:
    """Judge a vocabulary on text: subwords per word and [UNK] by script, what cannot match, a verdict."""
    from pathlib import Path

    import tyro
    from rich import print as show
    from rich.markup import escape
    from rich.table import Table

    from ..data.corpus import InputOptions, read_documents
    from ..tokenizer import Tokenizer
    from ..tokenizer.check import check

    def run(
        tokenizer: tyro.conf.Positional[Path],
        inputs: tyro.conf.Positional[tuple[str, ...]],
        lowercase: bool | None = None,
        input: InputOptions = InputOptions(),  # noqa: B008
    ) -> None:
        """Subwords per word and share of [UNK] by script, warnings, and a verdict: does the vocabulary fit the text?

        Args:
            tokenizer: folder, tokenizer.json, vocab.txt, vocab.json or .model
            inputs: files, folders, globs or archives of text
            lowercase: must be said for a vocab.txt (--uncased and --cased stand for True and False)
        """
        texts = (document.text for document in read_documents(inputs, input))
        report = check(Tokenizer.load(tokenizer, lowercase), texts)
        table = Table("script", title=f"{tokenizer} on {report.chars:,} characters")
        for name in ("words", "subwords per word", "[UNK]"):
            table.add_column(escape(name), justify="right")
        for row in [*report.scripts, report.total]:
            shares = (f"{row.pieces / row.words:.2f}", f"{row.unknown / row.words:.3%}") if row.words else ("-", "-")
            table.add_row(row.script, f"{row.words:,}", *shares)
        show(table, *(f"[bold yellow]warning:[/] {escape(warning)}" for warning in report.warnings), sep="\n")
        print(f"verdict: {report.verdict}")

    tyro.cli(run, prog="bertworks tokenizer check", args=_cases(argv))


def corpus_build(argv: list[str]) -> None:
    """Text to a corpus store: INPUT... --tokenizer DIR --out STORE [--workers N]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from ..data.build import BuildConfig, build
    from ..tokenizer import Tokenizer

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
        counts = build(inputs, Tokenizer.load(tokenizer), out, config)["counts"]
        train = counts["train"]
        print(f"{out}: {train['tokens']:,} tokens in {train['documents']:,} documents to train on")
        if left_out := ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items() if count):
            print(f"left out: {left_out}")
        print(f"Next: {shlex.join(['bertworks', 'corpus', 'show', str(out)])}")

    try:
        tyro.cli(run, prog="bertworks corpus build", args=argv)
    except KeyboardInterrupt:
        print("\nstopped; the same line continues", file=sys.stderr)
        raise SystemExit(130) from None


def corpus_show(argv: list[str]) -> None:
    """What a corpus store holds and how it was built: STORE."""
    from pathlib import Path

    import tyro

    from ..data.show import show

    def run(store: tyro.conf.Positional[Path], documents: int = 3, instances: int = 3, length: int = 128) -> None:
        """Check a store and print its manifest, its counts, the beginning of some documents, and training instances.

        Args:
            store: folder made by `bertworks corpus build`
            documents: how many documents to print
            instances: how many training instances to print, masked, with their pair label
            length: tokens of an instance
        """
        from ..data.batches import PretrainingData, Vocabulary, decoded
        from ..data.instances import InstanceConfig
        from ..data.masking import MaskingConfig

        opened = show(store, documents)
        tokenizer = opened.load_tokenizer()
        vocabulary = Vocabulary.of(tokenizer)
        data = PretrainingData(opened, "train", vocabulary, length, InstanceConfig(), MaskingConfig(), seed=12345)
        print("\nTraining instances; a predicted token stands as what-is-there<what-was-there>")
        for line in decoded(data, tokenizer, instances):
            print(f"\n{line}")

    tyro.cli(run, prog="bertworks corpus show", args=argv)
