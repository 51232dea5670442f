"""Whether the activations of a forward pass can fit in memory at all, before the first step tries."""

import math
from pathlib import Path

import psutil
import torch

from ..files import InputError
from ..model.config import ModelConfig

CGROUP = Path("/sys/fs/cgroup")
BYTES = 2  # of an element of a hidden state, at least


def memory_of_container(name: str = "max", cgroup: Path | None = None) -> float:
    """Bytes that a container may use (`max`, infinity without a limit), uses (`current`), or may swap (`swap.max`)."""
    try:
        return float(((cgroup or CGROUP) / f"memory.{name}").read_text(encoding="utf-8").replace("max", "inf"))
    except (OSError, ValueError):  # no container, or another system
        return math.inf


def check_memory(config: ModelConfig, rows: int, tokens: float, device: torch.device, frozen_layers: int = 0) -> None:
    """Raises InputError if a forward pass needs more memory than the device has.

    rows: sequences of one forward pass. tokens: of a sequence, on average. Of each trained layer only its hidden states
    are counted, in bfloat16: training stores over ten times as much, so nothing is refused that could run.
    """
    layers = max(1, config.num_hidden_layers - frozen_layers)
    needed = BYTES * rows * tokens * config.hidden_size * layers
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    else:
        memory, swap = psutil.virtual_memory().total, psutil.swap_memory().total
        there = min(memory, memory_of_container()) + min(swap, memory_of_container("swap.max"))
    if needed > there:
        raise InputError(
            f"{rows:,} sequences of {tokens:,.0f} tokens in each forward pass: their hidden states alone need "
            f"{needed / 1e9:,.1f} GB, and {device} has {there / 1e9:,.1f} GB of memory; give a smaller batch_size, or "
            "a micro_batch_size, which divides a batch and gives the same gradients"
        )
