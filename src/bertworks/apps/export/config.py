"""The settings of an export: the flags of `bertworks export`. Importing them loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...files import InputError


@dataclass(frozen=True)
class ExportConfig:
    """What an export is written as."""

    precision: Literal["float32", "int8"] = "float32"  # number type of matrix products
    # int8: text file with one text per line, by which the ranges of activations are fixed; none: each batch measures
    # its own ranges
    calibrate: Path | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "int8"):
            raise InputError(f"precision = {self.precision!r}; expected float32 or int8")
        if self.calibrate is not None and self.precision != "int8":
            raise InputError(f"calibrate with precision = {self.precision!r}; expected int8; leave one of them out")
