"""Linear layers in training on a CPU: several of one input as one product, whose bias oneDNN adds while it is cached.

torch's own linear layer copies the bias to every row first, and the products of query, key and value each read the
same input, forward and backward.

Shapes: T rows, D width of the input, O widths of the outputs together.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..attention import Attention
from ..bert import FeedForward, SelfAttention
from ..dropout import SiteDropout
from ..initialization import Network, has_bfloat16

NO_ACTIVATION = ("none", "")  # in oneDNN's names


# ---- replacement modules: the same call and the same parameters, computed in less time


def with_replacements(module: Network, replace: Callable[[str, nn.Module], nn.Module | None]) -> Network:
    """A copy that shares all parameters, in which `replace(name, child)` replaces a child; None: a copy of the child.

    The modules of the original stay in place. What changes parameters in place, such as `.to()`, changes both networks.
    """
    twin = twin_of(module, type(module))
    if hasattr(twin, "backend"):  # of an encoder
        twin.backend = copy.copy(module.backend)
    for name, child in module._modules.items():
        replaced = None if child is None else replace(name, child)
        twin._modules[name] = with_replacements(child, replace) if child is not None and replaced is None else replaced
    return twin


def twin_of(module: nn.Module, kind: type[Network]) -> Network:
    """A module of the class `kind` with the same parameters and submodules.

    The dictionaries of hooks are those of `module`: a hook on the encoder that a probe was given must also be called in
    its prepared copy.
    """
    twin = kind.__new__(kind)
    twin.__dict__ = {**vars(module), "_modules": {**module._modules}, "_parameters": {**module._parameters}}
    return twin


class JoinedSelfAttention(SelfAttention):
    """Self-attention with query, key and value in one product."""

    def forward(self, x: Tensor, attention: Attention, dropout: SiteDropout) -> Tensor:
        projections = linear(in_autocast_dtype(x), self.query, self.key, self.value)
        (update,) = linear(attention(projections, dropout), self.output)
        return update


class JoinedFeedForward(FeedForward):
    """The feed-forward network with these products."""

    def forward(self, x: Tensor) -> Tensor:
        (hidden,) = linear(in_autocast_dtype(x), self.intermediate)
        (update,) = linear(self.activate(hidden), self.output)
        return update


JOINED: dict[type[nn.Module], type[nn.Module]] = {SelfAttention: JoinedSelfAttention, FeedForward: JoinedFeedForward}


def with_classes(network: Network, classes: dict[type[nn.Module], type[nn.Module]]) -> Network:
    """A copy that shares all parameters, with modules of other classes that have the same submodules."""

    def replace(name: str, module: nn.Module) -> nn.Module | None:
        kind = classes.get(type(module))
        return None if kind is None else twin_of(module, kind)

    return with_replacements(network, replace)


# ---- the products


def in_autocast_dtype(x: Tensor) -> Tensor:
    """`x` in the type of matrix products, cast once; autocast would cast it again for each product."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def linear(x: Tensor, *layers: nn.Linear) -> Sequence[Tensor]:
    """The outputs of one or several linear layers for (T, D): concatenated as one (T, O), or one per layer."""
    if not all(map(is_unmodified, layers)):
        return [layer(x) for layer in layers]
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    if len(layers) > 1 and torch.compiler.is_compiling():
        return [F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)]
    if torch.is_grad_enabled() and is_supported(x):
        return [_JoinedLinear.apply(x, len(layers), *weights, *biases)]
    return [layer(x) for layer in layers]


def is_unmodified(layer: nn.Module) -> bool:
    """Whether the layer is a linear one that nothing else takes part in: no adapter, hook or computed weight."""
    return type(layer) is nn.Linear and "weight" in layer._parameters and not has_hooks(layer)


def is_replaceable(module: nn.Module) -> bool:
    """Whether it is self-attention or a feed-forward network in which nothing else takes part."""
    replaceable = type(module) in (*JOINED, *JOINED.values())
    return replaceable and not has_hooks(module) and all(map(is_unmodified, module.children()))


def has_hooks(module: nn.Module) -> bool:
    """Whether a hook is called before or after this module."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def is_supported(x: Tensor) -> bool:
    """Whether `product` takes it: on a CPU, in a type that the processor multiplies, outside of torch.compile."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not torch.backends.mkldnn.is_available():
        return False
    return x.dtype is torch.float32 or (x.dtype is torch.bfloat16 and has_bfloat16())


def product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: tuple[str, str] = NO_ACTIVATION) -> Tensor:
    """(T, O): x (T, D) times weight (O, D) transposed, plus bias (O,), by an operator that has no gradient."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation[0], [], activation[1])


def joined(parts: Sequence[Tensor], kind: torch.dtype) -> Tensor:
    """The parameters one below the other, in this type; a single one is not copied."""
    return torch.cat([part.to(kind) for part in parts]) if len(parts) > 1 else parts[0].to(kind)


class _JoinedLinear(torch.autograd.Function):
    """Several linear layers of one input, in the type of `x`; gradients of the parameters are in their own type."""

    @staticmethod
    def forward(ctx, x, layers, *parameters):  # type: ignore[no-untyped-def]
        weights, biases = parameters[:layers], parameters[layers:]
        weight = joined(weights, x.dtype)
        bias = joined(biases, x.dtype) if biases else None
        ctx.save_for_backward(x, weight)
        ctx.widths = [len(part) for part in weights]
        ctx.kinds = [part.dtype for part in parameters]
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        d_x = dy @ weight if ctx.needs_input_grad[0] else None
        needs_grad, count = ctx.needs_input_grad[2:], len(ctx.widths)
        d_weights = (dy.T @ x).split(ctx.widths) if any(needs_grad[:count]) else [None] * count
        d_biases = dy.sum(0).split(ctx.widths) if any(needs_grad[count:]) else [None] * (len(needs_grad) - count)
        grads = zip([*d_weights, *d_biases], needs_grad, ctx.kinds, strict=True)
        return d_x, None, *(grad.to(kind) if needed else None for grad, needed, kind in grads)
