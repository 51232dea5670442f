"""The attention of all heads as one HTML page that loads nothing: no network, no other file.

Weights are stored as bytes, 255 times their square root (so that small ones keep their differences), compressed and in
base64; attention_page.html is the page without them. Everything of the text reaches the page as data, never as markup.
"""

import base64
import html
import json
import re
import zlib
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attention import STATISTICS, Attention, statistics
from .model import Floats

_SIZE = 12  # characters of the field where the page shows its own size


def page(attention: Attention) -> str:
    """The page of one text or pair."""
    whole = attention.text if attention.pair is None else f"{attention.text} / {attention.pair}"
    excerpt = whole if len(whole) <= 90 else whole[:89] + "…"
    template = (files(__package__) / "attention_page.html").read_text(encoding="utf-8")
    fields = {"TITLE": html.escape(f"Attention: {excerpt}"), "DATA": safe_json(_data(attention)), "SIZE": " " * _SIZE}

    def filled() -> str:  # in one pass: a text may contain what looks like another field
        return re.sub("@@([A-Z]+)@@", lambda match: fields[match[1]], template)

    fields["SIZE"] = f"{len(filled().encode()) / 1e6:.2f} MB".ljust(_SIZE)
    return filled()


def quantised(weights: Floats) -> NDArray[np.uint8]:
    """Weights from 0 to 1 as bytes: 255 times the square root, rounded. Back: (byte / 255) squared, within 0.004."""
    return np.rint(np.sqrt(np.clip(weights, 0, 1)) * 255).astype(np.uint8)


def _data(attention: Attention) -> dict[str, Any]:
    layers, heads, _, _ = attention.weights.shape
    packed = zlib.compress(quantised(attention.weights).tobytes(), 9)
    return {
        "model": attention.model,
        "tokens": attention.tokens,
        "segments": attention.segments,
        "special": attention.special,
        "cut": attention.cut,
        "layers": layers,
        "heads": heads,
        "statistics": {name: np.round(v, 4).tolist() for name, v in statistics(attention).items()},
        "meanings": STATISTICS,
        "weights": base64.b64encode(packed).decode(),
    }


def safe_json(value: Any) -> str:
    """JSON without a character that could end its script element, or begin another one."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
