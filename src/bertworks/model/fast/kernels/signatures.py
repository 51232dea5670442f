"""The parameters of the functions in C, read from their source, so that no tensor of another type reaches them."""

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DECLARATION = re.compile(r"^void (\w+)\(([^)]*)\)", re.MULTILINE)
PARAMETER = re.compile(r"(?:const )?(\w+) ((?:\*|const )*)\w+$")
NUMBERS = {"int64_t": ctypes.c_int64, "int": ctypes.c_int, "float": ctypes.c_float}
TENSORS = {  # what is behind a pointer
    "float": torch.float32,
    "bf16": torch.bfloat16,
    "int64_t": torch.int64,
    "uint64_t": torch.int64,
    "uint16_t": torch.int16,
}


class Function:
    """A function of a library, which takes tensors where C takes their addresses.

    parameters: as in the source. structures: the classes of what it takes by their C names.
    """

    def __init__(self, function: Any, parameters: str, structures: dict[str, Any]):
        self._function = function
        self._dtypes: list[torch.dtype | None] = []
        function.argtypes, function.restype = [], None
        for parameter in parameters.split(","):
            match = PARAMETER.match(" ".join(parameter.split()))
            assert match, parameter
            name, stars = match[1], match[2].count("*")
            if not stars:
                function.argtypes += [NUMBERS[name]]
            elif name in structures:
                function.argtypes += [ctypes.POINTER(structures[name])]
            else:
                function.argtypes += [ctypes.c_void_p]
            self._dtypes.append(TENSORS[name] if stars == 1 and name not in structures else None)

    def __call__(self, *arguments: Any) -> None:
        """Call it. For a tensor its address may be given, and None if the source allows it; neither is checked."""
        assert len(arguments) == len(self._dtypes), (len(arguments), len(self._dtypes))
        self._function(*map(_as_c, arguments, self._dtypes))


def functions(library: ctypes.CDLL, sources: Iterable[Path], structures: dict[str, Any]) -> dict[str, Function]:
    """Those functions of the sources that the library has, by name."""
    declarations = [declared for path in sources for declared in DECLARATION.findall(path.read_text(encoding="utf-8"))]
    return {
        name: Function(getattr(library, name), parameters, structures)
        for name, parameters in declarations
        if hasattr(library, name)
    }


def _as_c(value: Any, dtype: torch.dtype | None) -> Any:
    """A tensor's address, if it is what C reads; anything else as it is."""
    if dtype is None or not isinstance(value, Tensor):
        return value
    assert value.dtype is dtype and value.is_contiguous() and value.is_cpu, (value.dtype, value.stride(), value.device)
    return value.data_ptr()
