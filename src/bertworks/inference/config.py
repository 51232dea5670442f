"""The settings of features: the flags of `bertworks features`. Importing them loads no torch."""

from dataclasses import dataclass
from typing import Literal, get_type_hints

from ..files import InputError
from ..typed import check_fields


@dataclass(frozen=True)
class FeatureConfig:
    """Which vectors are taken from a text."""

    # layers that give the vectors: last, second-to-last, embeddings, concat-last-4, sum-last-4, sum-all, weighted-sum,
    # or numbers separated by commas: 0,5 from the lowest, -1,-2 from the highest
    layers: str = "last"
    pool: Literal["mean", "cls"] | None = None  # one vector for each text; none: one for each token
    words: Literal["first", "mean"] | None = None  # a vector for each word: its first subword's, or its subwords' mean
    specials: bool = False  # also write the vectors of [CLS] and [SEP]
    precision: Literal["float32", "bfloat16"] = "float32"  # number type of weights and products
    max_length: int | None = None  # tokens in a window of a long text; none: the model's longest input

    def __post_init__(self) -> None:
        check_fields(vars(self), get_type_hints(type(self)), "features", "give another value")
        if self.words and (self.pool or self.specials):
            other = "pool" if self.pool else "specials"
            raise InputError(f"words cannot be combined with {other}; leave one of them out")
