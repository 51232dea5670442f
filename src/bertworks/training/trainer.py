"""Training steps, which pre-training, distillation and fine-tuning share.

A Trainer is given a model, an objective, a feed of batches and an optimizer. It knows nothing of text, tasks or files.
One step counts the predictions of the whole accumulation batch over all processes, divides every loss by those counts,
sums the gradients, clips them and updates the weights. Budgets are steps, tokens or hours; the first that is used up
ends the training.

On a GPU a step does not wait for its last operation: the counts are those of batches on the CPU, and whether the update
was made is read while the next one is computed.
"""

import contextlib
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..batch import Batch, to_device
from ..files import Diverged
from ..model.dropout import DropoutKey
from .config import LoopConfig, TrainerState
from .distributed import World
from .objectives import Objective
from .optim import Optimizer
from .precision import compute_dtype

if TYPE_CHECKING:
    from .machine import Stop


@dataclass(frozen=True)
class AccumulationBatch:
    """What one update reads: this process's micro-batches, each with its first row in the global batch."""

    micro_batches: list[tuple[Batch, int]]
    next_position: tuple[int, int, int]  # phase, block group, offset of the next instance


Feed = Callable[[TrainerState, float], AccumulationBatch]
"""Gives the batch that comes next at this progress, and at this fraction of the budget."""
BackwardPass = Callable[[Batch, DropoutKey | None, Mapping[str, Any]], dict[str, Tensor]]
"""Adds the gradients of a micro-batch's losses, each times its factor, and returns the losses."""


@dataclass(frozen=True)
class Step:
    """A step that was made, and what is due after it."""

    budget_used: float  # fraction, 0 to 1
    logs: bool
    evaluates: bool
    saves: bool
    stop_requested: bool  # by a signal in any process

    @property
    def is_last(self) -> bool:
        """Whether the budget is used up."""
        return self.budget_used >= 1


@dataclass(frozen=True)
class PendingUpdate:
    """An update that the device may still compute, and of which it is not known whether it was made."""

    step: int
    counts: dict[str, float]  # predictions of each term, over all processes
    lr: float
    # norm of the gradients, and the loss of each term over this process's micro-batches; waits for the device
    results: Callable[[], list[float]]


class Losses(nn.Module):
    """The losses of one micro-batch, as a module, so that DistributedDataParallel can wrap it."""

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Batch, key: DropoutKey | None) -> dict[str, Tensor]:
        return {name: term.loss for name, term in self.objective.terms(self.model, batch, key).items()}  # type: ignore[arg-type]


