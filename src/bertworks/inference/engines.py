"""How a loaded model computes a batch: its engine and the precision of its products.

    packed     a batch without its padding, through torch's own operators; every model, every device
    compiled   a batch with its padding, through a graph that Inductor compiles for this processor

Shapes: B sequences, L positions, D width of the encoder, K labels, M masks, V vocabulary.
"""

import functools
import os
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ..batch import Batch
from ..files import InputError
from ..model.acceleration import for_inference
from ..model.exportable import STATES, ExportableModel
from ..model.forward import EncoderOutput
from ..model.heads import Model
from ..model.initialization import has_bfloat16, in_bfloat16
from ..tasks.inputs import batch_scores

Precision = Literal["auto", "float32", "bfloat16"]
EngineName = Literal["auto", "packed", "compiled"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LONGEST = 512  # tokens of a sequence that a compiled graph computes


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

    def masked(self, batch: Batch, positions: Tensor) -> Tensor:
        """(M, V) scores of the masked-LM head at (M,) positions of the flattened batch."""


class Packed:
    """The packed pass (model/layout.py)."""

    name = "packed"

    def __init__(self, model: Model, precision: str):
        """precision: float32 or bfloat16. Later changes of the weights have no effect: most of them are copied."""
        self.precision, self.network = precision, for_inference(model, precision, frozen=True)

    def states(self, batch: Batch) -> Tensor:
        states: Tensor = self._encoded(batch).last_hidden_state
        return states.float()

    def scores(self, batch: Batch, head: str) -> Tensor:
        return batch_scores(self.network, batch, head).float()

    def masked(self, batch: Batch, positions: Tensor) -> Tensor:
        out = self._encoded(batch)
        return self.network.masked_lm_logits(out.packed[out.layout.rows(positions)]).float()

    def _encoded(self, batch: Batch) -> EncoderOutput:
        return self.network.encoder(*(batch[name] for name in INPUTS), hidden_states=False)  # type: ignore[no-any-return]


class Compiled:
    """The padded pass (model/exportable.py), compiled by Inductor into a graph with the weights built in.

    There is one graph per output, and a second one for batches of one sequence; they serve all lengths. The first
    batch waits for its graph, half a minute or more. Batches of sequences longer than LONGEST go through `packed`,
    where the cost of local attention grows with the length and not with its square.
    """

    name = "compiled"

    def __init__(self, model: Model, precision: str):
        """precision: as in Packed. Raises InputError if the model has recurrent layers."""
        self.model, self.precision, self.process = model, precision, os.getpid()
        self.network = in_bfloat16(model) if precision == "bfloat16" else for_inference(model)
        outputs = [STATES, *(name for name in model.heads if name != "mlm")]
        self.graphs = {name: torch.compile(ExportableModel(self.network, [name]), dynamic=True) for name in outputs}

    @functools.cached_property
    def packed(self) -> Packed:
        return Packed(self.model, self.precision)

    def states(self, batch: Batch) -> Tensor:
        return self.packed.states(batch) if _is_long(batch) else self._compute(batch, STATES)

    def scores(self, batch: Batch, head: str) -> Tensor:
        return self.packed.scores(batch, head) if _is_long(batch) else self._compute(batch, head)

    def masked(self, batch: Batch, positions: Tensor) -> Tensor:
        states = self.states(batch).to(self.network.decoder.dtype)
        return self.network.masked_lm_logits(states.flatten(0, 1)[positions]).float()

    def _compute(self, batch: Batch, output: str) -> Tensor:
        from torch._inductor import config

        if os.getpid() != self.process:  # compiled code would wait for ever for threads that a forked process lacks
            raise InputError(
                "the engine compiled was loaded in another process, from which this one was forked, and cannot compute "
                "here; load it in each worker process, or start workers by spawn (gunicorn without preload_app)"
            )
        with torch.no_grad(), config.patch(freezing=True):
            return self.graphs[output](*(batch[name] for name in INPUTS))[output].float()  # type: ignore[no-any-return]


def _is_long(batch: Batch) -> bool:
    return batch["input_ids"].shape[1] > LONGEST


def can_compile() -> bool:
    """Whether Inductor finds a C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return bool(get_cpp_compiler())
    except RuntimeError:  # torch's InvalidCxxCompiler is one
        return False


def select_engine(model: Model, computing: Computing, device: torch.device) -> Engine:
    """The engine of a model on its device.

    The precision auto is bfloat16 where the processor multiplies it faster than float32: GPUs of 2020 and later, CPUs
    with AMX or AVX-512's bfloat16. Raises InputError for the engine compiled if there is no C++ compiler or the model
    has recurrent layers.
    """
    precision = computing.precision
    if precision == "auto":
        on_gpu = device.type == "cuda"
        fast = torch.cuda.is_bf16_supported(False) if on_gpu else device.type == "cpu" and has_bfloat16()
        precision = "bfloat16" if fast else "float32"
    if computing.engine != "compiled":
        return Packed(model, precision)
    if not can_compile():
        raise InputError(
            "engine = 'compiled', but torch finds no C++ compiler; install g++, name a compiler with the environment "
            "variable CXX, or leave the engine out"
        )
    return Compiled(model, precision)
