"""How a loaded model computes a batch: its engine and the precision of its products.

    packed     a batch without its padding, through torch's own operators; every model, every device
    compiled   a batch with its padding, through a graph that Inductor compiles for this processor

Shapes: B sequences, L positions, D width of the encoder, K labels, M masks, V vocabulary.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from ..batch import Batch
from ..files import InputError
from ..model.heads import Model
from ..model.prepare import for_inference, in_bfloat16
from ..model.products import has_bfloat16
from ..model.rectangular import STATES, Rectangular, recurrent_part
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

    def masked(self, batch: Batch, cells: Tensor) -> Tensor:
        """(M, V) scores of the masked-LM head at (M,) flat cells of the batch."""


class Packed:
    """The packed pass (model/packing.py)."""

    name = "packed"

    def __init__(self, model: Model, precision: str):
        """precision: float32 or bfloat16. Later changes of the weights have no effect: most of them are copied."""
        self.precision, self.network = precision, for_inference(model, precision, lasting=True)

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


class Compiled:
    """The rectangular pass (model/rectangular.py), compiled by Inductor into a graph with the weights built in.

    There is a graph for each output, and a second one for batches of one sequence; they serve all lengths. The first
    batch waits for its graph, half a minute or more. Batches of sequences longer than LONGEST go through `packed`,
    where the cost of local attention grows with the length and not with its square.
    """

    name = "compiled"

    def __init__(self, model: Model, precision: str):
        """precision: as of Packed. Raises InputError if the model has recurrent layers."""
        if found := recurrent_part(model):
            raise InputError(
                f"the model has {found}: recurrent layers work on packed sequences only, so it cannot be "
                "compiled; choose the engine packed"
            )
        self.model, self.precision, self.process = model, precision, os.getpid()
        halved = precision == "bfloat16"
        self.network = in_bfloat16(model) if halved else for_inference(model)
        self.graphs = {name: self._graph(name) for name in (STATES, *model.heads) if name != "mlm"}

    @functools.cached_property
    def packed(self) -> Packed:
        return Packed(self.model, self.precision)

    def _graph(self, output: str) -> Callable[..., dict[str, Tensor]]:
        return torch.compile(Rectangular(self.network, [output]), dynamic=True)  # type: ignore[return-value]

    def states(self, batch: Batch) -> Tensor:
        return self.packed.states(batch) if _is_long(batch) else self._compute(batch, STATES)

    def scores(self, batch: Batch, head: str) -> Tensor:
        return self.packed.scores(batch, head) if _is_long(batch) else self._compute(batch, head)

    def masked(self, batch: Batch, cells: Tensor) -> Tensor:
        states = self.states(batch).to(self.network.decoder.dtype)
        return self.network.masked_lm_logits(states.flatten(0, 1)[cells]).float()

    def _compute(self, batch: Batch, output: str) -> Tensor:
        from torch._inductor import config

        if os.getpid() != self.process:  # compiled code would wait for ever for threads that a forked process lacks
            raise InputError(
                "the engine compiled was loaded in another process, from which this one was forked, and cannot compute "
                "here; load it in each worker process, or start workers by spawn (gunicorn without preload_app)"
            )
        with torch.no_grad(), config.patch(freezing=True):
            results = self.graphs[output](*(batch[name] for name in INPUTS))
        return results[output].float()


def _is_long(batch: Batch) -> bool:
    return batch["input_ids"].shape[1] > LONGEST


def can_compile() -> bool:
    """Whether Inductor finds a C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return bool(get_cpp_compiler())
    except RuntimeError:  # torch's InvalidCxxCompiler is one
        return False


def chosen_precision(asked: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """The precision that `asked` means: auto is bfloat16 where the processor multiplies it faster than float32.

    Those are GPUs of 2020 and later, and CPUs with AMX or with AVX-512's bfloat16.
    """
    if asked != "auto":
        return asked
    fast = torch.cuda.is_bf16_supported(False) if device.type == "cuda" else device.type == "cpu" and has_bfloat16()
    return "bfloat16" if fast else "float32"


def build_engine(model: Model, computing: Computing, device: torch.device) -> Engine:
    """The engine for a model on its device: packed in place of compiled if there is no C++ compiler (`note_of`).

    Raises InputError if a model with recurrent layers shall be compiled.
    """
    compiled = computing.engine == "compiled" and can_compile()
    return (Compiled if compiled else Packed)(model, chosen_precision(computing.precision, device))


def note_of(computing: Computing) -> str:
    """What the user should know of the choice; "" if it is kept."""
    if computing.engine != "compiled" or can_compile():
        return ""
    return "engine compiled: found no C++ compiler, so the engine is packed; install g++, or name a compiler with CXX"
