"""The matrix products of a step of pre-training by themselves: what all else in a step can save at most.

Of BERT's layers as they are (presets.py): no gates, no narrow embeddings. Pooler and next sentence are left out: they
read one row a sequence. Every product has operands of its own, which are not in the cache before it, as in a step.

Shapes: B sequences, L positions, T rows of the packed batch, R of them that heads read, M predictions, D hidden width,
I feed-forward width, N heads, H head size, V vocabulary.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bertworks.batch import Batch
from bertworks.model.config import ModelConfig
from bertworks.model.packing import Packing
from bertworks.model.products import is_supported, product
from bertworks.training.objectives import PretrainingObjective


class Product(NamedTuple):
    """One product: what it computes, its operations, and the call."""

    name: str
    flops: int
    run: Callable[[], Tensor]


class Sizes(NamedTuple):
    """The rows of a batch's products."""

    B: int
    L: int
    T: int
    R: int
    M: int

    @classmethod
    def of(cls, batch: Batch) -> "Sizes":
        B, L = batch["input_ids"].shape
        index = Packing.of(batch["attention_mask"], B, L).index
        T, batch = B * L if index is None else len(index), PretrainingObjective().prepare(batch)
        return cls(B, L, T, len(batch["last_cells"]), len(batch["masked_slots"]))


def seconds_alone(config: ModelConfig, sizes: Sizes, device: torch.device, dtype: torch.dtype, passes: int) -> float:
    """The median time of all products of a step, forward and backward, each with operands of its own."""
    made = products(config, sizes, device, dtype)
    times = []
    for _ in range(passes):
        start = time.perf_counter()
        for one in made:
            one.run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times)


def products(config: ModelConfig, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> list[Product]:
    """The products of a step, in no order: layers, attention, and the masked-LM head at M positions.

    Those of the last layer have names of their own, because behind its attention it computes fewer rows.
    """
    D, wide, N = config.hidden_size, config.intermediate_size, config.num_attention_heads

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).to(dtype)

    def linear(name: str, rows: int, width: int, out: int) -> list[Product]:
        x, weight, slope = draw(rows, width), draw(out, width), draw(rows, out)
        forward = product if is_supported(x) else F.linear
        calls = {
            "forward": lambda: forward(x, weight, None),
            "gradient of the input": lambda: slope @ weight,
            "gradient of the weight": lambda: slope.T @ x,
        }
        return [Product(f"{name}, {which}", 2 * rows * width * out, call) for which, call in calls.items()]

    def attention() -> list[Product]:
        q, k, v, slope = (draw(sizes.B * N, sizes.L, D // N) for _ in range(4))
        weights = draw(sizes.B * N, sizes.L, sizes.L)
        pairs = {
            "scores, forward": (q, k.mT),
            "context, forward": (weights, v),
            "gradient of values": (weights.mT, slope),
            "gradient of weights": (slope, v.mT),
            "gradient of queries": (weights, k),
            "gradient of keys": (weights.mT, q),
        }
        flops = 2 * sizes.B * sizes.L * sizes.L * D
        return [
            Product(f"attention, {name}", flops, lambda pair=pair: torch.bmm(*pair))  # type: ignore[misc]
            for name, pair in pairs.items()
        ]

    made: list[Product] = []
    for i in range(config.num_hidden_layers):
        last = i == config.num_hidden_layers - 1
        rows, where = (sizes.R, " of the last layer") if last else (sizes.T, "")  # behind attention
        made += linear("query, key, value", sizes.T, D, 3 * D) + attention()
        for name, width, out in (("attention output", D, D), ("intermediate", D, wide), ("output", wide, D)):
            made += linear(name + where, rows, width, out)
    return made + linear("head, dense", sizes.M, D, D) + linear("head, decoder", sizes.M, D, config.vocab_size)
