"""The number type of matrix products: as the recipe sets it, or the fastest one of the hardware."""

import torch

# torch's test of the processor -> a kind that multiplies in bfloat16 faster than in float32, the fastest first
BFLOAT16_KINDS = {"_is_amx_tile_supported": "AMX", "_is_avx512_bf16_supported": "AVX-512 bf16"}


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: "float32", "bfloat16", or for "auto" bfloat16 where it is the faster one.

    float32 is never TF32, so training, evaluation and prediction compute the same numbers: nothing in bertworks turns
    torch's setting on.
    """
    if precision == "auto" and device.type == "cuda":  # GPUs before 2020 only emulate bfloat16
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    fast = precision == "auto" and processor_kind() in BFLOAT16_KINDS.values()
    return torch.bfloat16 if fast or precision == "bfloat16" else torch.float32


def processor_kind() -> str:
    """The fastest matrix products of the processor: "AMX", "AVX-512 bf16", or torch's name for what it has."""
    for name, kind in BFLOAT16_KINDS.items():
        if getattr(torch.cpu, name, bool)():
            return kind
    return str(torch.backends.cpu.get_cpu_capability())
