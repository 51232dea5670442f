"""Attention weights of every head on one text.

Shapes: L layers, N heads a layer, T tokens; weights are (L, N, T, T), each row of the last two sums to 1.
"""

from dataclasses import dataclass

import torch

from ...files import InputError
from .model import Floats, ProbedModel, check_attention


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
