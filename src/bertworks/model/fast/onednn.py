"""Inference on a CPU through oneDNN.

torch's own float32 products go through MKL, which on processors that are not Intel's leaves half of the vector unit
unused; oneDNN, which torch also carries, uses all of it. There the same products in the same precision take less than
half the time (docs/log.md, "Speed of inference on a CPU"). oneDNN's operator has no gradient. It also applies an
activation to a product that is still in the cache.
"""

import torch
from torch import Tensor, nn

from ..attention import Attention
from ..bert import FeedForward, SelfAttention, encoders_in
from ..dropout import SiteDropout
from ..initialization import Network, has_bfloat16, in_bfloat16
from .products import NO_ACTIVATION, is_replaceable, is_unmodified, product, with_replacements

# oneDNN keeps what it prepares for each number of rows. These modules read one row per sequence or masked token:
# little work, but another number of rows in every batch. In bfloat16 torch gives them to oneDNN anyway.
SMALL_INPUTS = ("pooler", "nsp", "mlm")
ACTIVATIONS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}  # in oneDNN's names


def for_inference(network: Network, precision: str = "float32", frozen: bool = False) -> Network:
    """The network in evaluation mode, with the fastest matrix products of its device.

    float32: the weights are shared, and products on a CPU go through oneDNN. bfloat16: a copy, in which every weight is
    bfloat16. frozen: the weights will not change any more, so on a CPU the layers' matrices are copied once into
    oneDNN's own layout, those of query, key and value as one; bfloat16 always is. The network of `reference` stays
    as it is.
    """
    network.eval()
    if any(encoder.backend.requested for encoder in encoders_in(network)):
        return network
    if precision == "bfloat16":
        network = in_bfloat16(network)
    if any(isinstance(module, OneDnnLinear) for module in network.modules()):  # prepared before
        return network
    weights = {(p.dtype, p.device.type) for p in network.parameters()}
    fast = torch.backends.mkldnn.is_available() and (precision == "float32" or has_bfloat16())
    if not fast or weights != {(getattr(torch, precision), "cpu")} or torch.is_autocast_enabled("cpu"):
        return network
    prepack = frozen or precision == "bfloat16"

    def replace(name: str, module: nn.Module) -> nn.Module | None:
        if name in SMALL_INPUTS:
            return module
        if isinstance(module, FeedForward) and is_replaceable(module):
            return OneDnnFeedForward(module, prepack)
        if isinstance(module, SelfAttention) and is_replaceable(module) and prepack:
            return OneDnnSelfAttention(module)
        if isinstance(module, nn.Linear) and is_unmodified(module):
            return OneDnnLinear(module.weight, module.bias)
        return None  # an adapter, or a layer with hooks or a computed weight, stays as it is

    return with_replacements(network, replace)


class OneDnnLinear(nn.Module):
    """A linear layer through oneDNN, and the activation behind it."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, prepack: bool = False, activation: tuple[str, str] = NO_ACTIVATION
    ):
        """prepack: copy the weights into oneDNN's layout, without which every call would convert them again."""
        super().__init__()
        self.activation = activation
        self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Parameter(bias, False)
        self.packed: Tensor | None = None  # a layout that only oneDNN's operators read
        if prepack:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
            weight = weight.new_empty(0)
        self.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, False)

    def forward(self, x: Tensor) -> Tensor:
        return product(x, self.weight if self.packed is None else self.packed, self.bias, self.activation)


class OneDnnSelfAttention(SelfAttention):
    """Self-attention with query, key and value in one product, prepacked."""

    def __init__(self, module: SelfAttention):
        nn.Module.__init__(self)
        parts = [module.query, module.key, module.value]
        bias = None if module.query.bias is None else torch.cat([part.bias.detach() for part in parts])
        self.projections = OneDnnLinear(torch.cat([part.weight.detach() for part in parts]), bias, True)
        self.output = OneDnnLinear(module.output.weight, module.output.bias, True)  # type: ignore[assignment]

    def forward(self, x: Tensor, attention: Attention, dropout: SiteDropout) -> Tensor:
        return self.output(attention([self.projections(x)], dropout))


class OneDnnFeedForward(FeedForward):
    """The feed-forward network with these products, the first one with the activation."""

    def __init__(self, module: FeedForward, prepack: bool):
        nn.Module.__init__(self)
        self.gated, self.activation, activation = module.gated, module.activation, NO_ACTIVATION
        if not self.gated and self.activation in ACTIVATIONS:
            self.activation, activation = "linear", ACTIVATIONS[self.activation]
        first, last = module.intermediate, module.output
        self.intermediate = OneDnnLinear(first.weight, first.bias, prepack, activation)  # type: ignore[assignment]
        self.output = OneDnnLinear(last.weight, last.bias, prepack)  # type: ignore[assignment]
