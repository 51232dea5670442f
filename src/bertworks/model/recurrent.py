"""Recurrent layers, for the comparators: LSTM language models of ELMo's kind (Peters et al. 2018), the two-layer BiLSTM
that the paper puts on top of an encoder (sections 5.1 and 5.3), and GRUs.

Each sequence is put in the order in which it is read, wherever its padding is: real tokens first, from the right for a
direction that reads from there. Padding is never read before a token.

Shapes: B sequences, L positions, T rows of a packed batch, D input width, W width of one direction.
"""

import torch
from torch import Tensor, nn

from .attention import Attention
from .config import ModelConfig
from .dropout import LayerDropout
from .layout import Layout

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
READS = {"left": (False,), "right": (True,), "both": (False, True)}  # whether a direction is read from the right


class Recurrent(nn.Module):
    """One recurrent layer over a batch, (T, D) to (T, W), or to (T, 2 W) if it reads both ways."""

    def __init__(self, inputs: int, width: int, cell: str, direction: str):
        super().__init__()
        self.reads = READS[direction]
        self.cells = nn.ModuleList(CELLS[cell](inputs, width, batch_first=True) for _ in self.reads)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Compute in float32, whatever the type of products: small steps through time gain nothing from bfloat16."""
        with torch.autocast(x.device.type, enabled=False):
            rows = layout.unpack(x.float()).view(layout.B, layout.L, -1)
            directions = zip(self.cells, self.reads, strict=True)
            out = [_read(cell, rows, layout, from_right) for cell, from_right in directions]
        return layout.pack(torch.cat(out, -1).flatten(0, 1)).to(x.dtype)


def _read(cell: nn.Module, rows: Tensor, layout: Layout, from_right: bool) -> Tensor:
    """(B, L, D) to (B, L, W), each token's output at the token's position."""
    if layout.mask is None and not from_right:
        return cell(rows)[0]
    order = layout.order(rows.device, from_right)
    return _permuted(cell(_permuted(rows, order))[0], order.argsort(1))


def _permuted(x: Tensor, order: Tensor) -> Tensor:
    """(B, L, D) with the positions of each sequence in another order, (B, L)."""
    return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))


class RecurrentLayer(nn.Module):
    """x = LN(x + recurrent(x)): a layer of an encoder, called like a Transformer layer.

    ELMo has such skip connections too, without LayerNorm. Read both ways, each direction has half the width.
    """

    def __init__(self, config: ModelConfig, first: bool = False):
        """first: without effect; a Transformer layer has it."""
        super().__init__()
        width, direction = config.hidden_size, config.direction
        self.recurrent = Recurrent(width, width // len(READS[direction]), config.layer_type, direction)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, attention: Attention, dropout: LayerDropout) -> Tensor:
        """(T, D) to (T, D). Of `attention` only the layout is used."""
        return self.output_norm(dropout.output.residual(x, self.recurrent(x, attention.layout)))
