"""What every attention head of a model looks at in one text, and statistics of it (Clark et al. 2019).

Shapes: L layers, N heads a layer, T tokens; weights are (L, N, T, T), each row of the last two sums to 1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..files import InputError
from .inside import Floats, Inside, has_attention

STATISTICS = {  # name: what it means; a mean over all tokens of the text
    "entropy": "nats; 0: all on one token",
    "distance": "mean distance to the token looked at",
    "itself": "share on the token itself",
    "previous": "share on the token before",
    "next": "share on the token after",
    "[CLS]": "share on [CLS]",
    "[SEP]": "share on all [SEP]",
}


@dataclass(frozen=True)
class Attention:
    """The attention of all heads on one text or pair."""

    model: str
    text: str
    pair: str | None
    tokens: list[str]  # pieces, with [CLS] and [SEP]
    segments: list[int]  # 0 or 1 a token
    special: list[bool]  # whether a token is [CLS] or [SEP]
    weights: Floats
    cut: int  # tokens that did not fit


@torch.no_grad()
def attend(inside: Inside, text: str, pair: str | None = None, max_length: int | None = None) -> Attention:
    """Every head's weights on a text, in float32, cut to `max_length` tokens (left out: the model's positions).

    Raises InputError if the text is empty, max_length does not fit, or the model has no attention.
    """
    limit = max_length or inside.positions
    if not 8 <= limit <= inside.positions:
        raise InputError(f"max_length = {limit}; expected 8 to {inside.positions}, the positions of {inside.folder}")
    encoding = inside.encode(text, pair, limit)
    specials = [offset == (0, 0) for offset in encoding.offsets]
    if all(specials):
        raise InputError(f"{text!r} has no token; give a text")
    ids, types = (torch.tensor([row], device=inside.device) for row in (encoding.ids, encoding.type_ids))
    segments = types if inside.encoder.config.type_vocab_size > 1 else None
    has_attention(inside.encoder, str(inside.folder))
    found = inside.encoder(ids, None, segments, attentions=True).attentions
    weights = torch.cat(found).float().cpu().numpy()
    return Attention(
        model=str(inside.folder),
        text=text,
        pair=pair,
        tokens=encoding.tokens,
        segments=encoding.type_ids,
        special=specials,
        weights=weights,
        cut=encoding.n_cut,
    )


def statistics(attention: Attention) -> dict[str, NDArray[np.float64]]:
    """(L, N) of each of STATISTICS. Tokens without a token before or after are left out of these two means."""
    weights = attention.weights.astype(np.float64)
    places = np.arange(len(attention.tokens))
    logs = np.log(np.where(weights > 0, weights, 1.0))
    seps = [i for i, special in enumerate(attention.special) if special and i > 0]
    along = {name: np.diagonal(weights, k, 2, 3).mean(-1) for name, k in (("itself", 0), ("previous", -1), ("next", 1))}
    return {
        "entropy": -(weights * logs).sum(-1).mean(-1),
        "distance": (weights * np.abs(places[:, None] - places)).sum(-1).mean(-1),
        **along,
        "[CLS]": weights[..., 0].mean(-1),
        "[SEP]": weights[..., seps].sum(-1).mean(-1),
    }
