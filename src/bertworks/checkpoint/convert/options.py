"""The options of a conversion: the flags of `bertworks convert`. Importing them loads no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ConvertOptions:
    """What to change, and what the source does not say."""

    positions: int = 0  # longest input: position table cut, or repeated from its start; 0: unchanged
    do_lower_case: bool | None = None  # for a vocab.txt that does not say it: --do-lower-case or --cased
    hidden_act: Literal["gelu", "gelu_new"] | None = None  # of TensorFlow checkpoints before February 2019: gelu
    allow_pickle: bool = False  # allow reading pytorch_model.bin, by torch's restricted loader
