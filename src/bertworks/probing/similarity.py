"""How far a word's vector moves with its sentence, layer by layer: `bertworks probe word`.

A static vector is the same in every sentence, so its similarity is 1; the more of the context a layer has put into the
word, the lower it gets. But raw cosines mislead: in the upper layers all vectors lie in a narrow cone and any two words
are similar. So every layer is shown beside what random pairs of different words have there; the difference is what
Ethayarajh (2019, section 3.3) calls similarity adjusted for anisotropy.

Shapes: S sentences, L layers, W words of a sentence, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..files import InputError
from ..model.pair import Pair
from ..reporting.tables import Sheet
from ..training.machine import facts
from .inside import Floats, Inside, Span, cosine
from .pictures import heat_map, lines

MOST = 200  # sentences the baseline takes its words from: their vectors of all layers are held


@dataclass(frozen=True)
class WordConfig:
    """How `bertworks probe word` compares."""

    layer: int = -2  # of the matrix of more than two sentences: 1 to L, 0 the embeddings, -1 the last
    beginning: bool = False  # the word may also begin a longer one (Korean nouns with particles)
    pairs: int = 10_000  # at most so many pairs of different words for the baseline, drawn at random
    seed: int = 1  # of that draw

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.seed < 0:
            raise InputError(f"pairs = {self.pairs}, seed = {self.seed}; expected 1 or more, and a seed of 0 or more")


def compare_word(
    inside: Inside, word: str, sentences: Sequence[str], config: WordConfig, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Cosine of the word's vector in each two sentences, at the static embedding and each layer.

    A word of several pieces is their mean, one that stands several times in a sentence its first place. others:
    sentences to take the baseline's words from, if not from these. Raises InputError if a sentence lacks the word.
    """
    if len(sentences) < 2:
        raise InputError(f"{len(sentences)} sentence; expected two or more to compare the word in")
    pieces = inside.pieces_of(word)
    rows = [inside.encode(text).ids for text in sentences]
    places = [inside.require(text, row, word, config.beginning) for text, row in zip(sentences, rows, strict=True)]
    found = zip(rows, inside.states(rows), places, strict=True)
    vectors = np.stack([_vector(inside, row, states, at) for row, states, at in found])  # (S, L + 2, D)
    similarity = cosine(vectors[:, None], vectors[None]).transpose(2, 0, 1)  # (L + 2, S, S)
    baseline, pairs = _baseline(inside, list(others)[:MOST] or sentences, config)
    return {
        "probe": "word",
        "model": str(inside.folder),
        "word": word,
        "pieces": [inside.tokenizer.vocab[piece] for piece in pieces[0]],
        "sentences": list(sentences),
        "settings": vars(config),
        "layers": ["word piece", "embeddings", *(str(i + 1) for i in range(inside.layers))],
        "similarity": similarity.astype(float).round(6).tolist(),
        "baseline": baseline,
        "baseline_pairs": pairs,
        "matrix_layer": inside.layer(config.layer),
        "repeated": [len(inside.find(row, pieces, config.beginning)) for row in rows],
        "machine": facts(),
    }


def _vector(inside: Inside, ids: Sequence[int], states: Floats, span: Span) -> Floats:
    """(L + 2, D): mean over a word's pieces of the static vectors, the embeddings and each layer.

    Static vectors may be narrower than the layers (ALBERT); zeros behind them change no cosine.
    """
    start, end = span
    sides = (inside.encoder.left, inside.encoder.right) if isinstance(inside.encoder, Pair) else (inside.encoder,)
    tables = torch.cat([side.embeddings.word.weight[list(ids[start:end])].detach() for side in sides], -1)
    static = tables.float().cpu().numpy().mean(0)
    inner = states[:, start:end].mean(1)
    padded = np.zeros(inner.shape[1], np.float32)
    padded[: len(static)] = static
    return np.concatenate([padded[None], inner])


