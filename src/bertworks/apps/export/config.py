"""The settings of an export: the flags of `bertworks export`. Importing them loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...files import InputError

PRECISIONS = {"onnx": ("float32", "int8"), "torch": ("float32", "bfloat16")}  # of each form


@dataclass(frozen=True)
class AdviceConfig:
    """How engines are measured."""

    rounds: int = 5  # rounds, in each of which every engine computes all texts once; figures are medians over them
    singles: int = 20  # texts that are computed one by one in each round
    packages: bool = False  # also compile packages (--to torch), which takes minutes
    # least share of answers equal to those in float32, of an embedder mean cosine, that an engine needs to be advised
    equal: float = 0.99

    def __post_init__(self) -> None:
        if self.rounds < 2 or self.singles < 1 or not 0 <= self.equal <= 1:
            raise InputError(
                f"rounds = {self.rounds}, singles = {self.singles}, equal = {self.equal:g}; expected 2 or more, 1 or "
                "more, 0 to 1"
            )


@dataclass(frozen=True)
class ExportConfig:
    """What an export is written as."""

    # onnx: a graph for ONNX Runtime and other software; torch: a compiled package for this machine alone, which needs a
    # C++ compiler now and none later
    to: Literal["onnx", "torch"] = "onnx"
    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """number type of matrix products: float32; int8 (onnx alone); bfloat16 (torch alone)"""
    # int8: text file with a text in each line, by which the ranges of activations are fixed; none: each batch measures
    # its own ranges
    calibrate: Path | None = None

    def __post_init__(self) -> None:
        if self.to not in PRECISIONS:
            raise InputError(f"to = {self.to!r}; expected {' or '.join(PRECISIONS)}")
        if self.precision not in PRECISIONS[self.to]:
            fitting = [to for to, kinds in PRECISIONS.items() if self.precision in kinds]
            other = f"; for {self.precision} export to {fitting[0]}" if fitting else ""
            kinds = " or ".join(PRECISIONS[self.to])
            raise InputError(f"precision = {self.precision!r} with to = {self.to!r}; expected {kinds}{other}")
        if self.calibrate is not None and self.precision != "int8":
            raise InputError(f"calibrate with precision = {self.precision!r}; expected int8; leave one of them out")
