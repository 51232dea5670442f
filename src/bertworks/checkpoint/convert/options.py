"""The options of a conversion: the flags of `bertworks convert`. Importing them loads no torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ConvertOptions:
    """Changes to the model, and facts that the source folder does not contain."""

    positions: int = 0  # longest input in tokens: position embeddings are cut, or repeated from the first; 0: unchanged
    do_lower_case: bool | None = None  # whether to lower-case; needed for a bare vocab.txt
    hidden_act: Literal["gelu", "gelu_new"] | None = None  # gelu: for TensorFlow checkpoints before February 2019
    allow_pickle: bool = False  # allow reading pytorch_model.bin (tensors only)