@dataclass
class Trainer:
    """`for step in trainer.steps(stop)` makes one update after another until the budget is used."""

    model: nn.Module
    objective: Objective
    feed: Feed
    optimizer: Optimizer
    world: World
    config: LoopConfig
    loss_weights: Mapping[str, float] = field(default_factory=dict)  # of the terms in the loss; 1 for those not named
    dtype: torch.dtype = field(init=False)  # of matrix products
    backward_pass: BackwardPass = field(init=False)  # `_eager_backward`, or as graph.py records it
    progress: TrainerState = field(init=False)
    grad_norm: float = field(init=False, default=0.0)  # of the last update
    timed_tokens: int = field(init=False, default=0)  # tokens of the steps that `progress.seconds` has
    _pending: PendingUpdate | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.config.check()
        self.dtype = compute_dtype(self.config.precision, self.world.device)
        self.backward_pass = self._eager_backward
        self.start_at(TrainerState())

    def start_at(self, progress: TrainerState) -> None:
        """Continue from this progress, to which model and optimizer belong; its losses are those of all processes."""
        self.progress = progress
        if not self.world.is_main:
            progress.loss_sums = dict.fromkeys(progress.loss_sums, 0.0)

    @property
    def budget_used(self) -> float:
        """The fraction of the budget that is used, 0 to 1."""
        return self.config.budget_used(self.progress)

    def steps(self, stop: "Stop") -> Iterator[Step]:
        """Make updates until the budget is used. All processes get to know that one of them has caught a signal."""
        config, progress = self.config, self.progress
        self.model.train()
        while (budget_used := self.budget_used) < 1:
            start, graphs, tokens = time.perf_counter(), graphs_made(), progress.tokens
            batch = self.feed(progress, budget_used)
            stop_requested = self.update(batch, budget_used, stop.requested)
            progress.step += 1
            progress.phase, progress.group, progress.offset = batch.next_position
            logs, evaluates, saves = (
                bool(every) and progress.step % every == 0
                for every in (config.log_every, config.eval_every, config.save_every)
            )
            if logs or evaluates or saves or stop_requested:
                self.finish_update()  # now, so that waiting for the device counts as training
            # compiling is not training: in a budget of minutes it would be the whole warm-up, which BERT needs to learn
            if seconds := self._seconds_since(start, is_training_time=graphs_made() == graphs):
                progress.seconds += seconds
                self.timed_tokens += progress.tokens - tokens
            yield Step(self.budget_used, logs, evaluates, saves, stop_requested)
        self.finish_update()

    def update(self, batch: AccumulationBatch, budget_used: float, stop: bool) -> bool:
        """One update over all micro-batches of all processes; returns whether any process is to `stop`."""
        counts, tokens, instances, stop_requested = self._count(batch, stop)
        last = len(batch.micro_batches) - 1
        losses = [self._backward(micro, row, counts, i == last) for i, (micro, row) in enumerate(batch.micro_batches)]
        self.progress.tokens += tokens
        self.progress.instances += instances
        self.finish_update()  # that of the step before
        norm = self.optimizer.clip_grad_norm()
        lr = self.optimizer.step(self.progress.updates, budget_used, norm)
        sums = [torch.stack([micro[name].double() for micro in losses]).sum() for name in counts]
        results = read_async(torch.stack([norm.double(), *sums]))
        self._pending = PendingUpdate(self.progress.step, counts, lr, results)
        if not self.is_async:
            self.finish_update()
        return stop_requested

    @property
    def is_async(self) -> bool:
        """Whether an update is finished while the next one is computed, because the device runs behind this process."""
        return self.world.device.type != "cpu"

    def finish_update(self) -> None:
        """Wait for the pending update, if any, and count it, or note that it was skipped.

        Raises Diverged if too many were.
        """
        update, self._pending = self._pending, None
        if update is None:
            return
        self.grad_norm, *losses = update.results()
        progress, is_finite = self.progress, math.isfinite(self.grad_norm)
        for (name, count), loss in zip(update.counts.items(), losses, strict=True):  # without those of skipped updates
            progress.loss_sums[name] = progress.loss_sums.get(name, 0.0) + (loss if is_finite else 0.0)
            progress.loss_counts[name] = progress.loss_counts.get(name, 0.0) + (count if is_finite else 0.0)
        if is_finite:
            progress.updates, progress.skipped, progress.lr = progress.updates + 1, 0, update.lr
            return
        progress.skipped += 1
        if progress.skipped > self.config.max_skipped:
            raise Diverged(
                f"loss or gradient not finite in {progress.skipped} steps in a row, the last at step "
                f"{update.step + 1}. No such update was made and the last saved state is whole; begin again with a "
                "lower optim.lr, a longer optim.warmup, or loop.precision = 'float32'"
            )

    def gather_losses(self) -> None:
        """Finish the update, and add up the losses of all processes in the first one, which alone has them then."""
        self.finish_update()
        progress, world = self.progress, self.world
        sums = world.sum_numbers([*progress.loss_sums.values()])
        progress.loss_sums = dict(zip(progress.loss_sums, sums if world.is_main else [0.0] * len(sums), strict=True))

    def _count(self, batch: AccumulationBatch, stop: bool) -> tuple[dict[str, float], int, int, bool]:
        """Predictions of each term, tokens and instances over all processes, and whether any process is to `stop`."""
        counts, tokens, instances = Counter[str](), 0, 0
        for micro, _ in batch.micro_batches:
            counts.update(self.objective.counts(micro))
            tokens += int(micro["attention_mask"].sum())
            instances += len(micro["input_ids"])
        # the stop request travels with the counts: one sum over the processes in each step
        sums = self.world.sum_numbers([*counts.values(), tokens, instances, stop])
        return dict(zip(counts, sums[:-3], strict=True)), int(sums[-3]), int(sums[-2]), sums[-1] > 0

    def _backward(self, batch: Batch, row: int, counts: Mapping[str, float], is_last: bool) -> dict[str, Tensor]:
        """Add the gradients of a micro-batch; the last one brings those of all processes together."""
        batch = to_device(self.objective.prepare(batch), self.world.device)
        # L = L_MLM + L_NSP, each a mean over all micro-batches and processes (paper, A.2); processes average their
        # gradients, so each gives `size` times its part of the sum
        size, weights = self.world.size, self.loss_weights
        factors = {name: weights.get(name, 1.0) * size / (count or 1.0) for name, count in counts.items()}
        local = contextlib.nullcontext() if is_last or size == 1 else self._losses.no_sync()  # type: ignore[operator]
        with local:
            return self.backward_pass(batch, self._dropout_key(row), factors)

    def _eager_backward(self, batch: Batch, key: DropoutKey | None, factors: Mapping[str, Any]) -> dict[str, Tensor]:
        """Add the gradients of the losses, each times its factor, of a prepared micro-batch; returns the losses.

        graph.py may put a recorded pass in its place.
        """
        with torch.autocast(self.world.device.type, self.dtype, enabled=self.dtype is not torch.float32):
            losses: dict[str, Tensor] = self._losses(batch, key)
            loss = sum(one * factors[name] for name, one in losses.items())
        # a loss that is not finite makes every gradient NaN, as 1 + 0 * inf is, so that the update is skipped; its own
        # gradient could be finite, in one process or all
        (loss * (1 + 0 * loss.detach())).backward()  # type: ignore[union-attr]
        return {name: one.detach() for name, one in losses.items()}

    @cached_property
    def _losses(self) -> nn.Module:
        """Model and objective, wrapped for several processes; made at the first step, when the weights are loaded."""
        losses = Losses(self.model, self.objective)
        return DistributedDataParallel(losses, gradient_as_bucket_view=True) if self.world.size > 1 else losses

    def _dropout_key(self, row: int) -> DropoutKey | None:
        """Key of the masks on a CPU; on a GPU the device generator is seeded, so that fused kernels stay fused."""
        seed, step = self.config.seed, self.progress.step
        if self.world.device.type == "cpu":
            return DropoutKey(seed, step, row)
        torch.cuda.manual_seed(((seed * 1_000_003 + step) * 65_537 + row) % 2**63)
        return None

    def _seconds_since(self, start: float, is_training_time: bool) -> float:
        """The first process's time, for all: a budget in hours must mean one last step and one rate everywhere.

        is_training_time: False if this process has compiled in this step; then the others have waited for it, and none
        counts the step.
        """
        spent = time.perf_counter() - start if self.world.is_main else 0.0
        seconds, left_out = self.world.sum_numbers([spent, float(not is_training_time)])
        return 0.0 if left_out else seconds


def graphs_made() -> int:
    """How many graphs torch.compile has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # its import takes seconds
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def read_async(values: Tensor) -> Callable[[], list[float]]:
    """A function that returns these numbers. On a GPU it waits for them alone, not for later operations."""
    if values.device.type == "cpu":
        return values.tolist
    copy, copied = torch.empty_like(values, device="cpu", pin_memory=True), torch.cuda.Event()
    copy.copy_(values, non_blocking=True)
    copied.record()

    def read() -> list[float]:
        copied.synchronize()
        return copy.tolist()  # type: ignore[no-any-return]

    return read
