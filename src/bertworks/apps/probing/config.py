"""The settings of each probe: the flags of `bertworks probe`. Importing them loads no torch."""

from dataclasses import dataclass

from ...data.languages import check_language
from ...files import InputError


@dataclass(frozen=True)
class WordConfig:
    """How `bertworks probe word` compares."""

    layer: int = -2  # for the matrix of more than two sentences: 1 to L, 0 the embeddings, -1 the last
    beginning: bool = False  # also find longer words that begin with the word (Korean nouns with particles)
    pairs: int = 10_000  # pairs of different words for the baseline, at most; drawn at random
    seed: int = 1  # seed of the random choice of pairs

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.seed < 0:
            raise InputError(f"pairs = {self.pairs}, seed = {self.seed}; expected 1 or more, and a seed of 0 or more")


@dataclass(frozen=True)
class NeighbourConfig:
    """How `bertworks probe neighbours` searches."""

    sentence: str = ""  # a sentence with the word in the wanted meaning; default: the word alone
    layer: int = -2  # layer of the vectors: 1 to L, 0 the embeddings, -1 the last, -2 the second to last
    top: int = 10  # number of contexts to print
    limit: int = 10_000  # occurrences of the word to embed; reading ends there
    beginning: bool = False  # also find longer words that begin with the word (Korean nouns with particles)
    language: str = "en"  # language of the rules that split texts into sentences

    def __post_init__(self) -> None:
        check_language(self.language)
        if self.top < 1 or self.limit < 1:
            raise InputError(f"top = {self.top}, limit = {self.limit}; expected 1 or more")


@dataclass(frozen=True)
class HeadsConfig:
    """How `bertworks probe heads` measures."""

    examples: int = 1000  # development rows to evaluate on, drawn at random; 0: all
    seed: int = 1  # seed of the random choice of rows
    batch_size: int = 64  # rows in each forward pass

    def __post_init__(self) -> None:
        if min(self.examples, self.seed) < 0 or self.batch_size < 1:
            raise InputError("expected examples and seed of 0 or more, and a batch_size of 1 or more")


@dataclass(frozen=True)
class LayersConfig:
    """How `bertworks probe layers` measures."""

    train_items: int = 5000  # labelled items (texts, or words of whole sentences) to train on, drawn at random; 0: all
    dev_items: int = 2000  # labelled items to evaluate on, drawn at random; 0: all
    seeds: int = 3  # probes of each layer; each leaves out a random tenth of the items and draws its own control
    first_seed: int = 1  # seed of the first probe; the next probes count up from it
    l2: float = 100.0  # L2 penalty: half of it times the squared weights is added to the summed loss
    steps: int = 300  # largest number of L-BFGS steps
    max_seq_length: int = 128  # tokens of an input; longer texts are cut, longer sentences are read in windows

    def __post_init__(self) -> None:
        if (
            min(self.seeds, self.steps) < 1
            or self.l2 <= 0
            or min(self.train_items, self.dev_items, self.first_seed) < 0
        ):
            raise InputError("expected seeds and steps of 1 or more, l2 above 0, items and first_seed of 0 or more")
        if self.max_seq_length < 8:
            raise InputError(f"max_seq_length = {self.max_seq_length}; expected 8 or more, for a few words")
