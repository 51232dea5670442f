"""A model as a package of compiled code for this processor, by torch's AOTInductor."""

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from ...checkpoint.pooling import Pooling
from ...files import InputError
from ...inference.exported import SENTENCE
from ...model.heads import Model
from ...model.rectangular import STATES
from .graph import Exportable


def write_packages(model: Model, pooling: Pooling, folder: Path, precision: str) -> dict[str, str]:
    """Write torch/*.pt2 in `folder`; returns the file of each output.

    Vectors and scores are packages of their own, because a package computes all that it has. The model is changed to
    the precision. Raises InputError if there is no C++ compiler.
    """
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))):
        raise InputError("no C++ compiler found, which --to torch needs; install g++, or export with --to onnx")
    model.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    (folder / "torch").mkdir(parents=True)
    files: dict[str, str] = {}
    for name, vectors in (("scores", False), ("vectors", True)):
        module = Exportable(model, pooling).eval()
        module.keep([out for out, part in module.outputs.items() if (part == STATES) == vectors and out != SENTENCE])
        if module.outputs:
            file = f"torch/{name}.pt2"
            with _quiet():
                torch._inductor.aoti_compile_and_package(module.recorded(), package_path=str(folder / file))
            files |= dict.fromkeys(module.outputs, file)
    return files


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
