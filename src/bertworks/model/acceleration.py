"""What fast/ offers, or plain PyTorch where that folder was removed: everything works without it, only slower."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .initialization import in_bfloat16

__all__ = [
    "Kernels", "accelerated", "compile_layers", "for_inference", "is_supported", "load_kernels", "reference",
    "training_method", "use_kernels",
]  # fmt: skip
_FAST = find_spec(f"{__package__}.fast")
if TYPE_CHECKING or (_FAST is not None and _FAST.origin):  # a folder without files has no origin
    from .fast.backend import accelerated, compile_layers, reference, training_method
    from .fast.cpu import use_kernels
    from .fast.kernels.build import load as load_kernels
    from .fast.kernels.functions import Kernels
    from .fast.onednn import for_inference
    from .fast.products import is_supported
else:
    Kernels = Any

    def unchanged(network, *_, **__):
        return network

    def do_nothing(*_, **__):
        return None

    def training_method(*_, **__):
        return "reference"

    def for_inference(network, precision="float32", frozen=False):
        return in_bfloat16(network.eval()) if precision == "bfloat16" else network.eval()

    def is_supported(x):
        return False

    accelerated = reference = unchanged
    compile_layers = load_kernels = use_kernels = do_nothing
