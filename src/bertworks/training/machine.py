"""The machine: precision of matrix products, compilers, memory, and the facts that results record."""

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from .._version import __version__
from ..files import InputError
from ..model.acceleration import is_supported
from ..model.config import ModelConfig
from ..reporting.run_files import commit

# torch's test of the processor -> a kind that multiplies in bfloat16 faster than in float32, the fastest first
BFLOAT16_KINDS = {"_is_amx_tile_supported": "AMX", "_is_avx512_bf16_supported": "AVX-512 bf16"}


def compute_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: "float32", "bfloat16", or for "auto" bfloat16 where it is the faster one.

    float32 is never TF32, so training, evaluation and prediction compute the same numbers: nothing in bertworks turns
    torch's setting on.
    """
    if wanted != "auto":
        return torch.bfloat16 if wanted == "bfloat16" else torch.float32
    if device.type == "cuda":  # GPUs before 2020 only emulate bfloat16
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if processor_kind() in BFLOAT16_KINDS.values() else torch.float32


def should_compile(wanted: str, device: torch.device) -> bool:
    """Whether to use torch.compile: "on", "off", or for "auto" on a GPU if there is a C++ compiler.

    On a CPU the kernels are faster and need a second of compiling in place of a minute (docs/log.md).
    """
    found = any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++"))
    if wanted == "on" and not found:
        raise InputError(
            "loop.compile = 'on', but no C++ compiler (g++ or clang++) was found; install one or give 'auto'"
        )
    return wanted == "on" or (wanted == "auto" and device.type == "cuda" and found)


def graphs_made() -> int:
    """How many graphs torch.compile has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # its import takes seconds
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def wants_kernels(wanted: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether training in `dtype` uses kernels by the recipe's `loop.compile`: for "auto" on a CPU in bfloat16."""
    used = wanted == "auto" and device.type == "cpu" and dtype is torch.bfloat16
    return used and is_supported(torch.empty(0, dtype=dtype))


def peak_memory(device: torch.device) -> int:
    """The most memory in bytes that this process has used (on a GPU: of the GPU's memory)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has no such module
        memory = psutil.Process().memory_info()
        return int(getattr(memory, "peak_wset", memory.rss))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check_memory(config: ModelConfig, rows: int, tokens: float, device: torch.device, frozen_layers: int = 0) -> None:
    """Raises InputError if a forward pass needs more memory than the machine or the GPU has.

    rows: sequences of one forward pass. tokens: of a sequence, on average. Of each trained layer only its hidden states
    are counted, in bfloat16: training stores over ten times as much, so nothing is refused that could run.
    """
    layers = max(1, config.num_hidden_layers - frozen_layers)
    needed = 2 * rows * tokens * config.hidden_size * layers
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = psutil.virtual_memory().total + psutil.swap_memory().total
    if needed > memory:
        raise InputError(
            f"{rows:,} sequences of {tokens:,.0f} tokens in each forward pass: their hidden states alone need "
            f"{needed / 1e9:,.1f} GB, and {device} has {memory / 1e9:,.1f} GB of memory; give a smaller batch_size, or "
            "a micro_batch_size, which divides a batch and gives the same gradients"
        )


def processor_kind() -> str:
    """The fastest matrix products of the processor: "AMX", "AVX-512 bf16", or torch's name for what it has."""
    for name, kind in BFLOAT16_KINDS.items():
        if getattr(torch.cpu, name, bool)():
            return kind
    return str(torch.backends.cpu.get_cpu_capability())


def facts() -> dict[str, Any]:
    """What a result depends on besides its recipe: machine, versions, commit."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "kind": processor_kind(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "bertworks": __version__,
        "commit": commit(),
    }
