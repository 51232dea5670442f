"""`bertworks static`: static word vectors as a model folder."""

from dataclasses import dataclass, field
from pathlib import Path

from ..files import InputError
from ..pretraining.recipe import StaticConfig
from .arguments import Flat, parse


@dataclass(frozen=True)
class Arguments:
    """Write static word vectors as a model folder without layers, as a baseline.

    The vectors are trained by word2vec on a corpus store, or read from a file.

    Example:
        bertworks static --corpus store --out runs/word2vec
        bertworks static --vectors glove.txt --tokenizer tok --out runs/glove
    """

    out: Path  # model folder to write
    config: Flat[StaticConfig] = field(default_factory=StaticConfig)
    corpus: Path | None = None  # corpus store to train word2vec on
    vectors: Path | None = None  # instead of --corpus, a text file of vectors in the format of word2vec and GloVe
    tokenizer: Path | None = None  # for --vectors, the tokenizer whose vocabulary is looked up in the file


def static(argv: list[str]) -> None:
    """Train or read the vectors, and write the folder."""
    arguments = parse(Arguments, argv, "static")
    from ..pretraining.static import read_static, train_static

    out = arguments.out
    try:
        if arguments.corpus is not None:
            facts = train_static(arguments.corpus, out, arguments.config)
        elif arguments.vectors is not None and arguments.tokenizer is not None:
            facts = read_static(arguments.vectors, arguments.tokenizer, out)
        else:
            raise InputError("give --corpus STORE, or --vectors FILE with --tokenizer DIR")
    except ValueError as error:  # a number that the settings refuse
        raise InputError(str(error)) from None
    print(
        f"{out}: {facts['pieces_with_a_vector']:,} of {facts['pieces']:,} tokens of the vocabulary have a vector. "
        f"Next: bertworks finetune --model {out} --top.bilstm-layers 2 ..."
    )
