"""How well a language model predicts any text (`bertworks evaluate --perplexity`).

A left-to-right model predicts every token from those before it: the exponential of its mean loss is the perplexity. A
masked LM attends in both directions, so it has no perplexity; its `masked_perplexity` is the exponential of the mean
loss at the fraction MASKED of the tokens, all replaced by [MASK] in one pass. It is not the pseudo-perplexity of
Salazar et al. (2020), who mask one token at a time. The masks are drawn by a fixed seed and the number of the document,
so two models of one vocabulary predict the same tokens. Neither figure can be compared across vocabularies, nor one
with the other.

A document longer than the model's input is read in windows that do not overlap; each begins without context. Special
tokens are not predicted. The interval is the bootstrap's over documents: what other documents might have given.

Shapes: W windows, T tokens of all windows, D documents.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ..batch import IGNORED
from ..data.corpus import Document, InputOptions, Reader
from ..files import InputError
from ..tasks.inputs import Inputs
from ..tokenizer import Tokenizer
from .engines import Precision
from .model import LoadedModel

MASKED = 0.15  # share of the tokens of a window that a masked LM predicts, at least one
SEED = 12345  # of the masks and of the bootstrap
SAMPLES = 2000  # of the bootstrap
CHUNK = 256  # documents in memory at a time
SCORES = 1 << 26  # in memory at a time


def perplexity(
    model: Path | str,
    inputs: Path | str | Sequence[Path | str],
    max_length: int | None = None,
    precision: Precision = "float32",
    encoding: str = "utf-8",
) -> dict[str, Any]:
    """`perplexity` of a left-to-right or right-to-left model, `masked_perplexity` of a masked LM, on files of text.

    inputs: files, folders or globs, one or several, as for `corpus build`; in plain text blank lines separate
    documents. Also returned: `interval` (95 %, None of one document), mean `loss` in nats, `documents`, `tokens`,
    `predicted` ones, `unknown` (their share of [UNK]). Raises InputError if the folder has no language-model head or
    the files have no text.
    """
    loaded = LoadedModel.load(model, max_length, precision=precision)
    if "mlm" not in loaded.model.heads:
        raise InputError(f"{loaded.folder} has no language-model head; expected a pre-trained folder")
    inputs = [inputs] if isinstance(inputs, (str, Path)) else inputs
    reader = enumerate(Reader(inputs, InputOptions(documents="blank-line", encoding=encoding)))
    tokenizer, length = loaded.tokenizer, loaded.limits.max_seq_length
    sums: list[NDArray[np.float64]] = []  # of each document: summed loss, predictions
    tokens = unknown = 0
    while documents := list(itertools.islice(reader, CHUNK)):
        windows = [
            (number, nth, ids)
            for number, document in documents
            for nth, ids in enumerate(ids_of_windows(tokenizer, document, length - 2))
        ]
        if windows:
            sums.append(_sums(loaded, windows))
            tokens += sum(len(ids) for _, _, ids in windows)
            unknown += sum(ids.count(tokenizer.unk_id) for _, _, ids in windows)
    if not sums:
        raise InputError(f"{', '.join(map(str, inputs))}: no text in it; expected at least one document with a token")
    total = np.concatenate(sums)  # (D, 2)
    loss = float(total[:, 0].sum() / total[:, 1].sum())
    return {
        "masked_perplexity" if loaded.model.config.direction == "both" else "perplexity": math.exp(loss),
        "interval": interval(total),
        "loss": loss,
        "documents": len(total),
        "tokens": tokens,
        "predicted": int(total[:, 1].sum()),
        "unknown": unknown / tokens,
        "max_seq_length": length,
    }


def ids_of_windows(tokenizer: Tokenizer, document: Document, length: int) -> list[list[int]]:
    """The tokens of a document in windows of up to `length` tokens."""
    ids = list(itertools.chain(*tokenizer.ids_of([tokenizer.inside(line) for line in document.text.split("\n")])))
    return [ids[start : start + length] for start in range(0, len(ids), length)]


def _sums(loaded: LoadedModel, windows: Sequence[tuple[int, int, list[int]]]) -> NDArray[np.float64]:
    """(D, 2) summed loss and number of predictions of each document that has a window.

    windows: number of the document, number of the window in it, tokens without special tokens.
    """
    questions = [_question(loaded, *window) for window in windows]
    inputs = Inputs.from_ids([ids for ids, _ in questions], loaded.tokenizer, loaded.limits.max_seq_length)
    labels = np.concatenate([labels for _, labels in questions])  # (T,)
    owner = np.repeat([number for number, _, _ in windows], np.diff(inputs.edges))
    _, document = np.unique(owner, return_inverse=True)
    values = (losses_at(loaded, inputs, labels), labels != IGNORED)
    return np.stack([np.bincount(document, one) for one in values], 1)


def _question(loaded: LoadedModel, document: int, nth: int, window: list[int]) -> tuple[list[int], NDArray[np.int64]]:
    """The tokens that the model reads, with special tokens, and the token to predict at each of them, or -100.

    A masked LM predicts MASKED of the tokens, drawn by the number of the document and of its window. Other models
    predict every token of the text from its neighbour in the direction of their attention.
    """
    tokenizer, direction = loaded.tokenizer, loaded.model.config.direction
    ids = np.array([tokenizer.cls_id, *window, tokenizer.sep_id])
    if direction != "both":
        return ids.tolist(), next_token_labels(ids, direction)
    labels = np.full_like(ids, IGNORED)
    draw = np.random.default_rng((SEED, document, nth))
    chosen = 1 + draw.permutation(len(window))[: max(1, round(MASKED * len(window)))]
    labels[chosen] = ids[chosen]
    ids[chosen] = tokenizer.mask_id
    return ids.tolist(), labels


def next_token_labels(ids: NDArray[np.int64], direction: str) -> NDArray[np.int64]:
    """The labels of a model that sees the tokens on its `left` or `right`: every token but the special ones at its
    neighbour on that side."""
    labels = np.full_like(ids, IGNORED)
    if direction == "left":
        labels[:-2] = ids[1:-1]
    else:
        labels[2:] = ids[1:-1]
    return labels


def losses_at(loaded: LoadedModel, inputs: Inputs, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """(T,) the loss at each token that predicts, in nats; 0 at the others."""
    losses = np.zeros(len(inputs.ids))
    batches = inputs.by_length(tokens=max(256, SCORES // loaded.model.config.vocab_size))
    for tokens, scores in loaded.token_scores(inputs, labels != IGNORED, batches):
        expected = torch.from_numpy(labels[tokens]).to(scores.device)
        losses[tokens] = F.cross_entropy(scores, expected, reduction="none").cpu().double().numpy()
    return losses


def interval(sums: NDArray[np.float64]) -> list[float] | None:
    """The 95 % interval of exp(sum of losses / predictions) over (D, 2) documents; None of a single one."""
    D = len(sums)
    if D < 2:
        return None
    rng = np.random.default_rng(SEED)
    drawn = np.stack([sums[rng.integers(D, size=D)].sum(0) for _ in range(SAMPLES)])
    low, high = np.exp(np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975]))
    return [float(low), float(high)]
