"""Public names of a package that are imported when they are first used."""

import ast
import importlib
import pkgutil
import random
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    The names are those that its `__init__.py` imports from its own files under `if TYPE_CHECKING`, where readers,
    editors and type checkers find them. So a package names what is public, and `--help` loads no torch.
    """
    source = pkgutil.get_data(package, "__init__.py") or b""
    guarded = [block for block in ast.parse(source).body if isinstance(block, ast.If)]
    imports = [one for block in guarded for one in block.body if isinstance(one, ast.ImportFrom)]
    home = {alias.name: f"{package}.{one.module}" for one in imports for alias in one.names}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        state = random.getstate()
        value = getattr(importlib.import_module(home[name]), name)
        random.setstate(state)  # rich draws a number where it is imported
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home), get, lambda: sorted({*home, *vars(sys.modules[package])})
