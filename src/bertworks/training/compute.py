"""Which code computes the layers of a run (docs/heart.md, "Which code runs when")."""

import os
import shutil

import torch

from ..model.acceleration import compile_layers, is_supported, load_kernels, reference, training_method, use_kernels
from ..model.heads import Model
from .config import LoopConfig
from .graph import kind_of_pass
from .identity import Run
from .objectives import Objective
from .precision import compute_dtype

MEANINGS = {  # of the names that `training_method` returns, for the first line of a run
    "kernels": "C kernels of bertworks",
    "keyed": "PyTorch, with dropout masks that depend on seed and step only",
    "flash": "flash attention",
    "torch": "PyTorch",
    "recurrent": "LSTM or GRU layers of PyTorch",
    "reference": "model/bert.py as it is written",
}
PASSES = {  # of the names that `kind_of_pass` returns
    "packed": "",
    "static": "; micro-batches of a phase have one shape",
    "graph": "; micro-batches of a phase have one shape, a CUDA graph repeats each pass",
}


def prepare_model(model: Model, config: LoopConfig, run: Run, objective: Objective | None = None) -> Model:
    """The model on the device of the run, ready to be trained by the method of `loop.compute`, which is printed.

    objective: of pre-training, whose batches may have one shape (graph.py).
    """
    device, dtype = run.world.device, compute_dtype(config.precision, run.world.device)
    if config.compute == "reference":
        model = reference(model)
    if should_compile(config.compute, device):
        compile_layers(model.encoder)
    if wants_kernels(config.compute, device, dtype):
        kernels = load_kernels()
        if kernels is None:
            run.say("training is slower without compiled kernels, which need Linux, gcc and PyTorch installed by pip")
        else:
            use_kernels(model, kernels, alone=run.world.size == 1)
    method = training_method(model, dtype, keyed=device.type == "cpu")
    meaning = MEANINGS[method.removesuffix(", compiled")]
    number_type = str(dtype).removeprefix("torch.")
    kind = kind_of_pass(config.compute, objective, model, run.world)
    run.say(f"computation: {method} ({meaning}){PASSES[kind]}; matrix products in {number_type}, device {device}")
    if config.compute == "graph" and kind != "graph":
        run.say("no CUDA graph: it needs a GPU, one process, and an objective on masked tokens with attention layers")
    return model.to(device)


def should_compile(compute: str, device: torch.device) -> bool:
    """Whether to use torch.compile: on a GPU if there is a C++ compiler, unless the setting excludes it.

    On a CPU the kernels are faster and need a second of compiling in place of a minute (docs/log.md).
    """
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    return compute not in ("eager", "reference") and device.type == "cuda" and any(map(shutil.which, compilers))


def wants_kernels(compute: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether training in `dtype` uses kernels: for "auto" and "packed" on a CPU that multiplies in bfloat16."""
    used = compute in ("auto", "packed") and device.type == "cpu" and dtype is torch.bfloat16
    return used and is_supported(torch.empty(0, dtype=dtype))
