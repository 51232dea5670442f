"""`bertworks corpus build` and `show`: corpus stores."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from ..data.build import BuildConfig
from ..data.build import build as build_store
from .arguments import CASED, ENCODING, Flat, Positional, Texts, parse
from .exit_status import INTERRUPTED, run_to_its_end


@dataclass(frozen=True)
class BuildArguments:
    """Tokenize text into a corpus store. Rerun the command to resume.

    Example:
        bertworks corpus build texts/ --tokenizer tok --out store

    Short forms: --uncased and --cased mean --lowercase and --no-lowercase.
    """

    data: Texts  # text: files, folders, globs or archives (or: --data DATA ...)
    tokenizer: Path  # folder of a tokenizer, model or run; or a tokenizer.json or vocab.txt
    out: Path  # folder to write the store to; it must be new, or hold the unfinished build
    lowercase: bool | None = None  # whether the tokenizer lower-cases; a vocab.txt alone does not record it
    config: Flat[BuildConfig] = field(default_factory=BuildConfig)


def build(argv: list[str]) -> None:
    """Build the store, and print what it contains."""
    arguments = parse(BuildArguments, argv, "corpus build", {**CASED, **ENCODING})
    from ..apps.doctor.examination import of_store
    from ..apps.doctor.listing import print_warnings
    from ..pretrained import folder_of
    from ..reporting.tables import counted
    from ..tokenizer import Tokenizer

    out, tokenizer = arguments.out, Tokenizer.load(folder_of(arguments.tokenizer), arguments.lowercase)
    manifest = run_to_its_end(lambda: build_store(arguments.data, tokenizer, out, arguments.config), INTERRUPTED)
    counts = manifest["counts"]
    train, held_out = (counted(counts[split]["documents"], "document") for split in ("train", "validation"))
    print(f"{out}: {counts['train']['tokens']:,} tokens in {train} to train on, {held_out} held out")
    if left_out := ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items() if count):
        print(f"left out: {left_out}")
    print_warnings(lambda: of_store(out))
    print(f"Next: {shlex.join(['bertworks', 'corpus', 'show', str(out)])}")


@dataclass(frozen=True)
class ShowArguments:
    """Check a corpus store; print its counts, some documents and training instances.

    Example:
        bertworks corpus show store
    """

    corpus: Positional[Path]  # corpus store made by `bertworks corpus build` (or: --corpus CORPUS)
    documents: int = 3  # number of documents to print
    instances: int = 3  # number of masked training instances to print, with their pair labels
    length: int = 128  # sequence length of an instance, in tokens


def show(argv: list[str]) -> None:
    """Print the store's contents."""
    arguments = parse(ShowArguments, argv, "corpus show")
    from ..data.batches import PretrainingData, Vocabulary
    from ..data.instances import InstanceConfig
    from ..data.masking import MaskingConfig
    from ..data.show import instances_as_text
    from ..data.show import show as show_store
    from ..data.vocabulary import tokenizer_of

    store = show_store(arguments.corpus, arguments.documents)
    if arguments.instances < 1:
        return
    tokenizer = tokenizer_of(store)
    settings = (arguments.length, InstanceConfig(), MaskingConfig())
    data = PretrainingData(store, "train", Vocabulary.of(tokenizer), *settings, seed=12345)
    print("\nTraining instances; tokens to predict are shown as input<original>")
    for line in instances_as_text(data, tokenizer, arguments.instances):
        print(f"\n{line}")
