"""What fast/ offers, or plain PyTorch where that folder was removed: everything works without it, only slower."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import nn

from .initialization import in_bfloat16

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
    from .fast.products import is_supported as is_supported
    from .fast.products import product as product
    from .fast.subset_embedding import restore_embeddings as restore_embeddings
    from .fast.subset_embedding import shrink_embeddings as shrink_embeddings

    load_kernels = kernels.load
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
    product = nn.functional.linear
    compile_layers = load_kernels = use_kernels = shrink_embeddings = restore_embeddings = do_nothing
