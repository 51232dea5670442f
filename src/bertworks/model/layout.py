"""A batch without its padding: which cells of the (B, L) rectangle hold real tokens.

Between the embeddings and the heads every operation on single tokens works on real tokens alone, packed in T rows; only
attention and recurrence see the rectangle. A cell is a position in the flattened rectangle, b * L + l.

Shapes: B sequences, L positions, T rows of the packed form, D hidden width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..batch import Batch

# T is a multiple of ROW_MULTIPLE, with more than LARGE_BATCH tokens of LARGE_ROW_MULTIPLE: a product of a new shape
# costs the library more to prepare than to compute
ROW_MULTIPLE, LARGE_BATCH, LARGE_ROW_MULTIPLE = 64, 1024, 128
CELLS = "packed_cells"  # key of a batch: see batch.py


@dataclass(frozen=True, eq=False)
class Layout:
    """Which cells of a (B, L) rectangle hold real tokens; `None` indices mean all of them."""

    B: int
    L: int
    mask: Tensor | None  # (B, L) bool, True = real token
    index: Tensor | None  # (T,) flat cells of the real tokens, then of some padding that fills up the last step
    inverse: Tensor | None  # (B*L,) row of each cell in the packed form; 0 for padding left out
    static: bool = False  # whether no shape or branch may depend on the values of the mask
    is_subset: bool = False  # whether it covers only some of the real tokens (of the last layer)

    @property
    def T(self) -> int:
        """The number of rows of the packed form."""
        return self.B * self.L if self.index is None else len(self.index)

    @classmethod
    def of_batch(cls, batch: Mapping[str, Tensor]) -> "Layout":
        """The layout that `with_layout` has found, or as `of`."""
        B, L = batch["input_ids"].shape
        cells = batch.get(CELLS)
        if cells is None:
            return cls.of(batch["attention_mask"], B, L)
        if not len(cells):
            return cls(B, L, None, None, None)
        mask = batch["attention_mask"].bool()
        return cls(B, L, mask, *((None, None) if len(cells) == B * L else (cells, inverse_of(cells, B * L))))

    @classmethod
    def of(cls, attention_mask: Tensor | None, B: int, L: int) -> "Layout":
        """That of a batch without padding, which may be anywhere. Raises ValueError for a sequence of padding only."""
        mask = None if attention_mask is None else attention_mask.bool()
        if mask is None or mask.all():
            return cls(B, L, None, None, None)
        lengths = mask.sum(1)
        if not lengths.all():
            raise ValueError("attention_mask has a sequence without a real token; leave that sequence out")
        tokens = int(lengths.sum())
        step = ROW_MULTIPLE if tokens <= LARGE_BATCH else LARGE_ROW_MULTIPLE
        if -(-tokens // step) * step >= B * L:  # all padding would be needed to fill up the last step
            return cls(B, L, mask, None, None)
        real, padding = mask.flatten().nonzero().squeeze(1), (~mask).flatten().nonzero().squeeze(1)
        index = torch.cat([real, padding[: -tokens % step]])
        return cls(B, L, mask, index, inverse_of(index, B * L))

    @classmethod
    def rectangle(cls, attention_mask: Tensor | None, B: int, L: int) -> "Layout":
        """The layout that keeps all padding: T is B*L, and no shape or branch depends on the mask's values."""
        return cls(B, L, None if attention_mask is None else attention_mask.bool(), None, None, static=True)

    def token_inputs(
        self, input_ids: Tensor, token_type_ids: Tensor | None, offset: int
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """(B, L) ids and segments to (T,) ids, segments and rows of the position table.

        offset: rows of the table before the first token's. With an offset only real tokens count, as in fairseq.
        """
        ids, segments = input_ids.reshape(-1), None if token_type_ids is None else token_type_ids.reshape(-1)
        if offset and self.mask is not None:
            positions = (self.mask.cumsum(1) - 1).clamp(min=0).view(-1) + offset
        else:
            positions = torch.arange(self.L, device=ids.device).expand(self.B, -1).reshape(-1) + offset
        if self.index is None:
            return ids, segments, positions
        return ids[self.index], None if segments is None else segments[self.index], positions[self.index]

    def pack(self, x: Tensor, cells: Tensor | None = None) -> Tensor:
        """(B*L, D) to (T, D), or to (R, D), the rows of these flat cells."""
        index = self.index if cells is None else cells
        return x if index is None else _Gather.apply(x, index)

    def at(self, cells: Tensor) -> "Layout":
        """The layout of these cells alone, (R,)."""
        return replace(self, index=cells, inverse=inverse_of(cells, self.B * self.L), is_subset=True)

    def select(self, x: Tensor, cells: Tensor) -> Tensor:
        """(T, D) to (R, D), the rows of flat cells."""
        return _Gather.apply(x, self.rows(cells))  # type: ignore[no-any-return]

    def unpack(self, x: Tensor) -> Tensor:
        """(T, D) to (B*L, D); cells of padding hold copies of a real token, which attention must not see.

        Raises ValueError if this layout has no row for some real tokens.
        """
        if self.is_subset:
            raise ValueError("the last layer was computed for some tokens only; encode the batch without last_cells")
        return x if self.index is None else _Spread.apply(x, self.index, self.inverse)

    def restore(self, x: Tensor) -> Tensor:
        """(T, D) to (B, L, D), zeros on padding."""
        full = self.unpack(x).view(self.B, self.L, -1)
        return full if self.mask is None else full * self.mask[:, :, None]

    def mean(self, x: Tensor) -> Tensor:
        """(T, D) to (B, D), the mean of each sequence's real tokens."""
        count = self.L if self.mask is None else self.mask.sum(1, keepdim=True)
        return self.restore(x).sum(1) / count

    def ends(self, device: torch.device, last: bool) -> Tensor:
        """(B,) row of each sequence's first, or last, real token in the packed form."""
        return self.rows(self.end_cells(device, last))

    def end_cells(self, device: torch.device, last: bool) -> Tensor:
        """(B,) flat cell of each sequence's first, or last, real token."""
        start = torch.arange(self.B, device=device) * self.L
        return start + self._reading_keys(device, from_right=last).argmin(1)

    def order(self, device: torch.device, from_right: bool) -> Tensor:
        """(B, L) cells of each sequence as they are read: its real tokens from the left or right, then its padding."""
        return self._reading_keys(device, from_right).argsort(1)

    def _reading_keys(self, device: torch.device, from_right: bool) -> Tensor:
        """(B, L) sort keys: a cell with a smaller key is read earlier."""
        cells = torch.arange(self.L, device=device).expand(self.B, -1)
        keys = -cells if from_right else cells
        return keys if self.mask is None else torch.where(self.mask, keys, cells + self.L)

    def rows(self, cells: Tensor) -> Tensor:
        """Rows in the packed form of flat (B*L) cells."""
        return cells if self.inverse is None else self.inverse[cells]

    def has(self, cells: Tensor) -> bool:
        """Whether all these cells have rows. On a GPU this waits for the device."""
        return self.index is None or torch.equal(self.index[self.rows(cells)], cells)


def with_layout(batch: Batch) -> Batch:
    """The batch with what `Layout.of_batch` needs, so that no mask is looked at where it would have to be waited for.

    Raises ValueError if a sequence has no real token to pool.
    """
    if CELLS in batch:
        return batch
    mask = batch["attention_mask"]
    layout = Layout.of(mask, *mask.shape)
    cells = layout.index
    if cells is None:
        cells = torch.arange(0 if layout.mask is None else mask.numel(), device=mask.device)
    return batch | {CELLS: cells}


def inverse_of(index: Tensor, cells: int) -> Tensor:
    """(B*L,) row of each cell in the packed form; 0 for padding left out."""
    return index.new_zeros(cells).index_copy_(0, index, torch.arange(len(index), device=index.device))


class _Gather(torch.autograd.Function):
    """Rows `index` of x, none twice where there is a gradient: it is copied, since torch's indexed addition is slow."""

    @staticmethod
    def forward(ctx, x, index):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        ctx.rows = len(x)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return dy.new_zeros(ctx.rows, *dy.shape[1:]).index_copy_(0, ctx.saved_tensors[0], dy), None


class _Spread(torch.autograd.Function):
    """Packed rows to cells. Cells of padding have no influence, so the gradient only gathers the real cells."""

    @staticmethod
    def forward(ctx, x, index, inverse):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(index)
        return x.index_select(0, inverse)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return dy.index_select(0, ctx.saved_tensors[0]), None, None
