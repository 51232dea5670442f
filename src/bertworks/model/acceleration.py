"""What fast/ offers, or plain PyTorch where that folder was removed: everything works without it, only slower."""

import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)

_FAST = find_spec(f"{__package__}.fast")
if TYPE_CHECKING or (_FAST is not None and _FAST.origin):  # a folder without files has no origin
    from .fast import kernels
    from .fast.backend import accelerated as accelerated
    from .fast.backend import compile_layers as compile_layers
    from .fast.backend import reference as reference
    from .fast.backend import training_method as training_method
    from .fast.cpu import use_kernels as use_kernels
    from .fast.kernels import Kernels as Kernels
    from .fast.onednn import for_inference as for_inference
    from .fast.onednn import in_bfloat16 as in_bfloat16
    from .fast.products import has_bfloat16 as has_bfloat16
    from .fast.products import is_supported as is_supported
    from .fast.products import product as product
    from .fast.subset_embedding import restore_embeddings as restore_embeddings
    from .fast.subset_embedding import shrink_embeddings as shrink_embeddings

    load_kernels = kernels.load
else:
    Kernels = Any

    def accelerated(model: Network) -> Network:
        return model

    def reference(model: Network) -> Network:
        return model

    def compile_layers(model: nn.Module, gradients: bool = True) -> None:
        pass

    def training_method(model: nn.Module, dtype: torch.dtype, keyed: bool) -> str:
        return "reference"

    def load_kernels() -> None:
        return None

    def use_kernels(model: nn.Module, kernels: Any, alone: bool = True) -> None:
        pass

    def for_inference(network: Network, precision: str = "float32", frozen: bool = False) -> Network:
        return in_bfloat16(network.eval()) if precision == "bfloat16" else network.eval()

    def in_bfloat16(network: Network) -> Network:
        return copy.deepcopy(network).to(torch.bfloat16)

    def has_bfloat16() -> bool:
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()

    def is_supported(x: Tensor) -> bool:
        return False

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.linear(x, weight, bias)

    def shrink_embeddings(model: nn.Module, tokens: Tensor) -> None:
        pass

    def restore_embeddings(model: nn.Module) -> None:
        pass
