"""The settings of each probe: the flags of `bertworks probe`. Importing them loads no torch."""

from dataclasses import dataclass

from ...data.languages import check_language
from ...files import InputError


@dataclass(frozen=True)
class WordConfig:
    """How `bertworks probe word` compares."""

    layer: int = -2  # layer of the matrix of three or more sentences: 1 to L; 0 embeddings, -1 last, -2 second to last
    beginning: bool = False  # also find longer words that begin with the word (Korean nouns with particles)
    pairs: int = 10_000  # largest number of random pairs of different words for the baseline
    seed: int = 1  # seed of the random choice of pairs

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.seed < 0:
            raise InputError(f"pairs = {self.pairs}, seed = {self.seed}; expected 1 or more, and a seed of 0 or more")


@dataclass(frozen=True)
class NeighbourConfig:
    """How `bertworks probe neighbours` searches."""

    sentence: str = ""  # sentence with the word in the meaning to search for; default: the word alone
    layer: int = -2  # layer of the vectors: 1 to L, 0 the embeddings, -1 the last, -2 the second to last
    top: int = 10  # number of contexts to print
    limit: int = 10_000  # stop after so many occurrences of the word
    beginning: bool = False  # also find longer words that begin with the word (Korean nouns with particles)
    language: str = "en"  # language of the rules that split texts into sentences

    def __post_init__(self) -> None:
        check_language(self.language)
        if self.top < 1 or self.limit < 1:
            raise InputError(f"top = {self.top}, limit = {self.limit}; expected 1 or more")


@dataclass(frozen=True)
class HeadsConfig:
    """How `bertworks probe heads` measures."""

    examples: int = 1000  # number of development examples to evaluate on, drawn at random; 0: all
    seed: int = 1  # seed of this random choice
    batch_size: int = 64  # examples per forward pass

    def __post_init__(self) -> None:
        if min(self.examples, self.seed) < 0 or self.batch_size < 1:
            raise InputError("expected examples and seed of 0 or more, and a batch_size of 1 or more")


@dataclass(frozen=True)
class LayersConfig:
    """How `bertworks probe layers` measures."""

    train_items: int = 5000  # number of texts (tagging: words) to train on, drawn at random; 0: all
    dev_items: int = 2000  # number of texts (tagging: words) to evaluate on, drawn at random; 0: all
    seeds: int = 3  # classifiers per layer, each trained on a random nine tenths, with its own control labels
    first_seed: int = 1  # seed of the first classifier; the others have the next numbers
    l2: float = 100.0  # L2 penalty: l2 / 2 times the squared weights is added to the summed loss
    steps: int = 300  # largest number of L-BFGS steps
    max_seq_length: int = 128  # longest input in tokens; longer texts are truncated (tagging: divided into windows)

    def __post_init__(self) -> None:
        if (
            min(self.seeds, self.steps) < 1
            or self.l2 <= 0
            or min(self.train_items, self.dev_items, self.first_seed) < 0
        ):
            raise InputError("expected seeds and steps of 1 or more, l2 above 0, items and first_seed of 0 or more")
        if self.max_seq_length < 8:
            raise InputError(f"max_seq_length = {self.max_seq_length}; expected 8 or more, for a few words")
