"""Optimizer and learning rate (paper A.2; optimization.py of the original code).

Three rules, two of them with one fused kernel. `bert_adam` is the original's: no bias correction, eps outside it, decay
scaled by the rate. AdamW's update with learning rate, eps and decay rescaled each step is the same update, so torch's
fused kernel serves both. `albert_lamb` is LAMB (You et al. 2020, algorithm 2) for large batches as it trained ALBERT:
without bias correction (its lamb_optimizer.py).
"""

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .config import OptimConfig

if TYPE_CHECKING:
    from ..model.acceleration import Kernels


def learning_rate(config: OptimConfig, progress: float) -> float:
    """The rate at `progress` (0 to 1, the fraction of the run before this update).

    google: lr * t / w in warm-up, then lr * (1 - t / T): the line starts at step 0, so the rate drops by w / T when
    warm-up ends. hf: the line starts where warm-up ends.
    """
    if progress < config.warmup:
        return config.lr * progress / config.warmup
    if config.schedule == "constant":
        return config.lr
    left = max(0.0, 1.0 - progress)
    return config.lr * (left if config.schedule == "google" else left / (1 - config.warmup))


def layers_from_top(names: Iterable[str]) -> dict[str, int]:
    """How many layers below the top one each parameter stands: heads, pooler and top layer 0, embeddings lowest."""
    words = {name: re.sub(r"^encoder\.(left|right)\.", "encoder.", name).split(".") for name in names}
    layer = {name: int(w[2]) for name, w in words.items() if w[:2] == ["encoder", "layers"]}
    layers = max(layer.values(), default=-1) + 1
    below = {name: layers if w[:2] == ["encoder", "embeddings"] else 0 for name, w in words.items()}
    return below | {name: layers - 1 - number for name, number in layer.items()}


class Lamb(torch.optim.Optimizer):
    """LAMB: Adam, plus decay, brought to the norm of what it updates, tensor by tensor.

    update = lr * |w| / |u| * u with u = m / (sqrt(v) + eps) + weight_decay * w; the ratio is 1 where either norm is 0.
    In a group with `adapted` False it is 1 too, as for biases and LayerNorm in the original code. Nothing is updated if
    `found_inf`, a tensor as fused Adam has it, is 1: a GPU is waited for, which is sooner than a copy of all moments.
    """

    found_inf: torch.Tensor | None = None

    def __init__(self, params: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        if self.found_inf is not None and self.found_inf:
            return
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(group, p, self.state[p])

    def _update(self, group: dict[str, Any], p: torch.Tensor, state: dict[str, torch.Tensor]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        assert p.grad is not None
        first = state["exp_avg"].lerp_(p.grad, 1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        update = (first / second.sqrt().add_(group["eps"])).add_(p, alpha=group["weight_decay"])
        if group["adapted"]:
            norm, length = p.norm(), update.norm()
            update *= torch.where((norm > 0) & (length > 0), norm / length, 1.0)
        p.add_(update, alpha=-group["lr"])


class Optimizer:
    """Adam or LAMB over matrices, which are decayed (and adapted), and vectors (biases, LayerNorm), which are not.

    With `layer_decay` every layer has a rate of its own (Howard and Ruder, 2018; Zhang et al., 2021).
    """

    def __init__(self, model: nn.Module, config: OptimConfig):
        self.config = config
        self.kernels: Kernels | None = getattr(model, "kernels", None)  # for the norm of the gradients on a CPU
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        below, ratio = layers_from_top(self.parameters), config.layer_decay or 1.0
        groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for name, p in self.parameters.items():
            groups.setdefault((p.ndim > 1, ratio ** below[name]), []).append(p)
        beta1, beta2 = config.betas
        parts: list[dict[str, Any]] = [
            {"params": params, "decay": config.weight_decay if matrix else 0.0, "lr_scale": scale, "adapted": matrix}
            for (matrix, scale), params in groups.items()
        ]
        self.adam: torch.optim.Optimizer
        if config.scales_by_norm:
            self.adam = Lamb(parts, config.lr, (beta1, beta2), config.eps)
        else:
            self.adam = torch.optim.AdamW(parts, config.lr, (beta1, beta2), config.eps, fused=True)

    def clip(self) -> torch.Tensor:
        """Clip the gradients by their global norm, which is returned. Adam does so in the pass of its next step."""
        limit = self.config.max_grad_norm
        parameters = [p for p in self.parameters.values() if p.grad is not None]
        for p in parameters:
            if p.grad.is_sparse:  # type: ignore[union-attr]  # of word embeddings whose head had nothing to predict
                p.grad = p.grad.to_dense()  # type: ignore[union-attr]
        gradients: list[torch.Tensor] = [p.grad for p in parameters]  # type: ignore[misc]
        if self.kernels is not None and all(one.is_contiguous() and one.dtype is torch.float32 for one in gradients):
            norm = self.kernels.norm(gradients)
        else:
            norm = torch.nn.utils.get_total_norm(gradients)
        # below the limit every gradient is multiplied by 1: left out on a CPU, while a GPU would have to be waited for
        clips = bool(limit) and not (norm.is_cpu and norm + 1e-6 <= limit)
        if isinstance(self.adam, Lamb):
            if clips:
                torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        else:  # what the gradients are divided by
            self.adam.grad_scale = ((norm + 1e-6) / limit).clamp(min=1.0) if clips else None  # type: ignore[attr-defined]
        return norm

    def step(self, update: int, progress: float, norm: torch.Tensor | None = None) -> float:
        """Make update number `update` (from 0); returns the learning rate used, with `layer_decay` that of the top.

        norm: of the gradients; if it is not finite, nothing is updated. It is not read: a GPU would be waited for.
        """
        lr = learning_rate(self.config, progress)
        beta1, beta2 = self.config.betas
        root = math.sqrt(1 - beta2 ** (update + 1))
        scale = root / (1 - beta1 ** (update + 1)) if self.config.rule == "bert_adam" else 1.0
        for group in self.adam.param_groups:
            group["lr"] = lr * group["lr_scale"] / scale
            group["eps"] = self.config.eps / (root if self.config.rule == "bert_adam" else 1.0)
            group["weight_decay"] = group["decay"] * scale
        self.adam.found_inf = None if norm is None else (~torch.isfinite(norm)).float()  # type: ignore[attr-defined]
        self.adam.step()
        self.adam.grad_scale = None  # type: ignore[attr-defined]  # it was that of these gradients
        self.adam.zero_grad(set_to_none=True)
        return lr

    def state(self) -> dict[str, torch.Tensor]:
        """The moments by parameter name, for saving."""
        states = {name: self.adam.state.get(p, {}) for name, p in self.parameters.items()}
        return {f"{key}.{name}": state[key] for name, state in states.items() for key in state if key != "step"}

    def expected(self) -> dict[str, torch.Tensor]:
        """A tensor like each of those that `state` gives once an update was made, by the same names."""
        return {f"{key}.{name}": p for name, p in self.parameters.items() for key in ("exp_avg", "exp_avg_sq")}

    def load(self, moments: dict[str, torch.Tensor], updates: int) -> None:
        """Take back what `state` gave after `updates` updates."""
        for name, p in self.parameters.items():
            self.adam.state[p] = {
                "step": torch.tensor(float(updates), device=p.device),
                "exp_avg": moments[f"exp_avg.{name}"].to(p.device),
                "exp_avg_sq": moments[f"exp_avg_sq.{name}"].to(p.device),
            }
