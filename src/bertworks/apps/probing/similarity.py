"""How far a word's vector moves with its sentence, layer by layer: `bertworks probe word`.

A static vector is the same in every sentence, so its similarity is 1. The more context a layer adds to the word, the
lower the similarity gets. Raw cosines mislead: in upper layers all vectors point in similar directions, and any two
words are similar. So the table also has the mean cosine of random pairs of different words at each layer. Ethayarajh
(2019, section 3.3) calls the difference similarity adjusted for anisotropy.

Shapes: S sentences, L layers, W words of a sentence, D hidden width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...files import InputError
from ...reporting.tables import ResultTable
from ...training.machine import facts
from .config import WordConfig
from .explanation_arrays import word_vectors
from .model import Floats, ProbedModel, cosine
from .words import Span

MOST = 200  # sentences of the baseline: their vectors of all layers are in memory


def compare_word(
    model: ProbedModel,
    word: str,
    sentences: Sequence[str],
    config: WordConfig,
    others: Sequence[str] = (),
) -> dict[str, Any]:
    """Cosines of the word's vectors in every two sentences: static embedding, embeddings and each layer.

    A word of several subwords has the mean of their vectors; of several occurrences in a sentence the first counts.
    others: sentences that give the baseline's words, by default `sentences`. Raises InputError if a sentence lacks the
    word.
    """
    if len(sentences) < 2:
        raise InputError(f"{len(sentences)} sentence; expected two or more to compare the word in")
    subwords = model.words.subwords(word)
    rows = [model.encode(text).ids for text in sentences]
    spans = [model.words.require(text, row, word, config.beginning) for text, row in zip(sentences, rows, strict=True)]
    vectors = np.concatenate(_vectors(model, rows, [[span] for span in spans]), 1).swapaxes(0, 1)  # (S, L + 2, D)
    similarity = cosine(vectors[:, None], vectors[None]).transpose(2, 0, 1)  # (L + 2, S, S)
    baseline, pairs = _baseline(model, list(others)[:MOST] or sentences, config)
    return {
        "probe": "word",
        "model": str(model.folder),
        "word": word,
        "pieces": [model.tokenizer.vocab[token] for token in subwords[0]],
        "sentences": list(sentences),
        "settings": vars(config),
        "layers": ["word piece", *model.layer_names],
        "similarity": similarity.astype(float).round(6).tolist(),
        "baseline": baseline,
        "baseline_pairs": pairs,
        "matrix_layer": model.layer(config.layer),
        "repeated": [len(model.words.find(row, subwords, config.beginning)) for row in rows],
        "machine": facts(),
    }


def _vectors(model: ProbedModel, rows: Sequence[Sequence[int]], spans: Sequence[Sequence[Span]]) -> list[Floats]:
    """(L + 2, W, D) of each row that has words: their static vectors, their embeddings, their vectors of each layer."""
    vectors = []
    for row, states, words in zip(rows, model.states(rows), spans, strict=True):
        if words:
            inner = list(torch.from_numpy(states).to(model.device))
            with torch.no_grad():
                vectors.append(word_vectors(model.encoder, row, inner, words).float().cpu().numpy())
    return vectors


def _baseline(model: ProbedModel, sentences: Sequence[str], config: WordConfig) -> tuple[list[float], int]:
    """The mean cosine of pairs of different words in different sentences, one number per layer; the number of pairs."""
    rows = [model.encode(text, max_length=model.positions).ids for text in sentences]
    spans = [model.words.words(row) for row in rows]
    vectors = _vectors(model, rows, spans)
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
    """Indices of pairs of different words in different sentences: all pairs, or `config.pairs` drawn at random."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    kind, W = np.array([number[name] for name in names]), len(names)
    if 4 * config.pairs >= W * (W - 1) // 2:
        one, two = np.triu_indices(W, 1)
    else:
        one, two = np.random.default_rng(config.seed).integers(W, size=(2, 4 * config.pairs))
    good = (kind[one] != kind[two]) & (owner[one] != owner[two])
    one, two = one[good], two[good]
    if len(one) > config.pairs:
        sample = np.random.default_rng((config.seed, 1)).choice(len(one), config.pairs, replace=False)
        one, two = one[sample], two[sample]
    return one, two


# ---- tables and pictures


def sheets(results: dict[str, Any]) -> list[ResultTable]:
    """A table of all layers; for more than two sentences also the matrix of one layer."""
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
        "the same layer; the rest is due to the word (Ethayarajh 2019).",
    ]
    if len(results["pieces"]) > 1:
        notes.append(f"{word!r} has the subwords {' '.join(results['pieces'])}; its vector is their mean.")
    if max(results["repeated"]) > 1:
        notes.append(f"In a sentence that has {word!r} several times the first one counts.")
    header = ("layer", what, "random words", "difference")
    layers = ResultTable(f"{word!r} in {len(sentences)} sentences", header, rows, tuple(notes))
    return [layers] if len(sentences) == 2 else [layers, _matrix(results)]


def pair_means(results: dict[str, Any]) -> list[float]:
    """The mean over all pairs of sentences, one number per layer."""
    upper = np.triu_indices(len(results["sentences"]), 1)
    return [float(np.array(layer)[upper].mean()) for layer in results["similarity"]]


def _matrix(results: dict[str, Any]) -> ResultTable:
    layer = results["matrix_layer"]
    values = results["similarity"][layer + 1]
    numbers = [str(i + 1) for i in range(len(values))]
    rows = [(number, *(f"{value:.3f}" for value in row)) for number, row in zip(numbers, values, strict=True)]
    notes = tuple(f"{number} {text}" for number, text in zip(numbers, results["sentences"], strict=True))
    name = f"layer {layer}" if layer else "the embeddings"
    return ResultTable(
        f"cosine at {name}; random words: {results['baseline'][layer + 1]:.3f}", ("", *numbers), rows, notes
    )


def plot(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw the means over the layers. Returns the files."""
    from .pictures import lines  # imports matplotlib

    names = ["static", "emb.", *results["layers"][2:]]
    curves = {f"{results['word']!r} in {len(results['sentences'])} sentences": pair_means(results)}
    return lines(names, curves, {"random pairs of words": results["baseline"]}, "cosine", out)
