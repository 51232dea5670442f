"""A model folder to look into: sentences to vectors of every layer, and where a word stands in them.

Layers are numbered as people count them: 0 the embeddings, 1 to L the layers, -1 the last one, -2 the one before it.

Shapes: T tokens of a sentence, L layers, D width.
"""

import functools
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from ..checkpoint.folder import find_model, load_model, load_tokenizer
from ..files import InputError
from ..tasks.rows import text_of
from ..tokenizer import Encoding, normalize

BATCH = 32  # sentences a forward pass
Floats = NDArray[np.float32]
Span = tuple[int, int]  # first token, and the one after the last
Forms = list[list[int]]  # the pieces of a word, in one or two ways


class Inside:
    """Encoder and tokenizer of a folder; on a GPU if there is one and `device` does not say otherwise."""

    def __init__(self, folder: Path | str, device: str | None = None):
        """Raises InputError if the folder (or run folder) is incomplete or damaged."""
        self.folder = find_model(folder)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.tokenizer = load_tokenizer(self.folder)
        self.model = load_model(self.folder).to(self.device)
        self.encoder = self.model.encoder
        self.positions = self.encoder.config.max_length
        self.layers = self.encoder.config.num_hidden_layers

    @functools.cached_property
    def specials(self) -> set[int]:
        """The ids that are no part of a word."""
        return {self.tokenizer.cls_id, self.tokenizer.sep_id, self.tokenizer.pad_id, self.tokenizer.unk_id}

    @functools.cached_property
    def continues(self) -> NDArray[np.bool_]:
        """(V,) the pieces that continue a word. A mark behind a word is none of it, whatever the vocabulary says."""
        continues = self.tokenizer.continuation.copy()
        if self.tokenizer.kind != "wordpiece":
            for piece in np.flatnonzero(continues).tolist():
                first = self.tokenizer.readable(piece)[0]
                continues[piece] = first.isalnum() or first == "\ufffd"
        return continues

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """The tokens of a text or pair, which is composed (NFC) first. Raises InputError for half a character."""
        pair = None if pair is None else normalize("NFC", text_of(pair, "the second text"))
        return self.tokenizer.encode(normalize("NFC", text_of(text, "the text")), pair, max_length)

    def layer(self, number: int) -> int:
        """The place of a layer among the hidden states. Raises InputError if there is no such layer."""
        found = number if number >= 0 else self.layers + 1 + number
        if not 0 <= found <= self.layers:
            raise InputError(
                f"layer {number}: {self.folder} has the layers 1 to {self.layers}, 0 for the embeddings, and "
                f"-1 to -{self.layers + 1} counted from the last one"
            )
        return found

    @torch.no_grad()
    def states(self, rows: Sequence[Sequence[int]]) -> Iterator[Floats]:
        """(L + 1, T, D) for each row of token ids, embeddings first, in their order; BATCH rows are held at a time.

        Raises InputError if a row is longer than the model's positions.
        """
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            longest = max(map(len, some))
            if longest > self.positions:
                raise InputError(f"a text of {longest} tokens; {self.folder} takes {self.positions}: shorten it")
            ids = torch.full((len(some), longest), self.tokenizer.pad_id)
            for i, row in enumerate(some):
                ids[i, : len(row)] = torch.tensor(row)
            real = torch.arange(longest) < torch.tensor([[len(row)] for row in some])
            out = self.encoder(ids.to(self.device), real.to(self.device))
            assert out.hidden_states is not None
            width = max(
                state.shape[-1] for state in out.hidden_states
            )  # embeddings may be narrower: zeros change no cosine
            wide = [F.pad(state, (0, width - state.shape[-1])) for state in out.hidden_states]
            states = torch.stack(wide, 1).float().cpu().numpy()  # (B, L + 1, T, D)
            yield from (states[i, :, : len(row)] for i, row in enumerate(some))

    def pieces_of(self, word: str) -> Forms:
        """The ids of a word's pieces: inside a text, then at its beginning if they are others there.

        Raises InputError if there are none, or not all are known.
        """
        word = normalize("NFC", text_of(word, "the word"))
        forms = self.tokenizer.ids_of(list(dict.fromkeys([self.tokenizer.inside(word), word])))
        if not forms[0] or self.tokenizer.unk_id in forms[0]:
            found = (
                "is no word to this tokenizer" if not forms[0] else "has characters that the vocabulary lacks ([UNK])"
            )
            raise InputError(f"{word!r} {found}; give another word")
        return forms

    def find(self, ids: Sequence[int], word: Forms, beginning: bool = False) -> list[Span]:
        """Where the pieces of `word` stand among `ids` as a whole word, from left to right.

        beginning: also where a longer word begins with them, as a Korean noun with its particle does.
        """
        found = []
        for i, (before, piece) in enumerate(zip([self.tokenizer.cls_id, *ids[:-1]], ids, strict=False)):
            for form in word if before in self.specials else word[:1]:
                size = len(form)
                if piece == form[0] and list(ids[i : i + size]) == form:
                    ends = i + size == len(ids) or not self.continues[ids[i + size]]
                    if ends or beginning:
                        found.append((i, i + size))
                        break
        return found

    def require(self, text: str, ids: Sequence[int], word: str, beginning: bool = False) -> Span:
        """The first place of `word`. Raises InputError if it is not there, naming the longer word that is."""
        pieces = self.pieces_of(word)
        if found := self.find(ids, pieces, beginning):
            return found[0]
        longer = [(a, b) for a, b in self.words(ids) if self.find(ids[a:b], pieces, beginning=True)[:1]]
        hint = ""
        if longer:
            whole = self.tokenizer.decode(ids[longer[0][0] : longer[0][1]])
            hint = f", only as the beginning of {whole!r}; give that word, or --beginning"
        raise InputError(f"the word {word!r} is not in {text[:80]!r}{hint or '; give sentences that have it'}")

    def words(self, ids: Sequence[int]) -> list[Span]:
        """The words of a row: a piece and those that continue it. [CLS], [SEP] and [UNK] are none."""
        before = [self.tokenizer.cls_id, *ids[:-1]]
        starts = [i for i, piece in enumerate(ids) if not self.continues[piece] or before[i] in self.specials]
        return [(a, b) for a, b in pairwise([*starts, len(ids)]) if ids[a] not in self.specials]


def cosine(a: Floats, b: Floats) -> Floats:
    """Cosine of the vectors in the last dimension."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    products: Floats = (a * b).sum(-1) / np.maximum(norms, 1e-12)
    return products


def has_attention(encoder: nn.Module, folder: str) -> None:
    """Raises InputError if there is no attention to look at, or two encoders of which each has its own."""
    shape = encoder.config
    if shape.layer_type != "attention" or not shape.num_hidden_layers or shape.direction == "pair":  # type: ignore[union-attr]
        raise InputError(f"{folder} has no attention heads of one encoder; expected a model with Transformer layers")
