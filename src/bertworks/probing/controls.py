"""Control tasks of the layer probes: labels that no layer can know, because they were drawn at random.

A probe that learns them has memorised words; what it reaches beyond them on the true labels, its selectivity, is what
the vectors hold (Hewitt and Liang 2019).

    tags     a label drawn for each word type, by the shares of the true labels, whatever the context: theirs
    texts    a random lexicon: a number for each type of piece and label, and a text has the label whose numbers, added
             over its pieces, are largest. A label drawn for each text would say nothing: nobody can know it of another
             text. The lexicon can be learned as far as the vectors keep which words a text has, and no further.

Shapes: N items, K labels.
"""

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def by_type(types: Sequence[Hashable], labels: Numbers, classes: int, seed: int) -> dict[Hashable, int]:
    """A label for each type, drawn by the shares of `labels`; a type's draw depends on nothing but it and the seed."""
    edges = np.cumsum(np.bincount(labels, minlength=classes)) / len(labels)
    return {kind: int(np.searchsorted(edges, _uniform(kind, seed), "right").clip(0, classes - 1)) for kind in {*types}}


def by_lexicon(texts: Sequence[Sequence[int]], pieces: int, shares: NDArray[np.float64], seed: int) -> Numbers:
    """(N,) the label of each text by a random lexicon over `pieces` types, in about the given shares."""
    numbers = np.random.default_rng((seed, 7)).standard_normal((pieces, len(shares)))
    scores = np.stack([numbers[list(text)].sum(0) / np.sqrt(max(1, len(text))) for text in texts])  # (N, K)
    offsets, wanted = np.zeros(len(shares)), np.maximum(shares, 1 / len(texts))
    for _ in range(200):  # until the labels occur as often as the true ones
        found = np.bincount((scores + offsets).argmax(1), minlength=len(shares)) / len(texts)
        offsets += 0.1 * (np.log(wanted) - np.log(np.maximum(found, 1 / len(texts))))
    labels: Numbers = (scores + offsets).argmax(1)
    return labels


def _uniform(kind: Hashable, seed: int) -> float:
    digest = hashlib.blake2b(f"{seed}:{kind}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
