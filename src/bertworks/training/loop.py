"""The one training loop, which pre-training, distillation and fine-tuning share.

It is given a model, an objective, a feed of batches and an optimizer, and knows nothing of text or tasks. `Loop.step`
is one training step: count the predictions of the whole accumulation group over all processes, divide every loss by
those counts, sum the gradients, clip, update. Budgets are steps, tokens or hours; the first that is used up ends the
run.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..batch import Batch, to_device
from ..files import Diverged, atomic_write
from ..model.dropout import DropoutKey
from ..reporting.log import Reporter
from .config import LoopConfig, TrainerState
from .heap import Heap
from .machine import (
    Stop,
    World,
    caught_signals,
    compute_dtype,
    graphs_made,
    peak_memory,
    read_later,
)
from .objectives import Objective
from .optim import Optimizer
from .state import StateWriter, Totals, check_tensors, damaged, on_cpu, snapshot

BEST = "best.safetensors"


@dataclass(frozen=True)
class Group:
    """What one update reads: this process's micro-batches, each with its first row in the global batch."""

    micro_batches: list[tuple[Batch, int]]
    after: tuple[int, int, int]  # phase, group of blocks, offset of the next instance


class Feed(Protocol):
    def __call__(self, progress: TrainerState, share: float) -> Group:
        """The group that comes next at `progress`, `share` of the budget being used."""


@dataclass(frozen=True)
class Update:
    """An update that was asked of the device, and of which it is not known yet whether it was made."""

    step: int
    terms: list[dict[str, Tensor]]  # losses of this process's micro-batches
    counts: dict[str, float]  # predictions of each term, over all processes
    lr: float
    norm: Callable[[], float]  # of the gradients; waits for the device


Watch = Callable[[str, Mapping[str, Any]], bool]  # called with the kind (train, eval) and the values of a record


class Losses(nn.Module):
    """The losses of one micro-batch, as a module, so that DistributedDataParallel can wrap it."""

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Batch, key: DropoutKey | None) -> dict[str, Tensor]:
        return {name: term.loss for name, term in self.objective(self.model, batch, key).items()}  # type: ignore[arg-type]


