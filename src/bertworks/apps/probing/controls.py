"""Control tasks and baselines of the layer probes: what a probe reaches without knowledge of the language.

A control task has labels drawn at random, which no layer can know. A probe that learns them has memorised words. Its
selectivity, the accuracy on the true labels minus that on the control task, is due to the vectors (Hewitt and Liang
2019).

    words    Each word form gets a random label, by the shares of the true labels, whatever its context (theirs).
    texts    A random lexicon holds a number for each token and label; a text gets the label with the largest sum over
             its tokens. A random label for each text would be unknowable for any new text. The lexicon can be learned
             as far as the vectors keep which tokens a text has, and no further.

Shapes: N items, K labels.
"""

import hashlib
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .items import Items, Numbers


def control_labels(train: Items, dev: Items, vocab_size: int, seed: int) -> tuple[Numbers, Numbers]:
    """Labels of the control task for the training and the development items."""
    K, N = len(train.names), len(train.labels)
    if train.forms is not None and dev.forms is not None:
        drawn = by_type([*train.forms, *dev.forms], train.labels, K, seed)
        one, two = (np.array([drawn[form] for form in items.forms or ()], np.int64) for items in (train, dev))
        return one, two
    edges = [(items.inputs.ids, a, b) for items in (train, dev) for a, b in pairwise(items.inputs.edges.tolist())]
    texts = [ids[a + 1 : b - 1].tolist() for ids, a, b in edges]
    labels = by_lexicon(texts, vocab_size, np.bincount(train.labels, minlength=K) / N, seed)
    return labels[:N], labels[N:]


def by_type(types: Sequence[Hashable], labels: Numbers, classes: int, seed: int) -> dict[Hashable, int]:
    """A label for each type, drawn by the shares of `labels`; it depends on the type and the seed alone."""
    edges = np.cumsum(np.bincount(labels, minlength=classes)) / len(labels)
    return {kind: int(np.searchsorted(edges, _uniform(kind, seed), "right").clip(0, classes - 1)) for kind in {*types}}


def by_lexicon(texts: Sequence[Sequence[int]], vocab_size: int, shares: NDArray[np.float64], seed: int) -> Numbers:
    """(N,) the label of each text by a random lexicon over the vocabulary, in about the given shares."""
    numbers = np.random.default_rng((seed, 7)).standard_normal((vocab_size, len(shares)))
    scores = np.stack([numbers[list(text)].sum(0) / np.sqrt(max(1, len(text))) for text in texts])  # (N, K)
    offsets, expected = np.zeros(len(shares)), np.maximum(shares, 1 / len(texts))
    for _ in range(200):  # until the labels occur as often as the true ones
        fractions = np.bincount((scores + offsets).argmax(1), minlength=len(shares)) / len(texts)
        offsets += 0.1 * (np.log(expected) - np.log(np.maximum(fractions, 1 / len(texts))))
    labels: Numbers = (scores + offsets).argmax(1)
    return labels


def _uniform(kind: Hashable, seed: int) -> float:
    digest = hashlib.blake2b(f"{seed}:{kind}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


# ---- baselines without the encoder


def majority(labels: Numbers, true: Numbers) -> float:
    """Share of `true` that is the commonest of `labels`."""
    return float((true == np.bincount(labels).argmax()).mean())


def form_majority(train: Items, dev: Items) -> float | None:
    """Accuracy of each word's commonest label in training; a new word gets the commonest of all. None for texts."""
    if train.forms is None or dev.forms is None:
        return None
    counts: dict[str, Numbers] = {}
    for form, label in zip(train.forms, train.labels.tolist(), strict=True):
        counts.setdefault(form, np.zeros(len(train.names), np.int64))[label] += 1
    commonest = int(np.bincount(train.labels).argmax())
    predicted = [int(counts[form].argmax()) if form in counts else commonest for form in dev.forms]
    return float((np.array(predicted) == dev.labels).mean())
