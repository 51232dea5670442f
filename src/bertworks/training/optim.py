"""Optimizer and learning rate (paper A.2; optimization.py of the original code).

The paper has Adam with weight decay, warm-up and linear decay of the learning rate. Its program, and so the rule
`bert_adam`, has no bias correction and decays the weights themselves (AdamW): with the gradient g of weights w

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g^2
    w = w - lr * (m / (sqrt(v) + eps) + weight_decay * w)

Epsilon (1e-6) and clipping of the gradients to norm 1 are the program's too. torch's fused AdamW computes the rule
(`without_bias_correction`); the rule `adamw` is AdamW itself. The second half of the file is beyond the paper.
`albert_lamb` is LAMB (You et al. 2020, algorithm 2) for large batches as it trained ALBERT: without bias correction
(its lamb_optimizer.py). `muon` is Muon (Jordan et al. 2024) for the matrices of the layers and AdamW for the rest.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..files import InputError
from .config import OptimConfig
from .precision import compute_dtype

if TYPE_CHECKING:
    from ..model.acceleration import Kernels

Settings = tuple[float, float, float]  # learning rate, eps and weight decay
QUERY_OR_KEY = re.compile(r"\.(query|key)\.")  # in the name of a parameter


def learning_rate(config: OptimConfig, budget_used: float, update: int | None = None) -> float:
    """The learning rate at `budget_used` (0 to 1, the fraction of the run before this update).

    google, in step t of T, the first w of them warm-up: lr * t / w, then lr * (1 - t / T): the line starts at step 0,
    so the rate drops by w / T when warm-up ends. hf: the line starts where warm-up ends. trapezoid: it starts where
    the fraction `decay` of the run remains.
    update: the number of this update, from 0, for `warmup_updates`.
    """
    warmup_progress = budget_used / config.warmup if config.warmup else 1.0
    if update is not None and config.warmup_updates > 0:
        warmup_progress = min(warmup_progress, update / config.warmup_updates)
    if config.schedule == "constant":
        return config.lr * min(1.0, warmup_progress)
    remaining = max(0.0, 1.0 - budget_used)
    if config.schedule == "google":
        return config.lr * (warmup_progress if warmup_progress < 1 else remaining)
    decay_fraction = 1 - config.warmup if config.schedule == "hf" else config.decay  # of the run
    return config.lr * min(1.0, warmup_progress, remaining / decay_fraction)


def without_bias_correction(settings: Settings, betas: tuple[float, ...], update: int) -> Settings:
    """The settings with which update number `update` (from 0) of AdamW is that of `bert_adam`.

    AdamW, with t = update + 1, c = 1 - beta1^t and root = sqrt(1 - beta2^t), is

        w = w - lr' * (m / c / (sqrt(v) / root + eps') + weight_decay' * w)

    which is bert_adam's formula if lr' = lr * c / root, eps' = eps / root and weight_decay' = weight_decay * root / c.
    """
    lr, eps, weight_decay = settings
    root = math.sqrt(1 - betas[1] ** (update + 1))
    scale = root / (1 - betas[0] ** (update + 1))
    return lr / scale, eps / root, weight_decay * scale


class Optimizer:
    """The update rule over all parameters. Matrices have weight decay; vectors (biases, LayerNorm) have none.

    With the paper's settings `main` alone, torch's AdamW, updates all of them. `muon`, `protection` and learning rates
    by layer (`layer_decay`) are beyond the paper.
    """

    def __init__(self, model: nn.Module, config: OptimConfig):
        self.config = config
        self.kernels: Kernels | None = getattr(model, "kernels", None)  # for the norm of the gradients on a CPU
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.protection = PositionHeadProtection(model, config.protected_updates)
        # not query and key: updates of Muon's size would undo position heads
        matrices = {n for n, p in self.parameters.items() if p.ndim == 2 and ".layers." in n}
        self.by_muon = {n for n in matrices if not QUERY_OR_KEY.search(n)} if config.rule == "muon" else set()
        groups, muon_groups = self._groups(self.parameters.keys() - self.by_muon), self._groups(self.by_muon)
        self.main: torch.optim.Optimizer  # of all parameters that Muon does not update
        if config.rule == "albert_lamb":
            self.main = Lamb(groups, config.lr, config.betas, config.eps)
        else:
            self.main = torch.optim.AdamW(groups, config.lr, config.betas, config.eps, fused=True)
        self.muon = Muon(muon_groups, {"lr": config.muon_lr, "weight_decay": 0.0}) if muon_groups else None

    def _groups(self, names: Collection[str]) -> list[dict[str, Any]]:
        """Parameters with equal settings, in torch's form; `step` computes `weight_decay` from `base_weight_decay`."""
        below, ratio = layers_from_top(self.parameters), self.config.layer_decay or 1.0
        groups: dict[tuple[bool, float, bool], list[nn.Parameter]] = {}
        for name, p in self.parameters.items():
            if name in names:
                slowed = self.protection.updates > 0 and bool(QUERY_OR_KEY.search(name))
                groups.setdefault((p.ndim > 1, ratio ** below[name], slowed), []).append(p)
        base = self.config.weight_decay
        return [
            {"params": p, "base_weight_decay": base * matrix, "lr_scale": scale, "adapted": matrix, "slowed": slowed}
            for (matrix, scale, slowed), p in groups.items()
        ]

    def clip_grad_norm(self) -> Tensor:
        """Clip the gradients to the norm `max_grad_norm`, and return their norm before.

        Gradients of LAMB and Muon are scaled here. Fused AdamW divides its own by `grad_scale`, which is set here,
        in the next `step`. Numbers of predictions or tokens play no part: the losses are divided by them (trainer.py).
        """
        limit = self.config.max_grad_norm
        for p in self.parameters.values():
            if p.grad is not None and p.grad.is_sparse:  # of word embeddings that no head read (model/fast/cpu.py)
                p.grad = p.grad.to_dense()
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        if self.kernels is not None and all(one.is_contiguous() and one.dtype is torch.float32 for one in gradients):
            norm = self.kernels.norm(gradients)
        else:
            norm = torch.nn.utils.get_total_norm(gradients)
        # below the limit every gradient is multiplied by 1: left out on a CPU, while a GPU would have to be waited for
        clips = bool(limit) and not (norm.is_cpu and norm + 1e-6 <= limit)
        self.main.grad_scale = ((norm + 1e-6) / limit).clamp(min=1.0) if clips else None  # type: ignore[attr-defined]
        if clips:
            names: Collection[str] = self.parameters if isinstance(self.main, Lamb) else self.by_muon
            torch.nn.utils.clip_grads_with_norm_([self.parameters[name] for name in names], limit, norm)
        return norm

    def step(self, update: int, budget_used: float, norm: Tensor | None = None) -> float:
        """Make update number `update` (from 0) and remove the gradients; returns the learning rate (of the top layer).

        norm: of the gradients; if it is not finite, nothing is updated: fused AdamW reads `found_inf` on the device, so
        a GPU is not waited for.
        """
        lr = learning_rate(self.config, budget_used, update)
        query_key_factor = self.protection.apply(update)  # 1 in the paper
        for group in self.main.param_groups:
            group_lr = lr * group["lr_scale"] * (query_key_factor if group["slowed"] else 1.0)
            settings = group_lr, self.config.eps, group["base_weight_decay"]
            if self.config.rule == "bert_adam":
                settings = without_bias_correction(settings, self.config.betas, update)
            group["lr"], group["eps"], group["weight_decay"] = settings
        found_inf = None if norm is None else (~torch.isfinite(norm)).float()
        self.main.found_inf = found_inf  # type: ignore[attr-defined]
        self.main.step()
        self.main.grad_scale = None  # type: ignore[attr-defined]  # it was that of these gradients
        if self.muon is not None:
            self.muon.found_inf = found_inf
            for group in self.muon.param_groups:
                group["lr"] = lr / self.config.lr * self.config.muon_lr * group["lr_scale"]
                group["weight_decay"] = group["base_weight_decay"]
            self.muon.step()
        for p in self.parameters.values():
            p.grad = None
        return lr

    def state(self) -> dict[str, Tensor]:
        """The moments by parameter name, for saving."""
        states = {name: self._state(name).get(p, {}) for name, p in self.parameters.items()}
        return {f"{key}.{name}": state[key] for name, state in states.items() for key in state if key != "step"}

    def load(self, moments: Mapping[str, Tensor] | None, updates: int) -> None:
        """Take back what `state` gave after `updates` updates; None: moments of 0, to be overwritten."""
        for name, p in self.parameters.items():
            keys = ("momentum_buffer",) if name in self.by_muon else ("exp_avg", "exp_avg_sq")
            saved = {k: torch.zeros_like(p) if moments is None else moments[f"{k}.{name}"].to(p.device) for k in keys}
            self._state(name)[p] = {"step": torch.tensor(float(updates), device=p.device), **saved}

    def _state(self, name: str) -> Any:
        return self.muon.state if self.muon is not None and name in self.by_muon else self.main.state


