"""Passes of one shape in pre-training on a GPU, and CUDA graphs that repeat them (docs/scale.md).

The forward and backward pass of a micro-batch starts about a thousand kernels. Started one by one from Python they keep
a GPU waiting. A CUDA graph records them once and starts all of them together, with the same shapes and addresses each
time. So micro-batches get one shape, inputs and gradients stay where they are in memory, and no operation of a pass
depends on the values of a batch. Clipping and the update are not recorded: they are few kernels, and their factors
change from step to step.

Dropout needs no state of its own: the trainer seeds the generator from (seed, step, row) before each pass, and torch
hands seed and offset to the graph.

Shapes: B sequences, L positions, M masked slots.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..batch import Batch, to_device
from ..files import InputError
from ..model.dropout import DropoutKey
from ..model.heads import Model
from ..model.layout import PACKED_POSITIONS
from .distributed import World
from .objectives import Objective, PretrainingObjective
from .trainer import BackwardPass, Trainer
from .vocabulary_loss import FILL

WARM_UP = 3  # passes of a shape before it is recorded: torch compiles, libraries choose kernels and reserve memory
FACTORS = "factors"  # key of the losses' factors among the inputs of a graph


def kind_of_pass(compute: str, objective: Objective | None, model: Model, world: World) -> str:
    """The kind of the passes of a run: "packed", without padding; "static", all of one shape; or "graph", recorded.

    compute: the setting. Packed are recurrent layers and all objectives but those on masked tokens. DistributedData-
    Parallel sums gradients during the backward pass, so several processes have no graph.
    """
    on_gpu = world.device.type == "cuda"
    kind = "graph" if compute == "auto" and on_gpu else compute
    is_possible = isinstance(objective, PretrainingObjective) and model.config.layer_type == "attention"
    if kind not in ("static", "graph") or not is_possible:
        return "packed"
    return kind if on_gpu and world.size == 1 else "static"


def use_static_passes(trainer: Trainer) -> None:
    """Prepare a new trainer for the kind of passes that its run has."""
    objective, model = trainer.objective, trainer.model
    kind = kind_of_pass(trainer.config.compute, objective, model, trainer.world)  # type: ignore[arg-type]
    if kind != "packed":
        assert isinstance(objective, PretrainingObjective)
        trainer.objective = StaticObjective(objective.pair)
    if kind == "graph":
        trainer.backward_pass = RecordedPass(trainer.backward_pass, model.parameters(), CudaRecorder())


# ---- one shape


@dataclass(frozen=True)
class StaticObjective(PretrainingObjective):
    """The same losses from prepared batches whose shapes depend on B, L and M alone: no padding is left out."""

    def prepare(self, batch: Batch) -> Batch:
        (B, L), M = batch["input_ids"].shape, len(batch["masked_labels"])
        batch = super().prepare(batch | {PACKED_POSITIONS: torch.arange(B * L)})
        output_rows = min(-(-(M + B) // FILL) * FILL, B * L)
        return batch | {
            "masked_slots": extended(batch["masked_slots"], M, M),
            "output_positions": extended(batch["output_positions"], output_rows, B * L),
        }


def extended(indices: Tensor, length: int, size: int) -> Tensor:
    """(length,) these indices, then others below `size`; none twice."""
    is_other = torch.ones(size, dtype=torch.bool).index_fill_(0, indices, False)
    return torch.cat([indices, is_other.nonzero().squeeze(1)])[:length]


# ---- recorded once, repeated

Losses = dict[str, Tensor]


class CudaRecorder:
    """CUDA graphs. They and the passes before them run on a stream of their own: the default one cannot be recorded."""

    def __init__(self) -> None:
        self.stream, self.memory = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def run(self, function: Callable[[], Losses]) -> Losses:
        """The result of a function that may record or repeat a graph."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            losses = function()
        torch.cuda.current_stream().wait_stream(self.stream)
        return losses

    def record(self, function: Callable[[], Losses]) -> tuple[Callable[[], None], Losses]:
        """A function that repeats what `function` does, and the tensors that its results are written to.

        Raises InputError if that cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, self.memory, self.stream):
                losses = function()
        except RuntimeError as error:
            advice = "give loop.compute = 'static', and another output folder"
            raise InputError(f"a training step could not be recorded as a CUDA graph ({error}); {advice}") from error
        return graph.replay, losses


class RecordedPass:
    """`Trainer.backward_pass`, recorded after a few passes of one shape and repeated from then on.

    The gradients stay in the memory that the first pass gave them. The optimizer takes them off the parameters after
    an update; the next pass sets them to 0 and puts them back.
    """

    def __init__(self, function: BackwardPass, parameters: Iterable[Parameter], recorder: CudaRecorder):
        self.function, self.parameters, self.recorder = function, [*parameters], recorder
        self.gradients: dict[Parameter, Tensor] = {}
        self.passes = Counter[Any]()  # by shape
        self.recorded: dict[Any, tuple[Batch, Callable[[], None], Losses]] = {}  # inputs, graph, losses of each shape

    def __call__(self, batch: Batch, key: DropoutKey | None, factors: Mapping[str, Any]) -> Losses:
        """key: None on a GPU; a graph would repeat its masks."""
        values = to_device({FACTORS: torch.tensor([*factors.values()])}, batch["input_ids"].device)
        if missing := [p for p in self.gradients if p.grad is None]:
            torch._foreach_zero_([self.gradients[p] for p in missing])
        for p in missing:
            p.grad = self.gradients[p]
        return self.recorder.run(lambda: self._compute(batch | values, [*factors]))

    def _compute(self, inputs: Batch, names: list[str]) -> Losses:
        """The losses of one pass, by the graph of its shape once there is one."""

        def backward_pass(inputs: Batch) -> Losses:
            return self.function(inputs, None, dict(zip(names, inputs[FACTORS].unbind(), strict=True)))

        shape = tuple((name, value.shape) for name, value in inputs.items())
        self.passes[shape] += 1
        if self.passes[shape] <= WARM_UP:
            losses = backward_pass(inputs)
            self.gradients = self.gradients or {p: p.grad for p in self.parameters if p.grad is not None}
            return losses
        if shape not in self.recorded:
            buffers = {name: value.clone() for name, value in inputs.items()}
            self.recorded[shape] = (buffers, *self.recorder.record(lambda: backward_pass(buffers)))
        buffers, repeat, losses = self.recorded[shape]
        for name, value in inputs.items():
            buffers[name].copy_(value)
        repeat()
        return {name: value.clone() for name, value in losses.items()}
