"""Vectors of raw texts from the layers of an encoder (paper, section 5.3; original code extract_features.py).

An `Extractor` gives each text's vectors and what they belong to; `feature_files.py` writes files. A text is
[CLS] tokens [SEP], a pair [CLS] tokens [SEP] tokens [SEP]. What is longer than the window is read through several,
which overlap by a quarter or more, and each token's vector is taken where it has most context.

Shapes: N texts, C parts a text (2 of a pair), F tokens of all texts, S windows, T tokens of all windows, R vectors, W
their width, B sequences of a batch, D hidden width.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch
from ..checkpoint.folder import load_encoder, load_tokenizer
from ..checkpoint.locate import ModelLike, find_model, refuse_export
from ..checkpoint.metadata import input_length
from ..checkpoint.start import network_of
from ..files import InputError
from ..model.acceleration import for_inference
from ..model.bert import Encoder
from ..model.comparators import LayerChoice
from ..tasks.contexts import Contexts, tokenize_contexts
from ..tasks.inputs import Inputs
from ..tasks.rows import in_chunks, text_rows_of
from ..tasks.sequences import Frames, Integers, Spans, Windows, edges_of, even_windows, frame, ranges
from ..tokenizer import Tokenizer
from .config import FeatureConfig
from .engines import INPUTS
from .model import batches, check_length, device_of

TEXTS = 4096  # texts that are put in order of length together
CHARACTERS = 4_000_000  # of them, so that memory stays bounded whatever the length of texts
VALUES = 1 << 26  # numbers in the vectors of them, at two characters a token: 256 MB

Text = str | tuple[str, str]  # a text or a pair


class Features(NamedTuple):
    """The vectors of one text, or of N texts end to end. All but `vectors` are None where one is a whole text's."""

    vectors: NDArray[Any]  # (R, W) float32; of one pooled text (W,)
    offsets: NDArray[np.int32] | None  # (R, 2) the characters of its text; (0, 0) for [CLS] and [SEP]
    words: NDArray[np.int32] | None  # (R,) number of the word in its text, -1 for [CLS] and [SEP]
    segments: NDArray[np.uint8] | None  # (R,) 0, and 1 for the second text of a pair
    ids: NDArray[np.int32] | None  # (R,) the token in the vocabulary; None if a vector is a word's


@dataclass(frozen=True)
class Chunk:
    """Some texts that follow each other in the input."""

    features: Features  # of all of them
    edges: Integers  # (N + 1,) where each text's vectors begin and end
    windowed: int  # texts that did not fit into one window

    def texts(self) -> Iterator[Features]:
        """The features of each text, copied out of the chunk's."""
        pooled = self.features.offsets is None
        for i, (a, b) in enumerate(pairwise(self.edges.tolist())):
            rows = i if pooled else slice(a, b)
            vectors, *names = (None if part is None else part[rows].copy() for part in self.features)
            yield Features(vectors, *names)  # type: ignore[arg-type]


