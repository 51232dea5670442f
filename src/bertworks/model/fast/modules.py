"""Replacements for modules of an encoder: the same call and the same parameters, computed sooner.

`with_replacements` exchanges modules of a network: it makes a copy that shares all parameters and leaves the modules of
the original in place. What changes parameters in place, such as `.to()`, changes both.
"""

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import nn

Network = TypeVar("Network", bound=nn.Module)
Replace = Callable[[str, nn.Module], nn.Module | None]


def with_replacements(module: Network, replace: Replace) -> Network:
    """A copy in which `replace(name, child)` stands for a child, and for None a copy of the child itself."""
    twin = copy.copy(module)
    twin._modules, twin._parameters = {}, {**module._parameters}
    if hasattr(twin, "backend"):  # of an encoder
        twin.backend = copy.copy(module.backend)
    for name, child in module._modules.items():
        replaced = None if child is None else replace(name, child)
        twin._modules[name] = with_replacements(child, replace) if child is not None and replaced is None else replaced
    return twin
