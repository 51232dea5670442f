"""What a GPU can do at best: the memory copy and the products that bound a training step. Stage `ceilings` of gpu.sh.

    benchmarks/gpu.sh ceilings [--out FOLDER] [--device cuda] [--smoke]

- `copy`: bytes a second of a copy of 1 GiB inside the device's memory, read and written bytes counted.
- `square`: operations a second of an 8192 x 8192 x 8192 product, in bfloat16 and float32, and the data sheet's figure.
- `products`: all matrix products of a step of BASE and LARGE, forward and backward (products.py), at both lengths:
  each by itself, and one after the other.
- `head`: the decoder of the masked language model with 30,522 rows, and with 30,528, a multiple of 32: its products,
  and the loss over the vocabulary as training computes it.
- `attention`: several ways to compute it, forward and backward (gpu_attention.py).

What this device or this torch does not have is an error in the JSON, and the stage continues. All operands are random.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import common
import gpu_attention
import gpu_common
import products
import tiny
from bertworks.model.config import ModelConfig
from bertworks.model.presets import PRESETS
from bertworks.training import machine
from bertworks.training.vocabulary_loss import FILL, Scorer, linear_cross_entropy

VOCABULARIES = (30522, 30528)
FULL = {128: 0.91, 512: 0.78}  # share of real tokens in the paper's batches, measured on English Wikipedia
PREDICTED = 0.15
SMOKE = {
    "device": "cpu",
    "lengths": [16],
    "sizes": ["tiny"],
    "tokens": 64,
    "square": 64,
    "megabytes": 1,
    "seconds": 0.01,
}


def rows_of(length: int, tokens: int) -> products.Sizes:
    """The sizes of a micro-batch of so many cells with the usual share of padding."""
    B = max(1, tokens // length)
    T = int(B * length * FULL.get(length, 0.9)) // 128 * 128 or B * length
    M = -(-int(PREDICTED * T) // FILL) * FILL
    return products.Sizes(B, length, T, M + B, M)


def shape_of(size: str) -> ModelConfig:
    """A preset; tiny's vocabulary is that of the tiny data."""
    return tiny.SHAPE if size == "tiny" else PRESETS[size]


def tokens_of(size: str, tokens: int) -> int:
    """The cells of a micro-batch: LARGE gets half, since its activations take more than twice the memory."""
    return tokens // 2 if size == "large" else tokens


