"""What a Korean word's vector holds, its noun or its particle (조사): `bertworks probe particles`.

Words of a text that are a noun with a particle behind it (책이, 책을, 집이) are found by kiwipiepy. At each layer three
mean cosines are compared: of pairs with one noun and two particles, of pairs with one particle and two nouns, and of
pairs that share neither. Above the last one, the first is what the noun accounts for and the second what the particle
does. The embeddings are the baseline: there two words share what their subwords share. Words are compared across
sentences, never within one. The words in which a subword ends where the noun does are counted too: in all others noun
and particle share a subword.

Shapes: W words, L layers, D width.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.sentences import korean_analyser, splitter_version
from ...files import InputError
from ...reporting.tables import ResultTable
from ...training.machine import facts
from .config import ParticlesConfig
from .model import Floats, ProbedModel, cosine

GROUPS = ("same noun", "same particle", "neither")
LEAST = 10  # pairs of a group; a mean of fewer says nothing


class Word(NamedTuple):
    """A noun with its particle in a sentence."""

    noun: str
    particle: str
    start: int  # characters of the sentence before the noun
    middle: int  # and before the particle
    end: int


def find_words(sentence: str) -> list[Word]:
    """The words between blanks that are one or more nouns and then one or more particles, nothing else.

    Raises InputError if kiwipiepy is not installed.
    """
    found, start = [], 0
    tokens = korean_analyser().tokenize(sentence)
    for text in sentence.split(" "):
        end = start + len(text)
        own = [token for token in tokens if start <= token.start < end]
        nouns = [token for token in own if token.tag in ("NNG", "NNP")]
        particles = own[len(nouns) :]
        whole = own[: len(nouns)] == nouns and all(token.tag.startswith("J") for token in particles)
        if nouns and particles and whole and own[0].start == start and own[-1].start + own[-1].len == end:
            middle = particles[0].start
            found.append(Word(sentence[start:middle], sentence[middle:end], start, middle, end))
        start = end + 1
    return found


def probe_particles(model: ProbedModel, sentences: Iterable[str], config: ParticlesConfig) -> dict[str, Any]:
    """Mean cosines of the three groups of pairs at every layer, and how subwords divide the words.

    Raises InputError if the sentences have too few words of a noun and a particle that occur more than once.
    """
    kept = list(itertools.islice(((text, own) for text in sentences if (own := find_words(text))), config.sentences))
    encodings = [model.encode(text, max_length=model.positions) for text, _ in kept]
    words, places, vectors, divided = list[Word](), list[int](), list[Floats](), 0
    states = model.states([encoding.ids for encoding in encodings]) if kept else ()
    for number, ((_, own), encoding, state) in enumerate(zip(kept, encodings, states, strict=True)):
        for word in own:
            tokens = [i for i, (a, b) in enumerate(encoding.offsets) if word.start <= a < b <= word.end]
            if tokens and encoding.offsets[tokens[-1]][1] == word.end:  # else it was cut
                words.append(word)
                places.append(number)
                vectors.append(state[:, tokens].mean(1))  # (L + 1, D)
                divided += any(encoding.offsets[i][0] == word.middle for i in tokens)
    pairs = _pairs(words, places, config)
    if min(map(len, pairs.values())) < LEAST:
        counts = ", ".join(f"{len(found)} with {name}" for name, found in pairs.items())
        raise InputError(f"pairs of words: {counts}; expected {LEAST} or more of each; give more Korean text")
    stacked = np.stack(vectors, 1)  # (L + 1, W, D)
    return {
        "probe": "particles",
        "model": str(model.folder),
        "settings": vars(config),
        "layers": model.layer_names,
        "cosines": {name: _means(stacked, found) for name, found in pairs.items()},
        "pairs": {name: len(found) for name, found in pairs.items()},
        "words": len(words),
        "divided": divided / len(words),
        "analyser": splitter_version("kiwi", "ko"),
        "machine": facts(),
    }


def _pairs(words: Sequence[Word], places: Sequence[int], config: ParticlesConfig) -> dict[str, NDArray[np.int64]]:
    """(P, 2) numbers of words for each group, at most config.pairs; the two are of different sentences."""
    draw = np.random.default_rng(config.seed)
    by: dict[str, dict[str, list[int]]] = {"noun": defaultdict(list), "particle": defaultdict(list)}
    for i, word in enumerate(words):
        by["noun"][word.noun].append(i)
        by["particle"][word.particle].append(i)
    found: dict[str, set[tuple[int, int]]] = {name: set() for name in GROUPS}
    for _ in range(20 * config.pairs if words else 0):
        i = int(draw.integers(len(words)))
        mates = (by["noun"][words[i].noun], by["particle"][words[i].particle], range(len(words)))
        for name, candidates in zip(GROUPS, mates, strict=True):
            j = int(candidates[int(draw.integers(len(candidates)))])
            same = (words[i].noun == words[j].noun, words[i].particle == words[j].particle)
            wanted = {"same noun": (True, False), "same particle": (False, True), "neither": (False, False)}[name]
            if same == wanted and places[i] != places[j] and len(found[name]) < config.pairs:
                found[name].add((min(i, j), max(i, j)))
    return {name: np.array(sorted(own), np.int64).reshape(-1, 2) for name, own in found.items()}


def _means(vectors: Floats, pairs: NDArray[np.int64]) -> list[float]:
    """The mean cosine of the pairs at each layer."""
    return [round(float(cosine(layer[pairs[:, 0]], layer[pairs[:, 1]]).mean()), 6) for layer in vectors]


def sheet(results: dict[str, Any]) -> ResultTable:
    """The table of layers."""
    cosines, rows = results["cosines"], []
    for i, layer in enumerate(results["layers"]):
        noun, particle, neither = (cosines[name][i] for name in GROUPS)
        margins = (f"{noun - neither:+.3f}", f"{particle - neither:+.3f}")
        rows.append((layer, f"{noun:.3f}", f"{particle:.3f}", f"{neither:.3f}", *margins))
    notes = (
        f"model: {results['model']}",
        f"mean cosines of up to {max(results['pairs'].values()):,} pairs of words, each of two sentences; noun, "
        "particle: above the pairs that share neither.",
        "The embeddings are the baseline: what the shared subwords account for.",
        f"A subword ends where the noun does in {results['divided']:.1%} of the words.",
    )
    title = f"{results['words']:,} Korean words of a noun and a particle"
    return ResultTable(title, ("layer", *GROUPS, "noun", "particle"), rows, notes)


def plot(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw the mean cosines over the layers. Returns the files."""
    from .pictures import lines  # imports matplotlib

    curves = {name: results["cosines"][name] for name in GROUPS[:2]}
    names = ["emb.", *results["layers"][1:]]
    return lines(names, curves, {GROUPS[2]: results["cosines"][GROUPS[2]]}, "mean cosine", out)
