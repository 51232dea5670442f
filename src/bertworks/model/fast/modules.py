"""Replacements for modules of an encoder: the same call and the same parameters, computed sooner.

`with_replacements` is the only place where modules are exchanged. It makes a copy of the network that shares all
parameters; the original stays as it was.
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
    twin._modules = {}
    for name, child in module._modules.items():
        replaced = None if child is None else replace(name, child)
        twin._modules[name] = with_replacements(child, replace) if child is not None and replaced is None else replaced
    return twin
