"""How likely a text is to a language model, and which of two sentences is likelier (minimal pairs, BLiMP).

A masked LM has no probability of a text. Its pseudo-log-likelihood (PLL; Salazar et al. 2020) is the sum of the
log-probabilities of the tokens, each masked in turn while the others are visible. The rest of a rare word gives a
masked token away, so `word-l2r` masks the later tokens of the same word too (Kauf and Ivanova 2023). A left-to-right
or right-to-left model has the log-probability itself: of each token given those that it sees.

Shapes: N texts, S sequences (one per token of all texts), T tokens of all sequences.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from ..files import InputError
from ..reporting.run_files import read_json_lines
from ..tasks.inputs import Inputs
from ..tasks.rows import check_integer, in_chunks
from ..tokenizer import normalize
from .engines import Precision
from .model import LoadedModel
from .text_perplexity import losses_at, next_token_labels

Method = Literal["word-l2r", "plain"]
CHUNK, CHARACTERS = 256, 8_192  # texts, and their characters, of which all sequences are in memory together
PAIR = {"sentence_good": str, "sentence_bad": str}  # of a line of a file of minimal pairs


def log_likelihoods(loaded: LoadedModel, texts: Sequence[str], method: Method = "word-l2r") -> NDArray[np.float64]:
    """(N,) the log-likelihood of each text in nats, of a masked LM the pseudo-log-likelihood.

    Raises InputError if the model has no language-model head, or a text has no token or more than fit.
    """
    if "mlm" not in loaded.model.heads:
        raise InputError(f"{loaded.folder} has no language-model head; expected a pre-trained folder")
    chunks = [_of_chunk(loaded, chunk, method) for chunk in in_chunks(texts, CHUNK, CHARACTERS)]
    return np.concatenate([np.empty(0), *chunks])


def _of_chunk(loaded: LoadedModel, texts: Sequence[str], method: Method) -> NDArray[np.float64]:
    tokenizer, limit = loaded.tokenizer, loaded.limits.max_seq_length
    texts = [normalize("NFC", text) for text in texts]
    encodings = tokenizer.encode_batch(texts, None, limit)
    for text, encoding in zip(texts, encodings, strict=True):
        if encoding.n_cut or len(encoding.ids) < 3:
            count = len(encoding.ids) - 2 + encoding.n_cut
            raise InputError(f"{text[:80]!r} has {count} tokens; expected 1 to {limit - 2}")
    sequences, owners = [], []
    for number, (encoding, words) in enumerate(zip(encodings, tokenizer.words_of(texts), strict=True)):
        own = [*_sequences(loaded, np.array(encoding.ids), np.array(words), method)]
        sequences += own
        owners += [number] * len(own)
    inputs = Inputs.from_ids([ids.tolist() for ids, _ in sequences], tokenizer, limit)
    losses = losses_at(loaded, inputs, np.concatenate([labels for _, labels in sequences]))
    owner_of_token = np.repeat(owners, np.diff(inputs.edges))
    sums: NDArray[np.float64] = np.bincount(owner_of_token, losses, minlength=len(texts)).astype(np.float64)
    return -sums


def _sequences(
    loaded: LoadedModel, ids: NDArray[np.int64], words: NDArray[np.int64], method: Method
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """What the model reads for one text, and what it predicts there: ids and labels.

    ids: with special tokens. words: the number of the word of each token between them.
    """
    direction = loaded.model.config.direction
    if direction != "both":
        yield ids, next_token_labels(ids, direction)
        return
    for position in range(1, len(ids) - 1):
        labels, masked = np.full_like(ids, IGNORED), ids.copy()
        labels[position] = ids[position]
        last = position + 1
        if method == "word-l2r":
            while last < len(ids) - 1 and words[last - 1] == words[position - 1]:
                last += 1
        masked[position:last] = loaded.tokenizer.mask_id
        yield masked, labels


def minimal_pairs(
    model: Path | str,
    data: Path | str,
    method: Method = "word-l2r",
    pairs_per_file: int = 0,
    precision: Precision = "float32",
) -> dict[str, Any]:
    """How often a model prefers the acceptable sentence of a pair, over the files of BLiMP (Warstadt et al. 2020).

    data: folder with files NAME.jsonl, each line with `sentence_good` and `sentence_bad`. pairs_per_file: only the
    first ones; 0: all. Returns `accuracy`, the mean of the files' accuracies, `files`, the number of `pairs`, and
    `by_file`. Equal likelihoods count as wrong. Raises InputError if there are no such files.
    """
    loaded = LoadedModel.load(model, precision=precision)
    check_integer(pairs_per_file, "pairs_per_file", 0)
    files = sorted(Path(data).glob("*.jsonl"))
    if not files:
        raise InputError(f"{data}: no file NAME.jsonl in it; expected the folder `data` of BLiMP")
    accuracies, count = {}, 0
    for file in files:
        pairs = read_json_lines(file, PAIR)[: pairs_per_file or None]
        if not pairs:
            raise InputError(f"{file}: no pairs in this file; remove it")
        good, bad = (log_likelihoods(loaded, [pair[key] for pair in pairs], method) for key in PAIR)
        accuracies[file.stem] = float((good > bad).mean())
        count += len(pairs)
    return {
        "accuracy": float(np.mean([*accuracies.values()])),
        "method": method,
        "files": len(files),
        "pairs": count,
        "by_file": accuracies,
    }