@dataclass
class Loop:
    """A model, and how it is trained; `run()` trains until the budget is used or a signal comes.

    A signal after the last update, when all is saved, raises KeyboardInterrupt.
    """

    model: nn.Module
    objective: Objective
    feed: Feed
    optimizer: Optimizer
    world: World
    config: LoopConfig
    run_folder: Path
    recipe: str  # hash of the run's identity, which the state records
    progress: TrainerState = field(default_factory=TrainerState)
    evaluate: Callable[[TrainerState], dict[str, float]] | None = None  # metrics on held-out data
    after_step: Callable[[int], None] | None = None  # called with the number of each finished step
    at_end: Callable[[], None] | None = None  # called when `run()` ends, however it does
    watch: Watch | None = None  # called with each record of the log; when it returns True, the run is saved and stops
    weights: Mapping[str, float] = field(default_factory=dict)  # of the terms in the loss; 1 for those not named
    patience: int = 0  # the run ends after so many evaluations in a row that bring no new best; 0: it does not
    flops_per_token: float = 0.0  # useful operations, forward and backward; 0: the log has no share of the peak
    matmul_peak: float = 0.0  # operations a second that the machine can do at best
    data_sheet: float = 0.0  # the same after the data sheet of the GPU; 0: not known
    quiet: bool = False
    dtype: torch.dtype = field(init=False)  # of matrix products
    totals: Totals = field(init=False)
    metrics: dict[str, float] = field(init=False, default_factory=dict)  # of the last weights, when the run has ended
    reloaded: bool = field(init=False, default=False)  # whether it has ended with the weights of an earlier evaluation
    _at_best: bool = field(init=False, default=False)  # whether the last evaluation was the best so far
    _stop_asked: bool = field(init=False, default=False)  # whether `watch` has asked for an end
    _update: Update | None = field(init=False, default=None)  # the last one, until it is settled
    _writer: StateWriter = field(init=False, default_factory=StateWriter)
    _saved: float = field(init=False)  # seconds of training at the last save
    _heap: Heap = field(init=False, default_factory=Heap)

    def __post_init__(self) -> None:
        self.config.check()
        self.dtype = compute_dtype(self.config.precision, self.world.device)
        self.start_at(self.progress)

    def start_at(self, progress: TrainerState) -> None:
        """Continue from this progress, to which model and optimizer belong."""
        self.progress, self.totals = progress, Totals.of(progress, self.world)
        self._saved = progress.seconds

    @cached_property
    def losses(self) -> nn.Module:
        """Model and objective, wrapped for several processes; made at the first step, when the weights are loaded."""
        losses = Losses(self.model, self.objective)
        return DistributedDataParallel(losses, gradient_as_bucket_view=True) if self.world.size > 1 else losses

    def run(self) -> bool:
        """Train until the budget is used; False if a signal stopped the run before, when all is saved."""
        over = self.config.share(self.progress) >= 1 or self.stopped_early
        reporter = Reporter(self.run_folder, self.progress.step, self.quiet, self.world.main, over)
        with contextlib.ExitStack() as ending:
            ending.callback(self.at_end or (lambda: None))
            ending.callback(self._writer.close)
            ending.callback(reporter.close)
            stop = ending.enter_context(caught_signals())
            return self._train(stop, reporter)

    def _train(self, stop: Stop, reporter: Reporter) -> bool:
        config, progress = self.config, self.progress
        self.model.train()
        while (share := config.share(progress)) < 1 and not self.stopped_early:
            start, graphs = time.perf_counter(), graphs_made()
            group = self.feed(progress, share)
            stopped = self.step(group, share, stop.caught)
            progress.step += 1
            progress.phase, progress.group, progress.offset = group.after
            logs, evaluates, saves = (
                bool(every) and progress.step % every == 0
                for every in (config.log_every, config.eval_every, config.save_every)
            )
            logs |= evaluates and self.patience > 0  # it may be the last step, which is not known before the evaluation
            if logs or evaluates or saves or stopped:
                self._settle()  # now, so that waiting for the device counts as training
            # compiling is no training: in a budget of minutes it would be the whole warm-up, which BERT needs to learn
            progress.seconds += self._seconds_since(start, counts=graphs_made() == graphs)
            now = config.share(progress)
            if self.after_step:
                self.after_step(progress.step)
            reporter.progress(now, f"step {progress.step:,}")
            if logs or now >= 1:
                self._log(reporter, now)
            if evaluates and now < 1:
                self.metrics = self._evaluate(reporter)
            if (logs or evaluates) and now < 1 and not self.stopped_early:
                stopped |= self._is_stop_asked()
            self._writer.check()
            last = stopped or now >= 1 or self.stopped_early
            if last or saves or self._is_save_late():
                self.save()
            if last:
                self._wait_for_state()
            if stopped:
                return False
        stop.at_once()  # all is saved: nobody has to wait for the last evaluation
        if not (self.stopped_early and self.metrics):  # the last weights are evaluated, unless the run was resumed here
            self.metrics = self._evaluate(reporter)
        if config.keep_best and progress.best is not None:
            self.world.ask_first(self._load_best)
            self.world.spread(self.model.state_dict().values())
            self.reloaded = not self._at_best
        return True

    @property
    def stopped_early(self) -> bool:
        """Whether `patience` evaluations in a row have brought no new best, before the budget was used."""
        return 0 < self.patience <= self.progress.since_best and self.config.share(self.progress) < 1

    @property
    def _late(self) -> bool:
        """Whether an update is settled while the next one is computed, because the device runs behind this process."""
        return self.world.device.type != "cpu"

    def step(self, group: Group, share: float, stop: bool) -> bool:
        """One optimizer step over all micro-batches of all processes; returns whether any process is to stop.

        Nothing in it waits for a GPU's last operation: counts are those of batches on the CPU, and whether the update
        was made is read when the next one has been asked for.
        """
        counts, progress, last = self._counts(group, stop), self.progress, len(group.micro_batches) - 1
        terms = [self._backward(batch, row, counts, i == last) for i, (batch, row) in enumerate(group.micro_batches)]
        self._settle()
        norm = self.optimizer.clip()
        lr = self.optimizer.step(progress.updates, share, norm)
        progress.tokens += int(counts["tokens"])
        progress.instances += int(counts["instances"])
        self.totals.tokens += counts["tokens"]
        predictions = {name: n for name, n in counts.items() if name not in ("tokens", "instances", "stop")}
        self._update = Update(progress.step, terms, predictions, lr, read_later(norm))
        if not self._late:
            self._settle()
        return counts["stop"] > 0

    def _backward(self, batch: Batch, row: int, counts: Mapping[str, float], last: bool) -> dict[str, Tensor]:
        """Add the gradients of a micro-batch; the `last` one brings those of all processes together."""
        batch = to_device(self.objective.prepare(batch), self.world.device)
        quiet = contextlib.nullcontext() if last or self.world.size == 1 else self.losses.no_sync()  # type: ignore[operator]
        with quiet:
            with autocast(self.dtype, self.world.device):
                losses: dict[str, Tensor] = self.losses(batch, self._dropout_key(row))
                # processes average their gradients, so each gives `size` times its part of the sum
                size, weigh = self.world.size, self.weights
                loss = sum(losses[n] * (weigh.get(n, 1.0) * size / (counts[n] or 1.0)) for n in losses)
            # times 1, or NaN if it is not finite: the gradient could be finite all the same, in one process or all
            (loss * (1 + 0 * loss.detach())).backward()  # type: ignore[union-attr]
        return {name: one.detach() for name, one in losses.items()}

    def _settle(self) -> None:
        """Count the last update if it was made; else note that it was skipped. Raises Diverged if too many were."""
        update, self._update = self._update, None
        if update is None:
            return
        self.totals.norm = update.norm()
        if math.isfinite(self.totals.norm):
            self.totals.lr = update.lr
            self.totals.add(update.terms, update.counts)
            self.progress.updates, self.progress.skipped = self.progress.updates + 1, 0
        else:
            self.totals.add([], dict.fromkeys(update.counts, 0))
            self._skip(update.step)

    def _counts(self, group: Group, stop: bool) -> dict[str, float]:
        """Predictions of each term, tokens, instances and wishes to stop, over all micro-batches and processes."""
        counts: dict[str, float] = {"tokens": 0, "instances": 0, "stop": float(stop)}
        for batch, _ in group.micro_batches:
            for name, count in self.objective.counts(batch).items():
                counts[name] = counts.get(name, 0) + count
            counts["tokens"] += int(batch["attention_mask"].sum())
            counts["instances"] += len(batch["input_ids"])
        return dict(zip(counts, self.world.sum_numbers([*counts.values()]), strict=True))

    def _seconds_since(self, start: float, counts: bool) -> float:
        """The first process's time, for all: a budget in hours must mean one last step and one rate everywhere.

        counts: whether this process's step counts. If that of any process does not, the others have waited for it.
        """
        spent = time.perf_counter() - start if self.world.main else 0.0
        seconds, left_out = self.world.sum_numbers([spent, float(not counts)])
        return 0.0 if left_out else seconds

    def _dropout_key(self, row: int) -> DropoutKey | None:
        """Key of the masks on a CPU; on a GPU the device generator is seeded, so that fused kernels stay fused."""
        seed, step = self.config.seed, self.progress.step
        if self.world.device.type == "cpu":
            return DropoutKey(seed, step, row)
        torch.cuda.manual_seed(((seed * 1_000_003 + step) * 65_537 + row) % 2**63)
        return None

    def _skip(self, step: int) -> None:
        """The stated policy for a loss or gradient that is not finite: no update; stop if it goes on."""
        self.progress.skipped += 1
        if self.progress.skipped > self.config.max_skipped:
            raise Diverged(
                f"loss or gradient not finite in {self.progress.skipped} steps in a row, the last at step "
                f"{step}. No such update was made and the last saved state is whole; begin again with a "
                "lower optim.lr, a longer optim.warmup, or loop.precision = 'float32'"
            )

    def _log(self, reporter: Reporter, share: float) -> None:
        self._settle()
        progress = self.progress
        rate = self.totals.rate()
        left = progress.seconds * (1 - share) / share if share else 0.0
        record: dict[str, Any] = {"step": progress.step, **self.totals.means(self.world)}
        record |= {"lr": self.totals.lr, "grad_norm": self.totals.norm}
        record |= {"tokens": progress.tokens, "tokens_per_second": rate}
        if progress.step > progress.updates:
            record["skipped"] = progress.step - progress.updates  # updates not made, in the whole run
        if self.matmul_peak:
            record["share_of_peak"] = rate * self.flops_per_token / self.matmul_peak / self.world.size
        if self.data_sheet:
            record["share_of_data_sheet"] = rate * self.flops_per_token / self.data_sheet / self.world.size
        record |= self.world.used_by_others()
        record |= {"memory": peak_memory(self.world.device), "seconds": progress.seconds, "left": left}
        self.totals = Totals(lr=self.totals.lr)
        self._heap.give_back()
        self._record(reporter, "train", record)

    def _record(self, reporter: Reporter, kind: str, record: dict[str, Any]) -> None:
        if self.world.main:
            reporter.record(kind, record)
            self._stop_asked |= bool(self.watch and self.watch(kind, record))

    def _is_stop_asked(self) -> bool:
        """Whether `watch` has asked for an end, in any process."""
        return self.world.sum_numbers([float(self._stop_asked)])[0] > 0

    def _evaluate(self, reporter: Reporter) -> dict[str, float]:
        """Evaluate in float32, whatever training uses, so that the scores are those of the model that is kept."""
        if not self.evaluate:
            return {}
        metrics, best = self.evaluate(self.progress), self.config.keep_best
        self.model.train()
        self._heap.give_back(0)
        self.totals.pause()
        self._record(reporter, "eval", {"step": self.progress.step, **metrics, "seconds": self.progress.seconds})
        self.config.check([*metrics])
        self._at_best = bool(best) and self._is_better(metrics[best])
        self.progress.since_best = 0 if self._at_best else self.progress.since_best + 1
        if self._at_best:
            self.progress.best = metrics[best]
            if self.world.main:
                (self.run_folder / "state").mkdir(exist_ok=True)
                with atomic_write(self.run_folder / "state" / BEST) as file:
                    file.write(save(on_cpu(self.model.state_dict())))
        return metrics

    def _is_better(self, score: float) -> bool:
        """Whether an evaluation's score, lower for losses, is the best so far; one that is not finite never is."""
        if not math.isfinite(score) or self.progress.best is None:
            return math.isfinite(score)
        return score < self.progress.best if self.config.keep_best.endswith("loss") else score > self.progress.best

    def _load_best(self) -> None:
        """Put the best weights into the model. Raises InputError if their file is missing or damaged."""
        path = self.run_folder / "state" / BEST
        try:
            weights = load_file(path)
        except (SafetensorError, OSError) as error:
            raise damaged(path, error) from None
        check_tensors(path, weights, self.model.state_dict())
        self.model.load_state_dict(weights)

    def _is_save_late(self) -> bool:
        """Whether `save_minutes` of training have passed since the last save; the same in all processes."""
        minutes = self.config.save_minutes
        return minutes > 0 and self.progress.seconds - self._saved >= 60 * minutes

    def save(self) -> None:
        """Begin to save the state, in the first process; training continues while a thread writes.

        Raises NotWritten if the state before could not be written.
        """
        self._settle()
        start = time.perf_counter()
        self.totals.store(self.progress, self.world)
        if self.world.main:
            take = partial(snapshot, self.model, self.optimizer, self.progress, self.recipe)
            self._writer.begin(self.run_folder / "state", take)
        self._saved = self.progress.seconds
        self.totals.start += time.perf_counter() - start

    def _wait_for_state(self) -> None:
        """Return in every process when the state is on disk. Raises NotWritten if it could not be written."""
        self._writer.wait()
        self.world.wait()


