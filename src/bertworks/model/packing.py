"""A batch without its padding: which cells of the (B, L) rectangle hold real tokens, and the ways in and out.

Between the embeddings and the heads every operation on single tokens works on real tokens alone, packed in T rows; only
attention and recurrence see the rectangle.

Shapes: B sequences, L positions, T rows of the packed form, D hidden width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..batch import Batch

# T is a multiple of STEP, with more than MANY tokens of LARGE_STEP: a product of a new shape costs the library more to
# prepare than to compute
STEP, MANY, LARGE_STEP = 64, 1024, 128
CELLS = "packed_cells"  # key of a batch: see batch.py


@dataclass(frozen=True)
class Packing:
    """Which cells of a (B, L) rectangle hold real tokens; `None` indices mean all of them."""

    B: int
    L: int
    mask: Tensor | None  # (B, L) bool, True = real token
    index: Tensor | None  # (T,) flat cells of the real tokens, then of some padding that fills up the last step
    inverse: Tensor | None  # (B*L,) row of each cell in the packed form; 0 for padding left out
    recorded: bool = False  # whether B and L are those of a graph that serves other sizes too
    partial: bool = False  # whether rows of real tokens are left out, because nobody reads them

    @classmethod
    def of_batch(cls, batch: Mapping[str, Tensor]) -> "Packing":
        """The packing that `with_packing` has made, or one made now; as `of` otherwise."""
        B, L = batch["input_ids"].shape
        cells = batch.get(CELLS)
        if cells is None:
            return cls.of(batch["attention_mask"], B, L)
        if not len(cells):
            return cls(B, L, None, None, None)
        mask = batch["attention_mask"].bool()
        return cls(B, L, mask, *((None, None) if len(cells) == B * L else (cells, _inverse(cells, B * L))))

    @classmethod
    def of(cls, attention_mask: Tensor | None, B: int, L: int) -> "Packing":
        """The packing of a batch, with padding anywhere. Raises ValueError if a sequence has no real token to pool."""
        mask = None if attention_mask is None else attention_mask.bool()
        if mask is None or mask.all():
            return cls(B, L, None, None, None)
        lengths = mask.sum(1)
        if not lengths.all():
            raise ValueError("attention_mask has a sequence without a real token; leave that sequence out")
        tokens = int(lengths.sum())
        step = STEP if tokens <= MANY else LARGE_STEP
        if -(-tokens // step) * step >= B * L:  # all padding would be needed to fill up the last step
            return cls(B, L, mask, None, None)
        real, padding = mask.flatten().nonzero().squeeze(1), (~mask).flatten().nonzero().squeeze(1)
        index = torch.cat([real, padding[: -tokens % step]])
        return cls(B, L, mask, index, _inverse(index, B * L))

    @classmethod
    def rectangle(cls, attention_mask: Tensor | None, B: int, L: int) -> "Packing":
        """The packing that keeps all padding: T is B*L, and no shape or branch depends on the mask's values."""
        return cls(B, L, None if attention_mask is None else attention_mask.bool(), None, None, recorded=True)

    def trimmed(self, step: int) -> "Packing":
        """With no more padding than fills up the last `step` rows; of a packing whose padding comes last."""
        if self.index is None or self.mask is None:
            return self
        index = self.index[: -(-int(self.mask.sum()) // step) * step]
        return replace(self, index=index, inverse=_inverse(index, self.B * self.L))

    def filled(self, device: torch.device) -> "Packing":
        """With tensors in place of None: so one compiled graph serves all batches, with and without padding."""
        if self.index is not None:
            return self
        cells = torch.arange(self.B * self.L, device=device)
        mask = torch.ones(self.B, self.L, dtype=torch.bool, device=device) if self.mask is None else self.mask
        return replace(self, mask=mask, index=cells, inverse=cells.clone())  # no function is given one tensor twice

    def in_sequence(self, device: torch.device) -> "Packing":
        """As `filled`, with the real tokens of one sequence after the other before all padding."""
        packing = self.filled(device)
        if self.index is not None or self.mask is None:
            return packing
        index = torch.argsort(~self.mask.flatten(), stable=True)
        return replace(packing, index=index, inverse=_inverse(index, self.B * self.L))

    def bounds(self) -> Tensor:
        """(B + 2,) int32: the row at which each sequence of `in_sequence` begins, then the filling, and T."""
        assert self.index is not None and self.mask is not None
        ends = self.mask.sum(1).cumsum(0)
        first, last = ends.new_zeros(1), ends.new_full((1,), len(self.index))
        return torch.cat([first, ends, last]).int()

    def pack(self, x: Tensor, cells: Tensor | None = None) -> Tensor:
        """(B*L, D) to (T, D), or to (R, D), the rows of these flat cells."""
        index = self.index if cells is None else cells
        return x if index is None else _Gather.apply(x, index)

    def at(self, cells: Tensor) -> "Packing":
        """The packing of these flat cells alone, (R,)."""
        return replace(self, index=cells, inverse=_inverse(cells, self.B * self.L), partial=True)

    def select(self, x: Tensor, cells: Tensor) -> Tensor:
        """(T, D) to (R, D), the rows of flat cells."""
        return _Gather.apply(x, self.rows(cells))  # type: ignore[no-any-return]

    def unpack(self, x: Tensor) -> Tensor:
        """(T, D) to (B*L, D); cells of padding hold copies of a real token, which attention must not see.

        Raises ValueError if this packing has no row for some real tokens.
        """
        if self.partial:
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

    def visible(self, direction: str, device: torch.device, span: int = 0) -> Tensor | None:
        """True for keys that a query may see, (B, 1, 1, L), or (B or 1, 1, L, L) if queries differ; None: all.

        `direction` "left" or "right" leaves that side alone, `span` so many cells on each side (0: all). A query always
        sees itself, padding too: a softmax over nothing is not a number.
        """
        real = None if self.mask is None else self.mask[:, None, None, :]
        span = span if self.recorded or span < self.L - 1 else 0
        if direction == "both" and not span:
            return real
        side = torch.ones(self.L, self.L, dtype=torch.bool, device=device)
        if direction != "both":
            side = side.tril() if direction == "left" else side.triu()
        if span:
            side = side.triu(-span).tril(span)
        side = side[None, None]
        return side if real is None else side & (real | torch.eye(self.L, dtype=torch.bool, device=device))

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


def with_packing(batch: Batch) -> Batch:
    """The batch with what `Packing.of_batch` needs, so that no mask is looked at where it would have to be waited for.

    Raises ValueError if a sequence has no real token to pool.
    """
    if CELLS in batch:
        return batch
    mask = batch["attention_mask"]
    packing = Packing.of(mask, *mask.shape)
    cells = packing.index
    if cells is None:
        cells = torch.arange(0 if packing.mask is None else mask.numel(), device=mask.device)
    return batch | {CELLS: cells}


def _inverse(index: Tensor, cells: int) -> Tensor:
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