# ---- beyond the paper: protected position heads, learning rates by layer, LAMB, Muon


class PositionHeadProtection:
    """Preserves position heads (model/initialization.py) during the first `updates` of training (docs/plateau.md).

    Query and key have a tenth of the learning rate, and word embeddings no gradient in the position subspace.
    """

    def __init__(self, model: Any, updates: int):
        self.model, self.updates = model, updates
        if updates and model.encoder.config.start != "position-heads":
            raise InputError("optim.protected_updates needs a model with start = 'position-heads'; leave it out")

    def apply(self, update: int) -> float:
        """Remove the gradients in the subspace; returns the factor of the learning rate of query and key."""
        if update >= self.updates:
            return 1.0
        encoder = self.model.encoder
        words, subspace = encoder.embeddings.word.weight, encoder.config.position_subspace
        if words.grad is not None:
            words.grad[:, subspace] = 0.0
        return 0.1


def layers_from_top(names: Iterable[str]) -> dict[str, int]:
    """The depth of each parameter, in layers below the top one: heads, pooler and top layer 0, embeddings lowest."""
    parts = {name: re.sub(r"^encoder\.(left|right)\.", "encoder.", name).split(".") for name in names}
    layer = {name: int(part[2]) for name, part in parts.items() if part[:2] == ["encoder", "layers"]}
    layers = max(layer.values(), default=-1) + 1
    below = {name: layers if part[:2] == ["encoder", "embeddings"] else 0 for name, part in parts.items()}
    return below | {name: layers - 1 - number for name, number in layer.items()}


