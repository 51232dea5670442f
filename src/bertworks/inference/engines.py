"""How a loaded model computes a batch: the packed pass (model/layout.py), in the precision of its matrix products.

Exported folders have an engine of their own (exported.py).

Shapes: B sequences, L positions, D width of the encoder, K labels, M masks, V vocabulary.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from ..batch import Batch
from ..files import InputError
from ..model.acceleration import for_inference
from ..model.heads import POOLED_MULTIPLE, Model
from ..model.initialization import has_bfloat16
from ..model.layout import Layout
from ..tasks.inputs import batch_scores

Precision = Literal["auto", "float32", "bfloat16"]
"""Number type of weights and products; auto: bfloat16 where the device multiplies it faster, else float32."""

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Packed:
    """A batch without its padding, through torch's own operators: every model, every device.

    It computes batches (batch.py, the first three keys). Results are float32, on the batch's device.
    """

    name = "packed"

    def __init__(self, model: Model, precision: str):
        """precision: float32 or bfloat16. Later changes of the weights have no effect: most of them are copied."""
        self.precision, self.network = precision, for_inference(model, precision, frozen=True)

    def states(self, batch: Batch) -> Tensor:
        """(B, L, D) of the last layer. Padding may hold anything."""
        out = self.network.encoder(*(batch[name] for name in INPUTS), hidden_states=False)
        return out.last_hidden_state.float()  # type: ignore[no-any-return]

    def scores(self, batch: Batch, head: str) -> Tensor:
        """Scores of a head before any softmax: (B, K), of a token head (B, L, K)."""
        return batch_scores(self.network, batch, head).float()

    def masked(self, batch: Batch, positions: Tensor) -> Tensor:
        """(M, V) scores of the masked-LM head at (M,) positions of the flattened batch.

        The last layer computes no others, but for those that a pooler reads.
        """
        computed, encoder = positions, self.network.encoder
        if encoder.pooler is not None:
            computed = torch.cat([positions, encoder.pooled_positions(Layout.of_batch(batch), positions.device)])
        computed = torch.cat([computed, computed[:1].expand(-len(computed) % POOLED_MULTIPLE)])
        out = self.network.encode(batch, output_positions=computed)
        return self.network.masked_lm_logits(out.packed[out.layout.rows(positions)]).float()


def supported_precision(precision: Precision, device: torch.device) -> str:
    """float32 or bfloat16: auto is bfloat16 on GPUs of 2020 and later and on CPUs with AMX or AVX-512's bfloat16.

    Raises InputError for a name that is no Precision.
    """
    if precision not in get_args(Precision):
        raise InputError(f"precision = {precision!r}; expected one of {', '.join(get_args(Precision))}")
    if precision != "auto":
        return precision
    on_gpu = device.type == "cuda"
    fast = torch.cuda.is_bf16_supported(False) if on_gpu else device.type == "cpu" and has_bfloat16()
    return "bfloat16" if fast else "float32"
