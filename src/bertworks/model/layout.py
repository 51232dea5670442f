"""A batch without its padding: which positions of the (B, L) rectangle hold real tokens.

Between the embeddings and the heads every operation on single tokens works on real tokens alone, packed in T rows; only
attention and recurrence see the rectangle. In this file a *position* is one of the flattened rectangle, b * L + l, and
a *row* one of the packed form.

Example, before T is filled up: mask [[1, 1, 0], [1, 1, 1]] has 5 rows. `index`, the position of each row, is
[0, 1, 3, 4, 5]; `inverse`, the row of each position, is [0, 1, 0, 2, 3, 4]. T is filled up to a multiple of 64 or 128
by rows of padding. If that takes all padding, as it would here, nothing is removed: both are None.

Shapes: B sequences, L positions of a sequence, T rows, R rows that the last layer returns, D hidden width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..batch import Batch

# T is a multiple of ROW_MULTIPLE, with more than LARGE_BATCH tokens of LARGE_ROW_MULTIPLE: a product of a new shape
# costs the library more to prepare than to compute
ROW_MULTIPLE, LARGE_BATCH, LARGE_ROW_MULTIPLE = 64, 1024, 128
PACKED_POSITIONS = "packed_positions"  # key of a batch: see batch.py


@dataclass(frozen=True, eq=False)
class Layout:
    """Which positions of a (B, L) rectangle have a row; `None` indices: all, padding included (`mask` tells it)."""

    B: int
    L: int
    mask: Tensor | None  # (B, L) bool, True = real token
    index: Tensor | None  # (T,) position of each row: the real tokens, then some padding that fills up the last step
    inverse: Tensor | None  # (B*L,) row of each position; 0 for padding left out
    static: bool = False  # no shape or branch may depend on the values of the mask, as in a recorded CUDA graph
    is_subset: bool = False  # it has only some real tokens: the last layer's output at masked positions and [CLS]

    @property
    def T(self) -> int:
        """The number of rows."""
        return self.B * self.L if self.index is None else len(self.index)

    @classmethod
    def of_batch(cls, batch: Mapping[str, Tensor]) -> "Layout":
        """The layout that `with_layout` has found, or as `of`."""
        B, L = batch["input_ids"].shape
        index = batch.get(PACKED_POSITIONS)
        if index is None:
            return cls.of(batch["attention_mask"], B, L)
        mask = batch["attention_mask"].bool() if len(index) else None
        if len(index) in (0, B * L):  # there is no padding, or all of it is kept
            return cls(B, L, mask, None, None)
        return cls(B, L, mask, index, inverse_of(index, B * L))

    @classmethod
    def of(cls, attention_mask: Tensor | None, B: int, L: int) -> "Layout":
        """The layout without padding, which may be anywhere. Raises ValueError for a sequence of padding only."""
        mask = None if attention_mask is None else attention_mask.bool()
        if mask is None or mask.all():
            return cls(B, L, None, None, None)
        lengths = mask.sum(1)
        if not lengths.all():
            raise ValueError("attention_mask has a sequence without a real token; leave that sequence out")
        tokens = int(lengths.sum())
        step = ROW_MULTIPLE if tokens <= LARGE_BATCH else LARGE_ROW_MULTIPLE
        filled = -(-tokens // step) * step  # T
        if filled >= B * L:  # that takes all padding
            return cls(B, L, mask, None, None)
        real, padding = mask.flatten().nonzero().squeeze(1), (~mask).flatten().nonzero().squeeze(1)
        index = torch.cat([real, padding[: filled - tokens]])
        return cls(B, L, mask, index, inverse_of(index, B * L))

    @classmethod
    def rectangle(cls, attention_mask: Tensor | None, B: int, L: int) -> "Layout":
        """The layout that keeps all padding: T is B*L, and no shape or branch depends on the mask's values."""
        return cls(B, L, None if attention_mask is None else attention_mask.bool(), None, None, static=True)

    def token_inputs(
        self, input_ids: Tensor, token_type_ids: Tensor | None, offset: int
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """(B, L) ids and segments to (T,) ids, segments and position ids (indices of the position embeddings).

        offset: position id of the first token. With an offset only real tokens count, as in fairseq.
        """
        ids, segments = input_ids.reshape(-1), None if token_type_ids is None else token_type_ids.reshape(-1)
        if offset and self.mask is not None:
            position_ids = (self.mask.cumsum(1) - 1).clamp(min=0).view(-1) + offset
        else:
            position_ids = torch.arange(self.L, device=ids.device).expand(self.B, -1).reshape(-1) + offset
        if self.index is None:
            return ids, segments, position_ids
        return ids[self.index], None if segments is None else segments[self.index], position_ids[self.index]

    def pack(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B*L, D) to (T, D), or to (R, D) at these positions."""
        positions = self.index if positions is None else positions
        return x if positions is None else _Pack.apply(x, positions)

    def at(self, positions: Tensor) -> "Layout":
        """The layout of these positions alone, (R,)."""
        return replace(self, index=positions, inverse=inverse_of(positions, self.B * self.L), is_subset=True)

    def take(self, x: Tensor, positions: Tensor) -> Tensor:
        """(T, D) to (R, D), the rows of these positions."""
        return _Pack.apply(x, self.rows(positions))

    def unpack(self, x: Tensor) -> Tensor:
        """(T, D) to (B*L, D). Padding without a row holds a copy of the first row. Attention must mask all padding.

        Raises ValueError if this layout has no row for some real tokens.
        """
        if self.is_subset:
            raise ValueError("the last layer was computed for some tokens only; leave out output_positions")
        return x if self.index is None else _Unpack.apply(x, self.index, self.inverse)

    def restore(self, x: Tensor) -> Tensor:
        """(T, D) to (B, L, D), zeros on padding."""
        full = self.unpack(x).view(self.B, self.L, -1)
        return full if self.mask is None else full * self.mask[:, :, None]

    def mean(self, x: Tensor) -> Tensor:
        """(T, D) to (B, D), the mean of each sequence's real tokens."""
        count = self.L if self.mask is None else self.mask.sum(1, keepdim=True)
        return self.restore(x).sum(1) / count

    def rows(self, positions: Tensor) -> Tensor:
        """The rows of these positions."""
        return positions if self.inverse is None else self.inverse[positions]

    def has(self, positions: Tensor) -> bool:
        """Whether all these positions have rows. On a GPU this waits for the device."""
        return self.index is None or torch.equal(self.index[self.rows(positions)], positions)

    # ---- reading order: for poolers, recurrent layers and comparators

    def end_positions(self, device: torch.device, last: bool) -> Tensor:
        """(B,) position of each sequence's first, or last, real token."""
        first = torch.arange(self.B, device=device) * self.L
        return first + self._reading_ranks(device, from_right=last).argmin(1)

    def ends(self, device: torch.device, last: bool) -> Tensor:
        """(B,) row of each sequence's first, or last, real token."""
        return self.rows(self.end_positions(device, last))

    def order(self, device: torch.device, from_right: bool) -> Tensor:
        """(B, L) columns in reading order: real tokens of each sequence from the left or right, then its padding."""
        return self._reading_ranks(device, from_right).argsort(1)

    def _reading_ranks(self, device: torch.device, from_right: bool) -> Tensor:
        """(B, L): a token with a smaller number is read earlier."""
        columns = torch.arange(self.L, device=device).expand(self.B, -1)
        ranks = -columns if from_right else columns
        return ranks if self.mask is None else torch.where(self.mask, ranks, columns + self.L)


def with_layout(batch: Batch) -> Batch:
    """The batch with the `index` that `Layout.of_batch` needs, so that a GPU need not be waited for to find it.

    Raises ValueError if a sequence has no real token to pool.
    """
    if PACKED_POSITIONS in batch:
        return batch
    mask = batch["attention_mask"]
    layout = Layout.of(mask, *mask.shape)
    index = layout.index
    if index is None:  # empty: no padding; else all padding is kept
        index = torch.arange(0 if layout.mask is None else mask.numel(), device=mask.device)
    return batch | {PACKED_POSITIONS: index}


def inverse_of(index: Tensor, size: int) -> Tensor:
    """(B*L,) row of each position; 0 for padding left out."""
    return index.new_zeros(size).index_copy_(0, index, torch.arange(len(index), device=index.device))


class _Pack(torch.autograd.Function):
    """Rows `index` of x, none twice where there is a gradient: it is copied, since torch's indexed addition is slow."""

    @staticmethod
    def forward(ctx, x, index):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        ctx.rows = len(x)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return dy.new_zeros(ctx.rows, *dy.shape[1:]).index_copy_(0, ctx.saved_tensors[0], dy), None


class _Unpack(torch.autograd.Function):
    """Rows to positions. Padding has no influence, so the gradient only gathers that of the rows' own positions."""

    @staticmethod
    def forward(ctx, x, index, inverse):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        return x.index_select(0, inverse)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return dy.index_select(0, ctx.saved_tensors[0]), None, None
