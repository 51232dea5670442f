"""Sums of losses and counts since the last record of a run's log."""

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .distributed import World
from .progress import TrainerState


class Totals:
    """Sums since the last record of the log. Losses of skipped updates are left out."""

    def __init__(self, lr: float = 0.0) -> None:
        self.losses: dict[str, Tensor | float] = {}  # of this process
        self.counts: dict[str, float] = {}  # of all processes
        self.tokens, self.lr, self.grad_norm = 0.0, lr, 0.0
        self.start = time.perf_counter()

    @classmethod
    def of(cls, progress: TrainerState, world: World) -> "Totals":
        """The sums that `store` put into the progress; the first process gets those of all processes."""
        totals = cls(progress.lr)
        totals.losses, totals.counts = dict(progress.loss_sums) if world.main else {}, dict(progress.loss_counts)
        return totals

    def store(self, progress: TrainerState, world: World) -> None:
        """Put the sums into the progress, which is saved: so a resumed run logs the means of an undisturbed one."""
        progress.loss_sums, progress.loss_counts, progress.lr = self._sums(world), dict(self.counts), self.lr

    def add(self, losses: Sequence[Mapping[str, Tensor]], counts: Mapping[str, float]) -> None:
        """Losses of each micro-batch of this process, and the predictions of the whole update."""
        for terms in losses:
            for name, loss in terms.items():
                self.losses[name] = self.losses.get(name, 0.0) + loss.double()
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def rate(self) -> float:
        """Real tokens a second since the last record."""
        return self.tokens / max(time.perf_counter() - self.start, 1e-9)

    def pause(self) -> None:
        """Restart the measurement of the rate, because something other than training ran since the last record."""
        self.tokens, self.start = 0.0, time.perf_counter()

    def means(self, world: World) -> dict[str, float]:
        """Mean loss of each term over the predictions of all processes; NaN if no update was made."""
        sums = self._sums(world)
        return {f"{name}_loss": sums[name] / n if n else math.nan for name, n in self.counts.items()}

    def _sums(self, world: World) -> dict[str, float]:
        if not self.counts:
            return {}
        mine = [torch.as_tensor(self.losses.get(n, 0.0), dtype=torch.float64, device=world.device) for n in self.counts]
        return dict(zip(self.counts, world.sum(torch.stack(mine)).tolist(), strict=True))