class Extractor:
    """An encoder and its tokenizer, ready to give vectors; on a GPU if there is one and `device` does not say no."""

    def __init__(
        self,
        encoder: Encoder,
        tokenizer: Tokenizer,
        config: FeatureConfig | None = None,
        device: str | None = None,
    ):
        """The encoder is put into evaluation mode and moved to the device.

        Raises InputError for layers that it does not have, fewer positions than `config.max_length`, or a missing GPU.
        """
        self.config = config or FeatureConfig()
        positions = check_length(self.config.max_length, 8, encoder.config.max_length)
        self.max_length = self.config.max_length or positions
        self.choice = LayerChoice.parse(self.config.layers, encoder.config.num_hidden_layers)
        self.device = device_of(device)
        self.tokenizer = tokenizer
        self.encoder = for_inference(encoder.to(self.device), self.config.precision)
        one = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        with torch.no_grad():
            self.widths = [state.shape[-1] for state in self.encoder(one, one == 0, one).hidden_states]  # of each layer
        self.width = self._width_of(self.choice)  # W

    @classmethod
    def load(cls, model: ModelLike, config: FeatureConfig | None = None, device: str | None = None) -> "Extractor":
        """Of a model folder, a run folder or a loaded model.

        Raises InputError if it is incomplete or damaged, or as above.
        """
        folder, config, network = find_model(model), config or FeatureConfig(), network_of(model)
        refuse_export(folder)
        encoder = model if isinstance(model, Encoder) else network.encoder if network else load_encoder(folder)
        tokenizer = load_tokenizer(folder)
        if config.max_length is None:
            config = replace(config, max_length=input_length(folder, encoder.config.max_length))
        return cls(encoder, tokenizer, config, device)

    def stream(self, texts: Iterable[Text]) -> Iterator[Features]:
        """The features of any number of texts or pairs, in constant memory, in their order."""
        for chunk in self.chunks(texts):
            yield from chunk.texts()

    def chunks(self, texts: Iterable[Text]) -> Iterator[Chunk]:
        """The same, many texts at a time: what files are written from.

        Raises InputError if a row is neither text nor pair, or the first text of a pair is too long.
        """
        characters = CHARACTERS if self.config.pool else min(CHARACTERS, 2 * VALUES // self.width)
        for count, group in groupby(text_rows_of(texts), len):
            if count not in (1, 2):
                raise InputError(f"texts has a row of {count} texts; expected texts (str) or pairs of texts")
            for some in in_chunks(group, TEXTS, characters):
                yield self._chunk(some, count)

    def _chunk(self, rows: list[tuple[str, ...]], C: int) -> Chunk:
        contexts = tokenize_contexts(self.tokenizer, [text for row in rows for text in row])
        tokens = _tokens_of(contexts, C, self.tokenizer)
        windows = _windows_of(tokens, contexts, self.max_length)
        edges, row, named = self._rows(tokens, contexts, C)
        frames = tokens.framed(windows, self.tokenizer)
        target = tokens.targets(windows, frames, row, self.config.pool == "cls")
        inputs = Inputs.unlabelled(frames, self.tokenizer, self.max_length)
        vectors = self._reduced(inputs, target, int(edges[-1]), self.choice).numpy()
        windowed = len(np.unique(windows.text[windows.start > 0]))
        return Chunk(Features(vectors, *named), edges, windowed)

    def _rows(self, tokens: "_Tokens", contexts: Contexts, C: int) -> tuple[Integers, Integers, tuple[Any, ...]]:
        """(N + 1,) borders of the texts' vectors; (F,) the vector of each token, -1 if it has none; their names."""
        config, textual = self.config, tokens.words >= 0
        N, counted = len(tokens.edges) - 1, textual | (config.specials or config.pool == "cls")
        if config.pool:
            row = np.where(counted, np.repeat(np.arange(N), np.diff(tokens.edges)), -1)
            return np.arange(N + 1), row, (None, None, None, None)
        if config.words is None:
            edges = edges_of(counted.astype(np.int64))[tokens.edges]
            names = (part[counted] for part in (tokens.offsets, tokens.words, tokens.segments, tokens.ids))
            return edges, np.where(counted, np.cumsum(counted) - 1, -1), tuple(names)
        row = np.full(len(textual), -1)
        row[textual] = contexts.word
        if config.words == "first":
            row[np.flatnonzero(textual)[1:][np.diff(contexts.word) == 0]] = -1
        lengths = np.fromiter(map(len, contexts.words), np.int64, len(contexts.words))
        offsets = np.stack([contexts.word_begin, contexts.word_begin + lengths], 1).astype(np.int32)
        text = np.repeat(np.arange(N * C), np.diff(contexts.word_edges))
        number = (np.arange(len(lengths)) - contexts.word_edges[text]).astype(np.int32)
        return contexts.word_edges[::C], row, (offsets, number, (text % C).astype(np.uint8), None)

    # ---- vectors of prepared inputs

    def layers(self, inputs: Inputs, target: Integers, count: int) -> list[NDArray[np.float32]]:
        """(R, D) vectors of the embeddings and of every layer, from one pass over the inputs: means over tokens.

        target (T,): the vector, below `count`, that each token of `inputs` belongs to, -1 for none. A vector without
        tokens is 0.
        """
        every = LayerChoice(tuple(range(len(self.widths))), "concat")
        vectors = self._reduced(inputs, target, count, every)
        return [part.numpy() for part in vectors.split(self.widths, dim=1)]

    @torch.no_grad()
    def _reduced(self, inputs: Inputs, target: Integers, count: int, choice: LayerChoice) -> Tensor:
        """(R, W) float32 on the CPU: the mean over the tokens of each target, as in `layers`."""
        out = torch.zeros(count, self._width_of(choice))
        for rows, batch in batches(inputs, self.device):
            targets = torch.from_numpy(target[inputs.tokens(rows)])
            counted = (targets >= 0).nonzero().squeeze(1)
            positions = batch["attention_mask"].flatten().nonzero().squeeze(1)[counted.to(self.device)]
            out.index_add_(0, targets[counted], self._states(batch, positions, choice).cpu())
        counts = np.bincount(target[target >= 0], minlength=count)
        if counts.max(initial=0) > 1:
            out /= torch.from_numpy(counts).clamp(min=1)[:, None]
        return out

    def _states(self, batch: Batch, positions: Tensor, choice: LayerChoice) -> Tensor:
        """(., W) float32: what the choice of layers gives at some of the (B * L) cells."""
        inputs, single = [batch[name] for name in INPUTS], len(choice.states) == 1
        out = self.encoder(*inputs, hidden_states=not single, depth=choice.depth)
        rows = out.layout.rows(positions)
        states = {choice.depth: out.packed} if single else out.states
        return choice.combine({i: states[i][rows].float() for i in choice.states})

    def _width_of(self, choice: LayerChoice) -> int:
        """W of a choice of layers; the embeddings may be narrower than the layers."""
        return choice.combine({i: torch.empty(1, width) for i, width in enumerate(self.widths)}).shape[-1]


# ---- texts as windows


@dataclass(frozen=True)
class _Tokens:
    """The tokens of N texts or pairs with their special tokens, before windows are cut."""

    parts: list[Spans]  # C, N spans each: the tokens of the texts, or of the first and the second texts of pairs
    edges: Integers  # (N + 1,)
    before: Integers  # (N,) tokens before the last part, the one that windows are cut from
    ids: NDArray[np.int32]  # (F,)
    offsets: NDArray[np.int32]  # (F, 2)
    words: NDArray[np.int32]  # (F,) -1 for [CLS] and [SEP]
    segments: NDArray[np.uint8]  # (F,)

    def framed(self, windows: Windows, tokenizer: Tokenizer) -> Frames:
        """A sequence for each window; the first text of a pair is in all of its windows."""
        shown = [part.of(windows.text) for part in self.parts]
        shown[-1] = shown[-1]._replace(start=shown[-1].start + windows.start, length=windows.length)
        return frame(tokenizer, shown[0], *shown[1:])

    def targets(self, windows: Windows, frames: Frames, row: Integers, cls: bool) -> Integers:
        """(T,) the vector that each token of the windows counts for, -1 if none.

        row (F,): the vector of each token. A token counts in one window alone; with `cls` the [CLS] of every window
        does, and nothing else.
        """
        lengths = np.diff(frames.edges)
        window = np.repeat(np.arange(len(lengths)), lengths)
        position = np.arange(frames.edges[-1]) - frames.edges[window]
        shown, end = position >= self.before[windows.text][window], position == lengths[window] - 1
        if cls:
            counts = position == 0
        else:
            last = np.append(np.diff(windows.text) > 0, True)
            counts = np.where(end, last[window], (windows.start == 0)[window])
            counts[shown & ~end] = windows.max_context
        token = self.edges[windows.text[window]] + position + np.where(shown, windows.start[window], 0)
        return np.where(counts, row[token], -1)


def _tokens_of(contexts: Contexts, C: int, tokenizer: Tokenizer) -> _Tokens:
    lengths = np.diff(contexts.edges)  # (N * C,)
    parts = [Spans(contexts.ids, contexts.edges[i:-1:C], lengths[i::C]) for i in range(C)]
    ids, edges, first = frame(tokenizer, parts[0], *parts[1:])
    before = np.diff(edges) - parts[-1].length - 1
    begins = [edges[:-1] + 1, edges[:-1] + before][:C]  # of a single text the two are the same
    position = np.sort(np.concatenate([ranges(a, part.length) for a, part in zip(begins, parts, strict=True)]))
    text = np.repeat(np.arange(len(lengths)), lengths)  # the text of each token of `contexts`
    F = len(ids)
    offsets, words = np.zeros((F, 2), np.int32), np.full(F, -1, np.int32)
    offsets[position] = np.stack([contexts.begin, contexts.end], 1)
    words[position] = contexts.word - contexts.word_edges[text]
    segments = np.arange(F) - np.repeat(edges[:-1], np.diff(edges)) >= np.repeat(first, np.diff(edges))
    return _Tokens(parts, edges, before, ids, offsets, words, segments.astype(np.uint8))


def _windows_of(tokens: _Tokens, contexts: Contexts, max_length: int) -> Windows:
    """Windows over the last part of each text. Raises InputError if the first text of a pair is too long."""
    length, capacity = tokens.parts[-1].length, max_length - tokens.before - 1
    narrow = np.flatnonzero((length > capacity) & (capacity < max_length // 4))
    if len(narrow):
        text, count = contexts.texts[2 * narrow[0]], tokens.parts[0].length[narrow[0]]
        long = f"the first text of a pair, {text[:40]!r} and so on, has {count} tokens"
        raise InputError(f"{long}, which leaves too few of {max_length} to the second; put the longer text second")
    return even_windows(length, capacity)
