"""The settings of features: the flags of `bertworks features`. Importing them loads no torch."""

from dataclasses import dataclass
from typing import Literal

from ..files import InputError


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
        for name, allowed in (
            ("pool", (None, "mean", "cls")),
            ("words", (None, "first", "mean")),
            ("precision", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} = {getattr(self, name)!r}; expected {', '.join(map(str, allowed))}")
        if self.words and (self.pool or self.specials):
            raise InputError(
                f"words cannot be combined with {'pool' if self.pool else 'specials'}; leave one of them out"
            )
