"""`bertworks tokenizer train` and `check`: vocabularies."""

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..data.corpus import InputOptions, read_documents
from ..files import InputError, remove_temporaries
from ..pretrained import folder_of
from ..reporting.outputs import check_output
from ..tokenizer import Tokenizer, TokenizerConfig
from ..tokenizer.folder import WRITTEN
from .arguments import CASED, ENCODING, Flat, Positional, Texts, parse


@dataclass(frozen=True)
class TrainArguments:
    """Train a vocabulary on text.

    Example:
        bertworks tokenizer train texts/ --out tok --vocab-size 30000 --cased

    Short forms: --uncased and --cased mean --lowercase and --no-lowercase.
    """

    data: Texts  # text: files, folders, globs or archives (or: --data DATA ...)
    out: Path  # folder to write: tokenizer.json, tokenizer_config.json, and the vocabulary in its usual format
    config: Flat[TokenizerConfig] = field(default_factory=TokenizerConfig)
    input: InputOptions = field(default_factory=InputOptions)
    overwrite: bool = False  # replace another tokenizer in the folder; without this flag the command refuses to


def train(argv: list[str]) -> None:
    """Train the tokenizer, and write its folder."""
    arguments = parse(TrainArguments, argv, "tokenizer train", {**CASED, **ENCODING})
    out = arguments.out
    for name in WRITTEN:
        check_output(out / name, arguments.data, makes_folder=True)
    remove_temporaries(out)
    print("reading the text, then training the vocabulary", file=sys.stderr, flush=True)
    texts = (document.text for document in read_documents(arguments.data, arguments.input))
    tokenizer = Tokenizer.train(texts, arguments.config)
    if not arguments.overwrite and tokenizer.differs_from(out):
        raise InputError(f"{out} holds another tokenizer; give another --out, or --overwrite to replace it")
    tokenizer.save(out)
    size, requested = tokenizer.vocab_size, arguments.config.vocab_size
    summary = f"{size:,} tokens in the vocabulary"
    if size < requested:
        summary = f"{size:,} of {requested:,} tokens: the text has no more; give the model --model.vocab-size {size}"
    print(f"{out}: {summary}. Next: bertworks tokenizer check {shlex.quote(str(out))} TEXTS")


@dataclass(frozen=True)
class CheckArguments:
    """Check whether a vocabulary fits a text.

    Print subwords per word, the fraction of [UNK], and the missing characters.

    Example:
        bertworks tokenizer check tok texts/

    Short forms: --uncased and --cased mean --lowercase and --no-lowercase.
    """

    tokenizer: Positional[Path]
    """folder of a tokenizer, model or run, or a file of a tokenizer (or: --tokenizer TOKENIZER)"""
    data: Texts  # text: files, folders, globs or archives (or: --data DATA ...)
    lowercase: bool | None = None  # whether the tokenizer lower-cases; a vocab.txt alone does not record it
    input: InputOptions = field(default_factory=InputOptions)


def check(argv: list[str]) -> None:
    """Print the figures, and whether the vocabulary fits."""
    arguments = parse(CheckArguments, argv, "tokenizer check", {**CASED, **ENCODING})
    from ..tokenizer.check import check as check_vocabulary
    from ..tokenizer.check import normalizer_mismatch

    texts = (document.text for document in read_documents(arguments.data, arguments.input))
    tokenizer = Tokenizer.load(folder_of(arguments.tokenizer), arguments.lowercase)
    report = check_vocabulary(tokenizer, texts)
    if not report.words:
        raise InputError(f"{', '.join(map(str, arguments.data))}: no text to check the vocabulary with")
    reasons = "; ".join(filter(None, (report.reason, normalizer_mismatch(tokenizer))))
    missing = f"{' '.join(report.missing[:10])}{', ...' if len(report.missing) > 10 else ''}" or "none"
    print(
        f"{arguments.tokenizer} on {report.chars:,} characters: {report.words:,} words, "
        f"{report.subwords / report.words:.2f} subwords per word, {report.unknown / report.subwords:.3%} [UNK], "
        f"missing characters: {missing}\n{f'does not fit: {reasons}' if reasons else 'fits'}"
    )
