"""Prepare a network: its shapes, its first weights, compiled layers for training, faster products for inference."""

import contextlib
import copy
import dataclasses
import functools
import math
import os
from collections.abc import Iterator
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .encoder import Embeddings, Encoder
from .layer import Layer, run_layer
from .products import has_bfloat16

Network = TypeVar("Network", bound=nn.Module)


@functools.cache
def one_thread_after_fork() -> None:
    """From now on a process that is forked from this one computes with one thread.

    It has no copies of torch's other threads, and waiting for them would never end.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


# ---- shapes


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Modules that are built inside have shapes and no values: load_state_dict(..., assign=True) gives them values."""
    with torch.device("meta"), _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Leaves out the first values: drawing none on the device "meta" would import torch's compiler, for a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.init.normal_:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


# ---- first weights


@torch.no_grad()
def initialise(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Truncated normal within two `std` for matrices and embeddings, 0 for biases, 1 for LayerNorm gains (modeling.py).

    Recurrent layers: uniform within one over the root of their width. Sinusoidal positions (a table that requires no
    gradient) are filled by formula.
    """
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(child.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
            if isinstance(child, nn.Linear) and child.bias is not None:
                child.bias.zero_()
        elif isinstance(child, nn.LayerNorm):
            child.reset_parameters()
        elif isinstance(child, nn.RNNBase):  # torch's own way, from our generator
            for parameter in child.parameters():
                parameter.uniform_(-(child.hidden_size**-0.5), child.hidden_size**-0.5, generator=generator)
    for child in module.modules():  # in a second pass: the first one meets Embeddings before their tables
        table = child.position if isinstance(child, Embeddings) else None
        if table is not None and not table.weight.requires_grad:
            table.weight.copy_(sinusoids(*table.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) sines and cosines of Vaswani et al. (2017), section 3.5."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


# ---- training


def compile_layers(encoder: nn.Module, gradients: bool = True) -> None:
    """Compile the layer once for all layers (torch.compile), which fuses the operations between matrix products.

    gradients: whether the compiled layer is used where gradients are on (the updates of training) or where they are off
    (a teacher); elsewhere, and so in evaluation, the layer runs as it is written. torch compiles a graph for each new
    kind of input and gives up silently after a few for one function, so each encoder gets a function of its own.
    """
    import torch._dynamo  # seconds

    torch._dynamo.config.optimize_ddp = False  # it would cut the layer where a bucket of DDP's gradients ends
    torch._dynamo.config.skip_nnmodule_hook_guards = False  # else a graph without hooks serves a layer that has some
    for part in encoder.modules():  # of a pair both
        if isinstance(part, Encoder) and part.config.layer_type == "attention":
            own = FunctionType(run_layer.__code__.replace(), run_layer.__globals__, run_layer.__name__)
            part.compiled_layer, part.compiled_for_gradients = torch.compile(own), gradients


# ---- inference
#
# torch's own float32 products go through MKL, which on processors that are not Intel's leaves half of the vector unit
# unused; oneDNN, which torch also carries, uses all of it. There the same products in the same precision take less than
# half the time (docs/log.md). oneDNN's operator has no gradient. It also applies an activation to a product that is
# still in the cache.

# oneDNN keeps what it prepares for each number of rows. These modules read one row a sequence or a masked token: little
# work, but another number of rows in every batch. In bfloat16 torch gives them to oneDNN anyway.
_FEW_ROWS = ("pooler", "nsp", "mlm")
_FUSED = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}  # oneDNN's names


def for_inference(network: Network, precision: str = "float32", lasting: bool = False) -> Network:
    """The network in evaluation mode, with the fastest matrix products of its device.

    float32: the weights are shared, and products on a CPU go through oneDNN. bfloat16: a copy, in which every weight is
    bfloat16. lasting: the weights will not change any more, so on a CPU the layers' matrices are copied once into
    oneDNN's own layout, those of query, key and value as one; bfloat16 always is.
    """
    network.eval()
    if precision == "bfloat16":
        network = in_bfloat16(network)
    if torch.is_autocast_enabled("cpu"):
        return network
    weights = {(p.dtype, p.device.type) for p in network.parameters()}
    if weights != {(getattr(torch, precision), "cpu")} or not torch.backends.mkldnn.is_available():
        return network
    if any(isinstance(module, OneDnnLinear) for module in network.modules()):  # prepared before
        return network
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not known or (precision == "bfloat16" and not has_bfloat16()):
        return network
    return _with_onednn(network, lasting or precision == "bfloat16")


def in_bfloat16(network: Network) -> Network:
    """A copy whose weights are bfloat16, made without a copy in float32; what shares a weight still does."""
    copied = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), p.requires_grad) for p in network.parameters()}
    return copy.deepcopy(network, copied).to(torch.bfloat16)


class OneDnnLinear(nn.Linear):
    """nn.Linear through oneDNN, and the activation after it if `fused` names one."""

    fused = ("none", "")
    packed: Tensor | None = None  # the weights in oneDNN's own layout, which only its operators read

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.packed is None else self.packed
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, self.bias, self.fused[0], [], self.fused[1])
        return product

    def pack(self) -> None:
        """Store the weights in oneDNN's layout, without which every call would arrange them anew."""
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
        self._parameters = {**self._parameters, "weight": nn.Parameter(self.weight.new_empty(0), requires_grad=False)}


def _with_onednn(module: Network, lasting: bool) -> Network:
    """A copy with the same weights, whose linear modules that read tokens use oneDNN."""
    twin = copy.copy(module)
    twin._modules = {
        name: child if child is None or name in _FEW_ROWS else _with_onednn(child, lasting)
        for name, child in module._modules.items()
    }
    if type(twin) is nn.Linear:
        twin.__class__ = OneDnnLinear  # type: ignore[assignment]
    if isinstance(twin, Layer):
        _fuse_activation(twin)
        if lasting:
            _pack(twin)
    return twin


def _fuse_activation(layer: Layer) -> None:
    """Make the activation a part of the product before it."""
    fused = _FUSED.get(layer.config.hidden_act)
    if fused and layer.config.feed_forward == "dense" and "intermediate" in layer._modules:
        cast(OneDnnLinear, layer.intermediate).fused = fused
        layer.config = dataclasses.replace(layer.config, hidden_act="linear")


def _pack(layer: Layer) -> None:
    """Join query, key and value, and give all matrices oneDNN's layout."""
    if "query" in layer._modules:
        parts = [layer._modules.pop(name) for name in ("query", "key", "value")]
        layer.joined = joined = cast(OneDnnLinear, parts[0])
        joined._parameters = {
            name: None if parameter is None else nn.Parameter(torch.cat([getattr(part, name) for part in parts]), False)
            for name, parameter in joined._parameters.items()
        }
    for linear in layer.children():
        if isinstance(linear, OneDnnLinear):
            linear.pack()
