"""Local attention without the work it does not need: queries in blocks, each beside the keys of its own block and of
the two next to it, so that cost grows with the length and not with its square (after Beltagy et al. 2020, section 3).

Shapes: B sequences, L positions, N heads, H head size, S positions a block, n blocks that hold L, K = S positions of
each block that a query sees: three, or two where it sees one side only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .packing import Packing

SMALLEST = 64  # positions of a block: products of smaller ones cost more to call than to compute
FEWEST = 8  # blocks a sequence: with fewer, the copies of keys and values cost what the scores save
BESIDE = {"both": (-1, 0, 1), "left": (-1, 0), "right": (0, 1)}  # the blocks that a query sees, its own being 0


@dataclass(frozen=True)
class Blocks:
    """How a batch is cut, and what a query sees of the blocks beside it."""

    size: int
    beside: tuple[int, ...]
    visible: Tensor  # (B * n, 1, S, K), True for keys that may be seen

    @classmethod
    def of(cls, packing: Packing, direction: str, window: int, device: torch.device) -> "Blocks | None":
        """None where sequences are so short that cutting costs more than it saves."""
        S, L, beside = max(window, SMALLEST), packing.L, BESIDE[direction]
        if L < FEWEST * S:
            return None
        n = -(-L // S)
        start = torch.arange(n, device=device)[:, None, None] * S
        query = start + torch.arange(S, device=device)[:, None]  # (n, S, 1)
        key = start + torch.arange(beside[0] * S, (beside[-1] + 1) * S, device=device)  # (n, 1, K)
        far = key - query
        left, right = (0 if direction == "right" else -window), (0 if direction == "left" else window)
        seen = ((far >= left) & (far <= right) & (key >= 0) & (key < L)).expand(packing.B, -1, -1, -1)
        if packing.mask is not None:
            seen = seen & packing.mask[:, key.clamp(0, L - 1)]
        seen = seen | (far == 0)  # itself always, padding too: a softmax over nothing would not be a number
        return cls(S, beside, seen.reshape(packing.B * n, 1, S, -1))

    def queries(self, x: Tensor) -> Tensor:
        """(B, N, L, H) to (B n, N, S, H)."""
        return self._apart(F.pad(x, (0, 0, 0, -x.shape[2] % self.size)))

    def keys(self, x: Tensor) -> Tensor:
        """(B, N, L, H) to (B n, N, K, H): each block with those beside it."""
        S, L = self.size, x.shape[2]
        x = F.pad(x, (0, 0, S, S + -L % S))
        whole = x.shape[2] - 2 * S
        return torch.cat([self._apart(x[:, :, S + k * S : S + k * S + whole]) for k in self.beside], 2)

    def join(self, x: Tensor, L: int) -> Tensor:
        """(B n, N, S, H) to (B, N, L, H)."""
        _, N, S, H = x.shape
        x = x.view(-1, -(-L // S), N, S, H).transpose(1, 2)
        return x.reshape(x.shape[0], N, -1, H)[:, :, :L]

    def _apart(self, x: Tensor) -> Tensor:
        B, N, _, H = x.shape
        return x.view(B, N, -1, self.size, H).transpose(1, 2).reshape(-1, N, self.size, H)
