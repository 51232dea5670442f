"""Ways to compute the attention of one layer, forward and backward, for gpu_ceilings.py. Nothing is run from here.

- `rectangle with mask`: what training does now: packed rows into the (B, L) rectangle, torch's attention with a mask of
  the padding, and back. torch chooses the kernel.
- `rectangle with mask, KERNEL`: the same, with one of torch's kernels alone.
- `flash without mask`: the flash kernel on the whole rectangle, as if there were no padding.
- `varlen`: torch.nn.attention.varlen on packed rows, without rectangle and padding. It has no dropout.
- `varlen, aten`: the operator below it, which takes a dropout rate. It is not public.
- `plain products`: scores, softmax and context as separate operators.

Rates are useful operations: those of real tokens with real tokens. So padding that is computed makes a way slower.

Shapes: B sequences, L positions, T packed rows, N heads, H head size.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import common
import gpu_common
from bertworks.model.attention import visible_attention
from bertworks.model.config import ModelConfig
from bertworks.model.packing import Packing
from products import Sizes

RATES = (0.0, 0.1)
KERNELS = {"EFFICIENT_ATTENTION": RATES, "CUDNN_ATTENTION": (0.0,)}  # those that take a mask, and their dropout rates


class Way(NamedTuple):
    """One way: the rows of queries, keys and values that it is given, and what it does with (rows, N, H) of each."""

    rows: int
    context: Callable[[Tensor, Tensor, Tensor], Tensor]


def lengths_of(B: int, L: int, full: float) -> list[int]:
    """Lengths of B sequences whose mean is `full` of L: some are short, evenly from 1 to L, and the others have L."""
    short = min(B, round(2 * (1 - full) * B))
    return [max(1, (2 * i + 1) * L // (2 * short)) for i in range(short)] + [L] * (B - short)


def measure(
    config: ModelConfig, sizes: Sizes, full: float, device: torch.device, dtype: torch.dtype, seconds: float
) -> common.Result:
    """Every way at the dropout rates that it has: seconds of forward and of both passes, useful operations a second.

    full: share of real tokens in the rectangle.
    """
    lengths = lengths_of(sizes.B, sizes.L, full)
    mask = torch.arange(sizes.L, device=device) < torch.tensor(lengths, device=device)[:, None]
    packing = Packing.of(mask, sizes.B, sizes.L).filled(device)
    N, H = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    flops = 4 * N * H * sum(length * length for length in lengths)  # forward; backward has twice as many
    found: common.Result = {"sequences": sizes.B, "length": sizes.L, "real_tokens": sum(lengths)}
    for rate in RATES:
        for name, way in (rectangular(packing, rate) | packed(lengths, device, rate)).items():
            one = functools.partial(timed, way, (way.rows, N, H), flops, device, dtype, seconds)
            found[f"{name}, dropout {rate}"] = gpu_common.attempted(one)
    return found


def timed(
    way: Way, shape: tuple[int, int, int], flops: int, device: torch.device, dtype: torch.dtype, seconds: float
) -> common.Result:
    """Forward alone, and forward with backward, of random numbers."""
    q, k, v = (torch.randn(shape, device=device).to(dtype).requires_grad_() for _ in range(3))
    slope = torch.randn(shape, device=device).to(dtype).flatten(1)

    def forward() -> None:
        with torch.no_grad():
            way.context(q, k, v)

    def both() -> None:
        torch.autograd.grad(way.context(q, k, v), (q, k, v), slope)

    first, second = (gpu_common.seconds_of(work, device, seconds) for work in (forward, both))
    return {"forward_seconds": first, "both_seconds": second, "flops_per_second": 3 * flops / second}


# ---- the ways


def rectangular(packing: Packing, rate: float) -> dict[str, Way]:
    """The ways that compute the (B, L) rectangle."""
    B, L = packing.B, packing.L
    assert packing.index is not None and packing.mask is not None
    visible = packing.mask[:, None, None, :]

    def cells(x: Tensor) -> Tensor:
        """(B L, N, H) to (B, N, L, H)."""
        return x.view(B, L, *x.shape[1:]).transpose(1, 2)

    def on_rectangle(attention: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Way:
        def context(*given: Tensor) -> Tensor:
            q, k, v = (cells(packing.unpack(x.flatten(1)).view(B * L, *x.shape[1:])) for x in given)
            return packing.pack(attention(q, k, v).transpose(1, 2).reshape(B * L, -1))

        return Way(len(packing.index), context)  # type: ignore[arg-type]

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, visible, rate)

    def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(cells(q), cells(k), cells(v), None, rate)
        return out.transpose(1, 2).reshape(B * L, -1)

    def by_kernel(name: str) -> Way:
        def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(getattr(SDPBackend, name)):
                return masked(q, k, v)

        return on_rectangle(attention)

    return {
        "rectangle with mask": on_rectangle(masked),
        **{f"rectangle with mask, {name}": by_kernel(name) for name, rates in KERNELS.items() if rate in rates},
        "flash without mask": Way(B * L, flash),
        "plain products": on_rectangle(lambda q, k, v: visible_attention(q, k, v, visible, None, rate, None)[0]),
    }


def packed(lengths: list[int], device: torch.device, rate: float) -> dict[str, Way]:
    """The ways that compute packed rows."""
    ends = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    longest = max(lengths)

    def public(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn  # not in every torch

        out: Tensor = varlen_attn(q, k, v, ends, ends, longest, longest)  # type: ignore[assignment]
        return out.flatten(1)

    def private(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, rate, False, False
        )[0]
        return out.flatten(1)

    ways = {"varlen, aten": Way(sum(lengths), private)}
    return ways if rate else {"varlen": Way(sum(lengths), public), **ways}
