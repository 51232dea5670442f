"""Rotary positions (Su et al. 2021): queries and keys are turned by an angle that grows with their position, so that
their product depends on the distance alone. Nothing is learned and no table limits the length.

Shapes: B sequences, L positions, N heads, H head size.
"""

import torch
from torch import Tensor


def rotation(L: int, H: int, theta: float, device: torch.device) -> Tensor:
    """(2, L, H / 2): cosines and sines of each position's angles; pair i turns by theta ** (-2 i / H) a position."""
    rates = theta ** (-torch.arange(0, H, 2, dtype=torch.float64, device=device) / H)
    angles = torch.arange(L, device=device)[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Turn (B, N, L, H) by `rotation`. A pair is one element of the first half and its like in the second."""
    cos, sin = turn
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
