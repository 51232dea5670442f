"""The tokenizer that a store was built with, and how well it fits the store's text."""

from ..files import InputError
from ..tokenizer import Tokenizer, unknown_fraction
from .manifest import REBUILD
from .store import Store

MAX_UNKNOWN = 0.5  # largest fraction of [UNK] in a store that a model is trained on


def tokenizer_of(store: Store) -> Tokenizer:
    """The tokenizer that made the ids. Raises InputError if it is damaged or has another number of tokens."""
    tokenizer = Tokenizer.load(store.tokenizer_folder)
    if tokenizer.vocab_size != store.vocab_size:
        fault = f"a vocabulary of {tokenizer.vocab_size:,} tokens; expected {store.vocab_size:,} after the manifest"
        raise InputError(f"{store.tokenizer_folder}: {fault}; {REBUILD}")
    return tokenizer


def unknown_fraction_of(store: Store, tokenizer: Tokenizer) -> float:
    """Fraction of [UNK] among the tokens of the training split; `tokenizer` is the store's own."""
    return unknown_fraction(tokenizer, store.unigram_counts())


def check_unknown(store: Store, tokenizer: Tokenizer) -> None:
    """Raise InputError if the tokens are mostly [UNK], unless the build allowed that (`allow_unknown`).

    tokenizer: the store's own.
    """
    if not store.manifest.get("unknown allowed"):
        refuse_unknown(unknown_fraction_of(store, tokenizer), str(store.folder))


def refuse_unknown(fraction: float, where: str) -> None:
    """Raise InputError if `fraction`, that of [UNK] among the tokens of `where`, is above MAX_UNKNOWN."""
    if fraction > MAX_UNKNOWN:
        raise InputError(
            f"{where}: {fraction:.0%} of the tokens are [UNK], so the vocabulary does not fit the text; expected at "
            f"most {MAX_UNKNOWN:.0%}; look at `bertworks tokenizer check`, and train or choose another vocabulary "
            "(`bertworks tokenizer train`, with a larger --vocab-size or --limit-alphabet), or build the store "
            "nevertheless with `bertworks corpus build --allow-unknown`"
        )
