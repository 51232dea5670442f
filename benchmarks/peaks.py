"""Peak speed of a machine, and the useful operations of pre-training, for shares of that peak."""

import dataclasses
import re
import statistics
import time

import torch

from bertworks.checkpoint.weights import shapes_only
from bertworks.model.build import build_model
from bertworks.model.forward import ForwardOptions
from bertworks.pretraining.recipe import PretrainConfig

# operations a second of bfloat16 products without sparsity, after NVIDIA's data sheets; the first name that fits counts
DATA_SHEETS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L4": 121e12,
}


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int = 0) -> float:
    """Operations a second of a (size, size) matrix product, the median of several: what the machine can do at best.

    size: left out, 2048 on a CPU and 8192 on a GPU, which smaller products do not keep busy.
    """
    size = size or (8192 if device.type == "cuda" else 2048)
    a = torch.randn(size, size, device=device).to(dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(8 if device.type == "cuda" else 1):
            a @ a
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / (8 if device.type == "cuda" else 1))
    return 2 * size**3 / statistics.median(times[2:])


def data_sheet_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of bfloat16 products by the GPU's data sheet; 0 where it is not known here."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return 0.0
    found = torch.cuda.get_device_name(device)
    return next((peak for name, peak in DATA_SHEETS.items() if re.search(rf"\b{name}\b", found)), 0.0)


def useful_flops(config: PretrainConfig) -> float:
    """Operations a real token, both ways: 6 for each weight of the layers, and of the LM head for each prediction.

    Shared layers count as often as they are used. Of the last layer the predictions alone need more than keys and
    values, beside each sequence's first token, which does not count.
    """
    model, D, E = config.model, config.model.hidden_size, config.model.embedding_width
    with shapes_only():
        encoder = build_model(dataclasses.replace(model, shared_layers="none"), config.heads).encoder
        layers = sum(p.numel() for p in encoder.layers.parameters())
        options = ForwardOptions(hidden_states=False, output_positions=torch.zeros(1))
        is_divided = options.returned_positions(encoder) is not None
        behind = encoder.layers[-1:].named_parameters() if is_divided else ()
        last = sum(p.numel() for name, p in behind if name.split(".")[2] not in ("key", "value"))
    predicted = config.masking.masked_lm_prob if config.objective_spec.masked else 1.0
    return 6.0 * (layers - last + predicted * (last + model.vocab_size * E + D * E))
