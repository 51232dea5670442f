"""How well a language model predicts any text (`bertworks evaluate --perplexity`).

A left-to-right model predicts every token from those before it: the exponential of its mean loss is the perplexity. A
masked LM sees both sides, so it has no perplexity; its `masked_perplexity` is the exponential of the mean loss at a
share MASKED of the tokens, all replaced by [MASK] in one pass. It is not the pseudo-perplexity of Salazar et al.
(2020), who mask one token at a time. The masks are drawn by a fixed seed and the number of the document, so two models
of one vocabulary predict the same tokens. Neither figure can be compared across vocabularies, nor one with the other.

A document longer than the model's input is read in windows that do not overlap; each begins without context. Special
tokens are not predicted. The interval is the bootstrap's over documents: what other documents might have given.

Shapes: W windows, T tokens of all windows, D documents.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from ..batch import IGNORED, to_device
from ..data.corpus import Document, Reader
from ..data.parsers import FixedOptions
from ..files import InputError
from ..tasks.inputs import Inputs
from ..tokenizer import Tokenizer
from .engines import FLOAT32, Computing
from .model import LoadedModel

MASKED = 0.15  # share of the tokens of a window that a masked LM predicts, at least one
SEED = 12345  # of the masks and of the bootstrap
SAMPLES = 2000  # of the bootstrap
CHUNK = 256  # documents in memory at a time
SCORES = 1 << 26  # in memory at a time
NOTES = {
    "perplexity": "every token from those on one side of it",
    "masked_perplexity": f"{MASKED:.0%} of the tokens, all replaced by [MASK] in one pass, the same ones for every "
    "model of this vocabulary; a masked language model has no perplexity of a text",
}


def perplexity(
    model: Path | str,
    inputs: Path | str | Sequence[Path | str],
    max_length: int | None = None,
    computing: Computing = FLOAT32,
    encoding: str = "utf-8",
) -> dict[str, Any]:
    """`perplexity` of a left-to-right or right-to-left model, `masked_perplexity` of a masked LM, on files of text.

    inputs: files, folders or globs, one or several, as for `corpus build`; in plain text blank lines separate
    documents. Also returned: `interval` (95 %, None of one document), mean `loss` in nats, `documents`, `tokens`,
    `predicted` ones, `unknown` (their share of [UNK]). Raises InputError if the folder has no language-model head or
    the files have no text.
    """
    loaded = LoadedModel.load(model, max_length, computing=computing)
    if "mlm" not in loaded.model.heads:
        raise InputError(f"{loaded.folder} has no language-model head; expected a pre-trained folder")
    inputs = [inputs] if isinstance(inputs, (str, Path)) else inputs
    reader = Reader(inputs, FixedOptions(documents="blank-line", encoding=encoding))
    direction, first = loaded.model.config.direction, 0
    sums: list[NDArray[np.float64]] = []
    tokens = unknown = 0
    for chunk in _chunks(reader):
        rows, owners = windows(loaded.tokenizer, chunk, loaded.limits.max_seq_length)
        if not rows:
            continue
        tokens += sum(map(len, rows))
        unknown += sum(row.count(loaded.tokenizer.unk_id) for row in rows)
        numbers = [first + owner for owner in owners]
        framed = [[loaded.tokenizer.cls_id, *row, loaded.tokenizer.sep_id] for row in rows]
        prepared = Inputs.from_ids(framed, loaded.tokenizer, loaded.limits.max_seq_length)
        asked = _masked(prepared, numbers, loaded.tokenizer) if direction == "both" else _sided(prepared, direction)
        losses = _losses(loaded, *asked)  # (T,)
        lengths, made = np.diff(prepared.edges), np.zeros((len(chunk), 2))
        np.add.at(made, np.repeat(owners, lengths), np.stack([losses, asked[2] != IGNORED], 1))
        sums.append(made[made[:, 1] > 0])
        first += len(chunk)
    if not sums:
        raise InputError(f"{', '.join(map(str, inputs))}: no text in it; expected at least one document with a token")
    total = np.concatenate(sums)  # (D, 2): summed loss, predictions
    name = "masked_perplexity" if direction == "both" else "perplexity"
    loss = float(total[:, 0].sum() / total[:, 1].sum())
    return {
        name: math.exp(loss),
        "interval": interval(total),
        "loss": loss,
        "documents": len(total),
        "tokens": tokens,
        "predicted": int(total[:, 1].sum()),
        "unknown": unknown / tokens,
        "max_seq_length": loaded.limits.max_seq_length,
        "note": NOTES[name],
    }


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    stream = iter(documents)
    return iter(lambda: list(itertools.islice(stream, CHUNK)), [])


def windows(tokenizer: Tokenizer, documents: Sequence[Document], max_length: int) -> tuple[list[list[int]], list[int]]:
    """The tokens of each window, without special tokens, and the number of its document."""
    rows, owners, room = [], [], max_length - 2
    for number, document in enumerate(documents):
        ids = list(itertools.chain(*tokenizer.ids_of([tokenizer.inside(line) for line in document.text.split("\n")])))
        rows += [ids[start : start + room] for start in range(0, len(ids), room)]
        owners += [number] * (-(-len(ids) // room))
    return rows, owners


Asked = tuple[Inputs, NDArray[np.bool_], NDArray[np.int64]]  # inputs; (T,) which tokens predict; (T,) what, or -100


def _masked(inputs: Inputs, documents: Sequence[int], tokenizer: Tokenizer) -> Asked:
    """MASKED of the tokens of each window as [MASK], drawn by the number of the document and of its window."""
    ids, labels = inputs.ids.copy(), np.full(len(inputs.ids), IGNORED, np.int64)
    numbers: dict[int, int] = {}  # of the last window of each document
    for window, document in enumerate(documents):
        numbers[document] = nth = numbers.get(document, -1) + 1
        start, end = int(inputs.edges[window]) + 1, int(inputs.edges[window + 1]) - 1
        count = max(1, round(MASKED * (end - start)))
        chosen = start + np.random.default_rng((SEED, document, nth)).permutation(end - start)[:count]
        labels[chosen], ids[chosen] = ids[chosen], tokenizer.mask_id
    nothing = inputs.cut * 0
    changed = Inputs(ids, inputs.edges, inputs.first, inputs.labels, nothing, inputs.pad_id, inputs.limit)
    return changed, labels != IGNORED, labels


def _sided(inputs: Inputs, direction: str) -> Asked:
    """Every token of the text from its neighbour on the side that the model sees."""
    text = np.ones(len(inputs.ids), bool)
    text[inputs.edges[:-1]] = text[inputs.edges[1:] - 1] = False
    step = -1 if direction == "left" else 1
    labels = np.full(len(inputs.ids), IGNORED, np.int64)
    places = np.flatnonzero(text)
    labels[places + step] = inputs.ids[places]
    return inputs, labels != IGNORED, labels


@torch.no_grad()
def _losses(loaded: LoadedModel, inputs: Inputs, predicts: NDArray[np.bool_], labels: NDArray[np.int64]) -> Any:
    """(T,) the loss at each token that predicts, in nats; 0 at the others."""
    found = np.zeros(len(inputs.ids))
    for rows in inputs.by_length(tokens=max(256, SCORES // loaded.model.config.vocab_size)):
        batch, tokens = to_device(inputs.batch(rows), loaded.device), inputs.tokens(rows)
        here = predicts[tokens]
        cells = batch["attention_mask"].flatten().nonzero().squeeze(1)[torch.from_numpy(here).to(loaded.device)]
        scores = loaded.check_finite(loaded.engine.masked(batch, cells))
        asked = tokens[here]
        losses = F.cross_entropy(scores, torch.from_numpy(labels[asked]).to(scores.device), reduction="none")
        found[asked] = losses.cpu().double().numpy()
    return found


def interval(sums: NDArray[np.float64]) -> list[float] | None:
    """The 95 % interval of exp(sum of losses / predictions) over (D, 2) documents; None of a single one."""
    D = len(sums)
    if D < 2:
        return None
    rng = np.random.default_rng(SEED)
    drawn = np.stack([sums[rng.integers(D, size=D)].sum(0) for _ in range(SAMPLES)])
    low, high = np.exp(np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975]))
    return [float(low), float(high)]
