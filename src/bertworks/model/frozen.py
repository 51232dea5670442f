"""A network that will not be trained, with faster matrix products on a CPU.

torch's own float32 products go through MKL, which on processors that are not Intel's leaves half of the vector unit
unused; oneDNN, which torch also carries, uses all of it. There the same products in the same precision take less than
half the time (docs/log.md). oneDNN's operator has no gradient, so this is for inference alone.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


class _Linear(nn.Linear):
    """nn.Linear through oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return product


def for_inference(network: Network) -> Network:
    """The network in evaluation mode, its weights shared; products through oneDNN if they are float32 on a CPU."""
    network.eval()
    if torch.is_autocast_enabled("cpu"):
        return network
    weights = {(p.dtype, p.device.type) for p in network.parameters()}
    if weights != {(torch.float32, "cpu")} or not torch.backends.mkldnn.is_available():
        return network
    return _twin(network) if hasattr(torch.ops.mkldnn, "_linear_pointwise") else network


def _twin(module: Network) -> Network:
    """The same modules with the same weights, but for the class of linear ones."""
    twin = copy.copy(module)
    twin._modules = {name: child and _twin(child) for name, child in module._modules.items()}
    if type(twin) is nn.Linear:
        twin.__class__ = _Linear  # type: ignore[assignment]
    return twin
