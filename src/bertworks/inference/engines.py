"""How a loaded model computes a batch: its engine and the precision of its products.

    packed     a batch without its padding, through torch's own operators; every model, every device

Shapes: B sequences, L positions, D width of the encoder, K labels, M masks, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ..batch import Batch
from ..files import InputError
from ..model.heads import Model
from ..model.prepare import for_inference, has_bfloat16
from ..tasks.inputs import batch_scores

Precision = Literal["auto", "float32", "bfloat16"]
EngineName = Literal["auto", "packed"]


@dataclass(frozen=True)
class Computing:
    """How a model shall compute."""

    precision: Precision = "float32"  # number type of weights and products; auto: bfloat16 where that is faster
    engine: EngineName = "auto"  # auto: packed

    def __post_init__(self) -> None:
        for name, known in (("precision", get_args(Precision)), ("engine", get_args(EngineName))):
            if getattr(self, name) not in known:
                raise InputError(f"{name} = {getattr(self, name)!r}; expected one of {', '.join(known)}")


FLOAT32 = Computing()


class Engine(Protocol):
    """What computes batches (batch.py, the first three keys). Results are float32, on the batch's device."""

    name: str
    precision: str

    def states(self, batch: Batch) -> Tensor:
        """(B, L, D) of the last layer. Padding may hold anything."""

    def scores(self, batch: Batch, head: str) -> Tensor:
        """Scores of a head before any softmax: (B, K), of a token head (B, L, K)."""

    def masked(self, batch: Batch, cells: Tensor) -> Tensor:
        """(M, V) scores of the masked-LM head at (M,) flat cells of the batch."""


class Packed:
    """The packed pass (model/packing.py)."""

    name = "packed"

    def __init__(self, model: Model, precision: str):
        """precision: float32 (the weights are shared) or bfloat16 (a copy)."""
        self.precision, self.network = precision, for_inference(model, precision)

    def states(self, batch: Batch) -> Tensor:
        encoder = self.network.encoder
        out = encoder(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], hidden_states=False)
        states: Tensor = out.last_hidden_state
        return states.float()

    def scores(self, batch: Batch, head: str) -> Tensor:
        return batch_scores(self.network, batch, head).float()

    def masked(self, batch: Batch, cells: Tensor) -> Tensor:
        encoder = self.network.encoder
        out = encoder(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], hidden_states=False)
        return self.network.masked_lm_logits(out.packed[out.packing.rows(cells)]).float()


def chosen_precision(asked: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """The precision that `asked` means: auto is bfloat16 where the processor multiplies it faster than float32.

    Those are GPUs of 2020 and later, and CPUs with AMX or with AVX-512's bfloat16.
    """
    if asked != "auto":
        return asked
    fast = torch.cuda.is_bf16_supported(False) if device.type == "cuda" else device.type == "cpu" and has_bfloat16()
    return "bfloat16" if fast else "float32"


def build_engine(model: Model, computing: Computing, device: torch.device) -> Engine:
    """The engine for a model on its device."""
    return Packed(model, chosen_precision(computing.precision, device))
