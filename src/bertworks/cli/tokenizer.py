"""`bertworks tokenizer train`, `check` and `extend`: vocabularies."""

import shlex

CASES = {"--cased": "--lowercase=False", "--uncased": "--lowercase=True"}


def train(argv: list[str]) -> None:
    """Train a vocabulary on text: INPUT... --out DIR [--model wordpiece|bpe|unigram] [--vocab-size 30000] [--cased]."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from ..data.corpus import InputOptions, read_documents
    from ..files import InputError, remove_temporaries
    from ..tokenizer import Tokenizer, TokenizerConfig

    def run(
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

    tyro.cli(run, prog="bertworks tokenizer train", args=_cases(argv))


def check(argv: list[str]) -> None:
    """Judge a vocabulary on text: subwords per word and [UNK] by script, what cannot match, a verdict."""
    from pathlib import Path

    import tyro
    from rich import print as show
    from rich.markup import escape
    from rich.table import Table

    from ..data.corpus import InputOptions, read_documents
    from ..tokenizer import Tokenizer
    from ..tokenizer.check import check as check_vocabulary

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
        report = check_vocabulary(Tokenizer.load(tokenizer, lowercase), texts)
        table = Table("script", title=f"{tokenizer} on {report.chars:,} characters")
        for name in ("words", "subwords per word", "[UNK]"):
            table.add_column(escape(name), justify="right")
        for row in [*report.scripts, report.total]:
            shares = (f"{row.pieces / row.words:.2f}", f"{row.unknown / row.words:.3%}") if row.words else ("-", "-")
            table.add_row(row.script, f"{row.words:,}", *shares)
        show(table, *(f"[bold yellow]warning:[/] {escape(warning)}" for warning in report.warnings), sep="\n")
        print(f"verdict: {report.verdict}")

    tyro.cli(run, prog="bertworks tokenizer check", args=_cases(argv))


def extend(argv: list[str]) -> None:
    """Add words to a WordPiece vocabulary, and rows to its model: FOLDER --words FILE --out DST."""
    from pathlib import Path

    import tyro

    from ..checkpoint.convert.extension import extend_folder

    def run(folder: tyro.conf.Positional[Path], words: Path, out: Path) -> None:
        """Put words in the place of [unused] entries, then behind the last one, and write a new folder.

        Args:
            folder: model folder, run folder, or folder of a tokenizer alone
            words: text file, a word a line
            out: folder to write, a new one
        """
        done = extend_folder(folder, words, out)
        for word, why in done.skipped.items():
            print(f"skipped {word}: {why}")
        vocab, behind = done.tokenizer.vocab, len(done.pieces) - done.slots
        for number, _ in sorted(done.pieces.items())[:20]:
            print(f"{number:>8}  {vocab[number]}")
        if len(done.pieces) > 20:
            print(f"     ... and {len(done.pieces) - 20:,} more")
        print(
            f"{out}: {len(done.pieces):,} words added, {done.slots:,} of them in place of [unused] entries, {behind:,} "
            f"behind them; {done.tokenizer.vocab_size:,} pieces. Their rows are means of their old pieces: train on"
        )

    tyro.cli(run, prog="bertworks tokenizer extend", args=argv)


def _cases(argv: list[str]) -> list[str]:
    """The arguments with --lowercase for --cased or --uncased. Raises InputError if both are given."""
    from ..files import InputError

    if {*CASES} <= {*argv}:
        raise InputError("--cased and --uncased; expected one of them; leave the other out")
    return [CASES.get(word, word) for word in argv]
