"""Attention weights of every head on one text, and statistics of them (Clark et al. 2019).

Shapes: L layers, N heads a layer, T tokens; weights are (L, N, T, T), each row of the last two sums to 1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...files import InputError
from .model import Floats, ProbedModel, check_attention

STATISTICS = {  # name: meaning; each is a mean over all tokens of the text
    "entropy": "nats; 0: all weight on one token",
    "distance": "mean distance to the tokens attended to",
    "itself": "weight on the token itself",
    "previous": "weight on the token before",
    "next": "weight on the token after",
    "[CLS]": "weight on [CLS]",
    "[SEP]": "weight on all [SEP]",
}


@dataclass(frozen=True)
class Attention:
    """The attention of all heads on one text or pair."""

    model: str
    text: str
    pair: str | None
    tokens: list[str]  # with [CLS] and [SEP]
    segments: list[int]  # 0 or 1 a token
    special: list[bool]  # whether a token is [CLS] or [SEP]
    weights: Floats
    cut: int  # tokens that did not fit


@torch.no_grad()
def attend(model: ProbedModel, text: str, pair: str | None = None, max_length: int | None = None) -> Attention:
    """Every head's weights on a text, in float32. The text is cut to `max_length` tokens (default: the positions).

    Raises InputError if the text is empty, max_length does not fit, or the model has no attention.
    """
    limit = max_length or model.positions
    if not 8 <= limit <= model.positions:
        raise InputError(f"max_length = {limit}; expected 8 to {model.positions}, the positions of {model.folder}")
    check_attention(model)
    encoding = model.encode(text, pair, limit)
    specials = [offset == (0, 0) for offset in encoding.offsets]
    if all(specials):
        raise InputError(f"{text!r} has no token; give a text")
    ids, types = (torch.tensor([row], device=model.device) for row in (encoding.ids, encoding.type_ids))
    weights = torch.cat(model.encoder(ids, None, types, attentions=True).attentions).float().cpu().numpy()
    return Attention(
        model=str(model.folder),
        text=text,
        pair=pair,
        tokens=encoding.tokens,
        segments=encoding.type_ids,
        special=specials,
        weights=weights,
        cut=encoding.n_cut,
    )


def statistics(attention: Attention) -> dict[str, NDArray[np.float64]]:
    """(L, N) of each of STATISTICS. `previous` leaves out the first token, `next` the last one."""
    weights = attention.weights.astype(np.float64)
    positions = np.arange(len(attention.tokens))
    logs = np.log(np.where(weights > 0, weights, 1.0))
    seps = [i for i, special in enumerate(attention.special) if special and i > 0]
    diagonals = (("itself", 0), ("previous", -1), ("next", 1))
    return {
        "entropy": -(weights * logs).sum(-1).mean(-1),
        "distance": (weights * np.abs(positions[:, None] - positions)).sum(-1).mean(-1),
        **{name: np.diagonal(weights, k, 2, 3).mean(-1) for name, k in diagonals},
        "[CLS]": weights[..., 0].mean(-1),
        "[SEP]": weights[..., seps].sum(-1).mean(-1),
    }
