"""How well a language model predicts any text (`bertworks evaluate --perplexity`).

A left-to-right model predicts every token from those before it: the exponential of its mean loss is the perplexity. A
masked LM attends in both directions, so it has no perplexity; its `masked_perplexity` is the exponential of the mean
loss at the fraction MASKED of the tokens, all replaced by [MASK] in one pass. It is not the pseudo-perplexity of
Salazar et al. (2020), who mask one token at a time. The masks are drawn by a fixed seed and the number of the document,
so two models of one vocabulary predict the same tokens. Neither figure can be compared across vocabularies, nor one
with the other.

A document longer than the model's input is read in windows that do not overlap; each begins without context. Special
tokens are not predicted. The interval is the bootstrap's over documents: what other documents might have given.

Shapes: N texts, D documents, S sequences of L tokens of one text, T tokens of all sequences.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ..batch import IGNORED
from ..checkpoint.locate import ModelLike
from ..data.corpus import Document, InputOptions, Reader
from ..files import InputError
from ..tasks.inputs import Inputs
from ..tasks.sequences import Frames, Integers, edges_of
from ..tokenizer import Tokenizer
from .engines import Precision
from .model import LoadedModel

MASKED = 0.15  # share of the tokens of a window that a masked LM predicts, at least one
SEED = 12345  # of the masks and of the bootstrap
SAMPLES = 2000  # of the bootstrap
CHUNK = 256  # documents in memory at a time


class Question(NamedTuple):
    """What a model reads of one text, or of a part of it, and what it predicts there."""

    number: int  # of the text
    ids: Integers  # (S, L) with special tokens
    labels: Integers  # (S, L) the token to predict at each position, or -100

    @classmethod
    def of_next_tokens(cls, number: int, ids: Integers, direction: str) -> "Question":
        """Of a model that sees the tokens on its `left` or `right`: it predicts every token of the text, but not the
        special ones, from the neighbour on that side. ids: (L,)."""
        labels = np.full_like(ids, IGNORED)
        labels[slice(None, -2) if direction == "left" else slice(2, None)] = ids[1:-1]
        return cls(number, ids[None], labels[None])


def perplexity(
    model: ModelLike,
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
    loaded = LoadedModel.of(model, max_length, precision)
    loaded.check_language_model()
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
            sums.append(summed_losses(loaded, [_question(loaded, *window) for window in windows]))
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


def _question(loaded: LoadedModel, number: int, nth: int, window: list[int]) -> Question:
    """What is predicted of a window: its document's number, its own number in it, tokens without special tokens.

    A masked LM predicts MASKED of the tokens, drawn by the two numbers. Other models predict all.
    """
    tokenizer, direction = loaded.tokenizer, loaded.model.config.direction
    ids = np.array([tokenizer.cls_id, *window, tokenizer.sep_id])
    if direction != "both":
        return Question.of_next_tokens(number, ids, direction)
    labels = np.full_like(ids, IGNORED)
    draw = np.random.default_rng((SEED, number, nth))
    chosen = 1 + draw.permutation(len(window))[: max(1, round(MASKED * len(window)))]
    labels[chosen] = ids[chosen]
    ids[chosen] = tokenizer.mask_id
    return Question(number, ids[None], labels[None])


def summed_losses(loaded: LoadedModel, questions: Sequence[Question]) -> NDArray[np.float64]:
    """(N, 2) the summed loss, in nats, and the number of predictions of each text, in the order of their numbers."""
    lengths = np.concatenate([np.full(len(question.ids), question.ids.shape[1]) for question in questions])
    ids, labels = (np.concatenate([getattr(one, name).ravel() for one in questions]) for name in ("ids", "labels"))
    frames = Frames(ids.astype(np.int32), edges_of(lengths), lengths)
    inputs = Inputs.unlabelled(frames, loaded.tokenizer, loaded.limits.max_seq_length)
    losses, predicted = np.zeros(len(ids)), labels != IGNORED  # (T,)
    for tokens, scores in loaded.token_scores(inputs, predicted):
        expected = torch.from_numpy(labels[tokens]).to(scores.device)
        losses[tokens] = F.cross_entropy(scores, expected, reduction="none").cpu().double().numpy()
    numbers = np.repeat([one.number for one in questions], [one.ids.size for one in questions])
    _, text = np.unique(numbers, return_inverse=True)
    return np.stack([np.bincount(text, values) for values in (losses, predicted)], 1)


def interval(sums: NDArray[np.float64]) -> list[float] | None:
    """The 95 % interval of exp(sum of losses / predictions) over (D, 2) documents; None of a single one."""
    D, rng = len(sums), np.random.default_rng(SEED)
    if D < 2:
        return None
    drawn = np.stack([sums[rng.integers(D, size=D)].sum(0) for _ in range(SAMPLES)])
    low, high = np.exp(np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975]))
    return [float(low), float(high)]
