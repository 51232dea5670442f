"""A model folder to probe: the tokens of texts, the hidden states of every layer, the attention of every head.

Layers are numbered as people count them: 0 the embeddings, 1 to L the layers, -1 the last one, -2 the one before it.

Shapes: T tokens of a text, L layers, D hidden width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ...checkpoint.locate import refuse_export
from ...files import InputError
from ...inference.features import Extractor
from ...inference.model import LoadedModel
from ...tasks.inputs import Inputs
from ...tasks.rows import text_of
from ...tokenizer import Encoding, normalize
from .words import WordFinder

BATCH = 32  # texts whose states of all layers are in memory
Floats = NDArray[np.float32]


class ProbedModel:
    """Encoder and tokenizer of a folder, on a GPU if there is one and `device` names no other."""

    def __init__(self, folder: Path | str | LoadedModel, device: str | None = None):
        """folder: or one that is in memory, which is shared.

        Raises InputError if the folder (or run folder) is an export, incomplete or damaged.
        """
        loaded = folder if isinstance(folder, LoadedModel) else LoadedModel.load(folder, device=device)
        refuse_export(loaded.folder)
        self.folder, self.device, self.tokenizer = loaded.folder, loaded.device, loaded.tokenizer
        self.encoder = loaded.model.encoder
        self.positions = self.encoder.config.max_length
        self.layers = self.encoder.config.num_hidden_layers
        self.words = WordFinder(self.tokenizer)
        self.extractor = Extractor(self.encoder, self.tokenizer, device=str(self.device))

    @property
    def layer_names(self) -> list[str]:
        """L + 1 names, as results have them."""
        return ["embeddings", *(str(i + 1) for i in range(self.layers))]

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """The tokens of a text or pair, which is composed (NFC) first. Raises InputError for half a character."""
        pair = None if pair is None else normalize("NFC", text_of(pair, "the second text"))
        return self.tokenizer.encode(normalize("NFC", text_of(text, "the text")), pair, max_length)

    def layer(self, number: int) -> int:
        """The index of a layer among the hidden states. Raises InputError if the model lacks it."""
        index = number if number >= 0 else self.layers + 1 + number
        if not 0 <= index <= self.layers:
            raise InputError(
                f"layer {number}: {self.folder} has the layers 1 to {self.layers}, 0 for the embeddings, and "
                f"-1 to -{self.layers + 1} counted from the last one"
            )
        return index

    def states(self, rows: Sequence[Sequence[int]]) -> Iterator[Floats]:
        """(L + 1, T, D) for each row of token ids, embeddings first, in order; BATCH rows are in memory at a time.

        Embeddings narrower than the layers (ALBERT) end in zeros, which change no cosine. Raises InputError if a row is
        longer than the model's positions.
        """
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            longest = max(map(len, some))
            if longest > self.positions:
                raise InputError(f"a text of {longest} tokens; {self.folder} takes {self.positions}: shorten it")
            inputs = Inputs.from_ids(some, self.tokenizer, self.positions)
            layers = self.extractor.layers(inputs, np.arange(len(inputs.ids)), len(inputs.ids))  # (tokens, D) each
            width = max(layer.shape[-1] for layer in layers)
            every = np.stack([np.pad(layer, ((0, 0), (0, width - layer.shape[-1]))) for layer in layers])
            yield from np.split(every, inputs.edges[1:-1], axis=1)


def cosine(a: Floats, b: Floats) -> Floats:
    """Cosine of the vectors in the last dimension, in float64: near 1 many are equal in float32."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    products: Floats = (a * b).sum(-1) / np.maximum(norms, 1e-12)
    return products


# ---- attention


@dataclass(frozen=True)
class Attention:
    """The attention of all heads on one text or pair."""

    text: str
    tokens: list[str]  # with [CLS] and [SEP]
    weights: Floats  # (L, N, T, T) of N heads a layer; each row of the last two sums to 1
    cut: int  # tokens that did not fit


@torch.no_grad()
def attend(model: ProbedModel, text: str, pair: str | None = None) -> Attention:
    """Every head's weights on a text, in float32; what is longer than the model's positions is cut.

    Raises InputError if the model has no attention.
    """
    check_attention(model)
    encoding = model.encode(text, pair, model.positions)
    ids, types = (torch.tensor([row], device=model.device) for row in (encoding.ids, encoding.type_ids))
    weights = torch.cat(model.encoder(ids, None, types, attentions=True).attentions).float().cpu().numpy()
    return Attention(text, encoding.tokens, weights, encoding.n_cut)


def check_attention(model: LoadedModel | ProbedModel) -> None:
    """Raises InputError if the folder has no attention weights, or two encoders of which each has its own."""
    encoder = model.encoder if isinstance(model, ProbedModel) else model.model.encoder
    shape = encoder.config
    if shape.layer_type != "attention" or not shape.num_hidden_layers or shape.direction == "pair":
        raise InputError(
            f"{model.folder} has no attention heads of one encoder; expected a model with Transformer layers"
        )
