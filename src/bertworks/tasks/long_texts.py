"""Single texts of any length for a classifier: windows over what does not fit, to be pooled afterwards.

Shapes: N texts, S windows of all texts, T tokens of all windows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from ..tokenizer import Tokenizer, normalize
from .inputs import Inputs, Rows


def windows_of(tokenizer: Tokenizer, texts: Sequence[str], max_seq_length: int) -> tuple[Inputs, Rows]:
    """Inputs of S windows, [CLS] piece of text [SEP]; (S,) the text of each, in order.

    A text that fits is one window. Windows over a longer one begin at even distances, overlap by a quarter or more of
    their length, and the last one ends with the text.
    """
    room = max_seq_length - 2
    ids: list[int] = []
    lengths, owner = [], []
    for number, text in enumerate(tokenizer.ids_of([normalize("NFC", text) for text in texts])):
        count = 1 + max(0, -(-(len(text) - room) // max(1, room * 3 // 4)))
        for start in np.linspace(0, max(0, len(text) - room), count).astype(int).tolist():
            part = text[start : start + room]
            ids += [tokenizer.cls_id, *part, tokenizer.sep_id]
            lengths.append(len(part) + 2)
            owner.append(number)
    inputs = Inputs(
        ids=np.array(ids, np.int32),
        edges=np.cumsum([0, *lengths]),
        first=np.array(lengths, np.int64),
        labels=np.full(len(lengths), IGNORED),
        cut=np.zeros(len(lengths), np.int64),
        pad_id=tokenizer.pad_id,
        limit=max_seq_length,
    )
    return inputs, np.array(owner, np.int64)


def mean_of_windows(values: NDArray[np.float32], owner: Rows) -> NDArray[np.float32]:
    """(N, K) mean over each text's windows of (S, K) values."""
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    counts = np.diff([*starts, len(owner)])
    means: NDArray[np.float32] = (np.add.reduceat(values, starts, axis=0) / counts[:, None]).astype(np.float32)
    return means
