"""The activations that a config may name, as functions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,  # exact (erf): the paper's first release and Hugging Face's "gelu"
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),  # the tanh form of the original code since February 2019
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "linear": lambda x: x,  # none
}