def copy_speed(device: torch.device, megabytes: int, seconds: float) -> common.Result:
    """The device's memory, read and written."""
    source = torch.randint(0, 255, (megabytes << 20,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    spent = gpu_common.seconds_of(lambda: target.copy_(source), device, seconds)
    return {"bytes": source.numel(), "seconds": spent, "bytes_per_second": 2 * source.numel() / spent}


def square(device: torch.device, dtype: torch.dtype, size: int, seconds: float) -> common.Result:
    """A square product of random numbers: zeros would be faster, because they take less power."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    spent = gpu_common.seconds_of(lambda: a @ b, device, seconds)
    found = {"size": size, "seconds": spent, "flops_per_second": 2 * size**3 / spent}
    sheet = machine.data_sheet_peak(device, dtype)
    return {**found, "data_sheet": sheet, "share_of_data_sheet": found["flops_per_second"] / sheet} if sheet else found


def each_product(
    config: ModelConfig, sizes: products.Sizes, device: torch.device, dtype: torch.dtype, seconds: float
) -> common.Result:
    """Each product that occurs in a step, once: its seconds, its operations a second, and how often it occurs."""
    two = dataclasses.replace(config, num_hidden_layers=2)  # an inner layer and the last one
    layers = config.num_hidden_layers
    found: common.Result = {}
    for one in products.products(two, sizes, device, dtype):
        if one.name not in found:
            spent = gpu_common.seconds_of(one.run, device, seconds)
            found[one.name] = {"flops": one.flops, "seconds": spent, "flops_per_second": one.flops / spent, "times": 0}
    for one in products.products(dataclasses.replace(config, num_hidden_layers=0), sizes, device, dtype):
        found[one.name]["times"] = 1
    for name, row in found.items():
        in_all = name.startswith(("query", "attention, "))
        row["times"] = row["times"] or (layers if in_all else 1 if "of the last layer" in name else layers - 1)
    return found


def all_products(
    config: ModelConfig, sizes: products.Sizes, device: torch.device, dtype: torch.dtype, seconds: float
) -> common.Result:
    """All products of a step one after the other, and each by itself."""
    whole = products.seconds_alone(config, sizes, device, dtype, passes=6)
    each = each_product(config, sizes, device, dtype, seconds)
    flops, by_themselves = (sum(row[key] * row["times"] for row in each.values()) for key in ("flops", "seconds"))
    found = {"sizes": sizes._asdict(), "flops": flops, "seconds": whole, "flops_per_second": flops / whole}
    return {**found, "sum_of_each": by_themselves, "each": each}


def head(
    config: ModelConfig, rows: int, vocabulary: int, device: torch.device, dtype: torch.dtype, seconds: float
) -> common.Result:
    """The decoder with a vocabulary of this size: three products, and the whole loss with its gradients."""
    D = config.hidden_size
    x, weight = (torch.randn(n, D, device=device).to(dtype).requires_grad_() for n in (rows, vocabulary))
    bias = torch.zeros(vocabulary, device=device, dtype=dtype, requires_grad=True)
    slope = torch.randn(rows, vocabulary, device=device).to(dtype)
    labels = torch.randint(0, vocabulary, (rows,), device=device)
    slots = torch.arange(rows, device=device)

    def three() -> None:
        with torch.no_grad():
            for left, right in ((x, weight.T), (slope, weight), (slope.T, x)):
                left @ right

    def loss() -> None:
        linear_cross_entropy(Scorer(x, weight, bias), labels, slots).loss.backward()
        x.grad = weight.grad = bias.grad = None

    found: common.Result = {"rows": rows, "vocabulary": vocabulary}
    for name, work in (("products", three), ("loss", loss)):
        spent = gpu_common.seconds_of(work, device, seconds)
        found |= {f"{name}_seconds": spent, f"{name}_flops_per_second": 6 * rows * D * vocabulary / spent}
    return found


def measure(options: Any, device: torch.device) -> common.Result:
    """All ceilings; the JSON is written after each part."""
    dtype = machine.compute_dtype("auto", device)
    result: common.Result = {"machine": gpu_common.facts(device), "dtype": str(dtype)}

    def part(name: str, work: Callable[[], common.Result]) -> None:
        result[name] = gpu_common.attempted(work)
        print(name, file=sys.stderr, flush=True)
        gpu_common.keep(options, "ceilings", result)
        if device.type == "cuda":
            torch.cuda.empty_cache()

    part("copy", partial(copy_speed, device, options.megabytes, options.seconds))
    for kind in {dtype: None, torch.float32: None}:
        part(f"square, {kind}", partial(square, device, kind, options.square, options.seconds))
    for size in options.sizes:
        config, last = shape_of(size), (device, dtype, options.seconds)
        for length in options.lengths:
            sizes = rows_of(length, tokens_of(size, options.tokens))
            part(f"products, {size}, {length}", partial(all_products, config, sizes, *last))
            attention = partial(gpu_attention.measure, config, sizes, FULL.get(length, 0.9), *last)
            part(f"attention, {size}, {length}", attention)
        for vocabulary in VOCABULARIES if size != "tiny" else (config.vocab_size,):
            part(f"head, {size}, {vocabulary}", partial(head, config, sizes.M, vocabulary, *last))
    return result


def main(argv: list[str] | None = None) -> None:
    """Measure, write ceilings.json."""
    made = gpu_common.parser(__doc__)
    made.add_argument("--sizes", nargs="+", choices=["base", "large"], default=["base", "large"])
    made.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    made.add_argument("--tokens", type=int, default=32768, help="cells of a micro-batch, padding included; LARGE: half")
    made.add_argument("--square", type=int, default=8192, help="rows of the square product")
    made.add_argument("--megabytes", type=int, default=1024, help="MiB of the memory copy")
    made.add_argument("--seconds", type=float, default=0.3, help="of measuring, for every figure")
    with common.parsed(made, argv, SMOKE) as options:
        device = gpu_common.need_device(options.device)
        gpu_common.set_aside(options, "ceilings")
        gpu_common.finish(options, "ceilings", measure(options, device))


if __name__ == "__main__":
    main()