@torch.no_grad()
def evaluate(model: nn.Module, objective: Objective, batches: Iterable[Batch], world: World) -> dict[str, float]:
    """Mean loss of each term, accuracy of those with hits, batches divided among the processes: {mlm_loss, ...}."""
    model.eval()
    sums: dict[str, float] = {}
    for i, batch in enumerate(batches):
        mine = i % world.size == world.rank
        counts = objective.counts(batch)
        terms = objective(model, to_device(objective.prepare(batch), world.device)) if mine else {}  # type: ignore[arg-type]
        for name, count in counts.items():
            loss, hits = (terms[name].loss, terms[name].correct) if name in terms else (0.0, 0)
            for key, value in (("loss", loss), ("correct", hits), ("count", count if mine else 0)):
                sums[f"{name} {key}"] = sums.get(f"{name} {key}", 0.0) + (math.nan if value is None else float(value))
    values = world.sum(torch.tensor(list(sums.values()), dtype=torch.float64, device=world.device))
    total = dict(zip(sums, values.tolist(), strict=True))
    metrics: dict[str, float] = {}
    for name in {key.split()[0]: None for key in sums}:
        count = max(total[f"{name} count"], 1.0)
        metrics |= {f"{name}_loss": total[f"{name} loss"] / count, f"{name}_accuracy": total[f"{name} correct"] / count}
    return {name: value for name, value in metrics.items() if not (name.endswith("_accuracy") and math.isnan(value))}


def autocast(dtype: torch.dtype, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context of a forward pass: matrix products in `dtype`, weights in float32."""
    return torch.autocast(device.type, dtype, enabled=dtype is not torch.float32)