class TensorByTensor(torch.optim.Optimizer, ABC):
    """An optimizer whose `update` treats each tensor by itself.

    Nothing is updated if `found_inf`, a tensor as fused Adam has it, is 1: a GPU is waited for, which is sooner than a
    copy of all moments.
    """

    found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        if self.found_inf is not None and self.found_inf:
            return
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(group, p, p.grad, self.state[p])

    @abstractmethod
    def update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Tensor]) -> None:
        """Update `p` by its gradient; `state` has its moments, and is empty before the first update."""


class Lamb(TensorByTensor):
    """LAMB: Adam, plus weight decay, brought to the norm of what it updates, tensor by tensor.

    update = lr * |w| / |u| * u with u = m / (sqrt(v) + eps) + weight_decay * w; the ratio is 1 where either norm is 0.
    In a group with `adapted` False it is 1 too, as for biases and LayerNorm in the original code.
    """

    def __init__(self, params: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True})

    def update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Tensor]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        first = state["exp_avg"].lerp_(grad, 1 - beta1)
        second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = (first / second.sqrt().add_(group["eps"])).add_(p, alpha=group["weight_decay"])
        if group["adapted"]:
            norm, update_norm = p.norm(), update.norm()
            update *= torch.where((norm > 0) & (update_norm > 0), norm / update_norm, 1.0)
        p.add_(update, alpha=-group["lr"])


class Muon(TensorByTensor):
    """Muon (Jordan et al. 2024): the momentum of a matrix, with all singular values brought near 1, is its update.

    As torch.optim.Muon with `adjust_lr_fn="match_rms_adamw"`, but in float32 on a CPU without fast bfloat16: there
    torch's iterations, always in bfloat16, take longer than the rest of the step.
    """

    momentum = 0.95

    def update(self, group: dict[str, Any], p: Tensor, grad: Tensor, state: dict[str, Tensor]) -> None:
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p)
        mean = state["momentum_buffer"].lerp_(grad, 1 - self.momentum)
        update = orthogonalized(grad.lerp(mean, self.momentum))  # Nesterov's momentum
        lr = group["lr"] * (0.2 * math.sqrt(max(p.shape)))  # the update then has the root mean square of one of AdamW's
        p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-lr)


def orthogonalized(matrix: Tensor) -> Tensor:
    """The matrix with singular values from about 0.7 to 1.2 in place of its own, by five Newton-Schulz iterations."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalized(matrix.T).T
    x = matrix.to(compute_dtype("auto", matrix.device) if matrix.is_cpu else torch.bfloat16)
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        product = x @ x.T
        x = torch.addmm(x, torch.addmm(product, product, product, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x