def _baseline(inside: Inside, sentences: Sequence[str], config: WordConfig) -> tuple[list[float], int]:
    """Mean cosine, a number a layer, of pairs of different words in different sentences; how many pairs."""
    limit = inside.positions
    rows = [inside.encode(text, max_length=limit).ids for text in sentences]
    spans = [inside.words(row) for row in rows]
    vectors = [
        np.stack([_vector(inside, row, states, span) for span in words], 1)  # (L + 2, W, D)
        for row, words, states in zip(rows, spans, inside.states(rows), strict=True)
        if words
    ]
    names = [tuple(row[a:b]) for row, words in zip(rows, spans, strict=True) for a, b in words]
    owner = np.repeat(np.arange(len(vectors)), [v.shape[1] for v in vectors])
    one, two = _pairs(names, owner, config)
    if not len(one):
        raise InputError("no two different words in different sentences; the baseline needs longer sentences")
    every = np.concatenate(vectors, 1)
    chunks = np.array_split(np.arange(len(one)), max(1, len(one) // 1000))
    total = sum(cosine(every[:, one[some]], every[:, two[some]]).sum(1, dtype=float) for some in chunks)
    return np.round(total / len(one), 6).tolist(), len(one)


def _pairs(
    names: Sequence[tuple[int, ...]], owner: NDArray[np.int64], config: WordConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of pairs of different words in different sentences: all of them, or as many as wanted at random."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    kind, W = np.array([number[name] for name in names]), len(names)
    if 4 * config.pairs >= W * (W - 1) // 2:
        one, two = np.triu_indices(W, 1)
    else:
        one, two = np.random.default_rng(config.seed).integers(W, size=(2, 4 * config.pairs))
    good = (kind[one] != kind[two]) & (owner[one] != owner[two])
    one, two = one[good], two[good]
    if len(one) > config.pairs:
        kept = np.random.default_rng((config.seed, 1)).choice(len(one), config.pairs, replace=False)
        one, two = one[kept], two[kept]
    return one, two


# ---- showing it


def sheets(results: dict[str, Any]) -> list[Sheet]:
    """The layers; with more than two sentences also the matrix of one layer."""
    means, baseline = pair_means(results), results["baseline"]
    word, sentences = results["word"], results["sentences"]
    what = "cosine" if len(sentences) == 2 else "mean cosine"
    rows = [
        (name, f"{mean:.3f}", f"{base:.3f}", f"{mean - base:+.3f}")
        for name, mean, base in zip(results["layers"], means, baseline, strict=True)
    ]
    notes = [
        f"model: {results['model']}",
        "word piece: the static vector, the same in every sentence. embeddings: with position and segment added.",
        f"random words: the mean of {results['baseline_pairs']:,} pairs of different words in different sentences at "
        "the same layer; what is above it is about the word (Ethayarajh 2019).",
    ]
    if len(results["pieces"]) > 1:
        notes.append(f"{word!r} has the pieces {' '.join(results['pieces'])}; its vector is their mean.")
    notes += [
        f"{word!r} stands {count} times in {text[:60]!r}; the first place is taken."
        for text, count in zip(sentences, results["repeated"], strict=True)
        if count > 1
    ]
    header = ("layer", what, "random words", "above it")
    layers = Sheet(f"{word!r} in {len(sentences)} sentences", header, rows, tuple(notes))
    return [layers] if len(sentences) == 2 else [layers, _matrix(results)]


def pair_means(results: dict[str, Any]) -> list[float]:
    """The mean over all pairs of sentences, a number a layer."""
    pairs = list(combinations(range(len(results["sentences"])), 2))
    return [float(np.mean([layer[i][j] for i, j in pairs])) for layer in results["similarity"]]


def _matrix(results: dict[str, Any]) -> Sheet:
    layer = results["matrix_layer"]
    values = results["similarity"][layer + 1]
    numbers = [str(i + 1) for i in range(len(values))]
    rows = [(number, *(f"{value:.3f}" for value in row)) for number, row in zip(numbers, values, strict=True)]
    notes = tuple(f"{number} {text}" for number, text in zip(numbers, results["sentences"], strict=True))
    name = f"layer {layer}" if layer else "the embeddings"
    return Sheet(f"cosine at {name}; random words: {results['baseline'][layer + 1]:.3f}", ("", *numbers), rows, notes)


def plot(results: dict[str, Any], out: Path) -> list[Path]:
    """A line over the layers for two sentences, else the matrix of one layer."""
    if len(results["sentences"]) == 2:
        names = ["static", "emb.", *results["layers"][2:]]
        curves = {f"{results['word']!r} in the two sentences": pair_means(results)}
        return lines(names, curves, {"random pairs of words": results["baseline"]}, "cosine", out)
    layer = results["matrix_layer"]
    shown = (text if len(text) <= 28 else f"{text[:27]}…" for text in results["sentences"])
    numbers = [f"{i + 1}: {text}" for i, text in enumerate(shown)]
    values = np.array(results["similarity"][layer + 1])
    short = [str(i + 1) for i in range(len(numbers))]
    title = f"{results['word']!r} at layer {layer}, random words {results['baseline'][layer + 1]:.2f}"
    return heat_map(values, numbers, short, title, out, low=results["baseline"][layer + 1], high=1.0)
