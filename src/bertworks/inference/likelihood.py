"""How likely a text is to a language model, and which of two sentences is likelier (minimal pairs, BLiMP).

A masked LM has no probability of a text. Its pseudo-log-likelihood (PLL; Salazar et al. 2020) is the sum of the
log-probabilities of the tokens, each masked in turn while the others are visible. The rest of a rare word gives a
masked token away, so `word-l2r` masks the later tokens of the same word too (Kauf and Ivanova 2023). A left-to-right
or right-to-left model has the log-probability itself: of each token given those that it sees.

Shapes: N texts, S sequences of one text (one per token), each of L tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from ..checkpoint.locate import ModelLike
from ..files import InputError
from ..reporting.run_files import read_json_lines
from ..tasks.rows import check_integer, in_chunks
from ..tokenizer import normalize
from .engines import Precision
from .model import LoadedModel
from .text_perplexity import Question, summed_losses

BLIMP = "blimp"  # a task that needs no fine-tuning
Method = Literal["word-l2r", "plain"]
CHUNK, CHARACTERS = 1024, 16_384  # texts, and their characters, of which all sequences are in memory together
PAIR = {"sentence_good": str, "sentence_bad": str}  # of a line of a file of minimal pairs


def log_likelihoods(loaded: LoadedModel, texts: Sequence[str], method: Method = "word-l2r") -> NDArray[np.float64]:
    """(N,) the log-likelihood of each text in nats, of a masked LM the pseudo-log-likelihood.

    Raises InputError if the model has no language-model head, a text has no token or more than fit, or the method is
    unknown.
    """
    loaded.check_language_model()
    if method not in get_args(Method):
        raise InputError(f"method = {method!r}; expected one of {', '.join(get_args(Method))}")
    sums, most = [np.empty((0, 2))], loaded.limits.max_seq_length - 2
    for chunk in in_chunks(texts, CHUNK, CHARACTERS):
        tokenized = loaded.tokenizer.ids_and_words([normalize("NFC", text) for text in chunk])
        for text, (ids, _) in zip(chunk, tokenized, strict=True):
            if not 1 <= len(ids) <= most:
                raise InputError(f"{text[:80]!r} has {len(ids)} tokens; expected 1 to {most}")
        questions = [_question(loaded, number, *one, method) for number, one in enumerate(tokenized)]
        sums.append(summed_losses(loaded, questions))
    losses: NDArray[np.float64] = np.concatenate(sums)[:, 0]
    return -losses


def _question(loaded: LoadedModel, number: int, ids: list[int], words: list[int], method: Method) -> Question:
    """What the model predicts of one text: each token, masked in a separate sequence, unless it is unidirectional.

    ids: without special tokens. words: the number of the word of each.
    """
    tokenizer, direction = loaded.tokenizer, loaded.model.config.direction
    framed, word, token = np.array([tokenizer.cls_id, *ids, tokenizer.sep_id]), np.array(words), np.arange(len(ids))
    if direction != "both":
        return Question.of_next_tokens(number, framed, direction)
    masked = np.eye(len(ids), dtype=np.bool_)
    if method == "word-l2r":
        masked = (token >= token[:, None]) & (word == word[:, None])
    read = np.tile(framed, (len(ids), 1))
    read[:, 1:-1][masked] = tokenizer.mask_id
    labels = np.full_like(read, IGNORED)
    labels[token, token + 1] = ids
    return Question(number, read, labels)


def minimal_pairs(
    model: ModelLike,
    data: Path | str,
    method: Method = "word-l2r",
    pairs_per_file: int = 0,
    precision: Precision = "float32",
) -> dict[str, Any]:
    """How often a model prefers the acceptable sentence of a pair, over the files of BLiMP (Warstadt et al. 2020).

    data: folder with files NAME.jsonl, each line with `sentence_good` and `sentence_bad`. pairs_per_file: only the
    first ones; 0: all. Returns `metrics` with `accuracy`, the mean of the files' accuracies, the number of `files` and
    of pairs (`examples`), and `by_file`. Equal likelihoods count as wrong. Raises InputError if there are no files.
    """
    loaded = LoadedModel.of(model, precision=precision)
    check_integer(pairs_per_file, "pairs_per_file", 0)
    files = sorted(Path(data).glob("*.jsonl"))
    if not files:
        raise InputError(f"{data}: no file NAME.jsonl in it; expected the folder `data` of BLiMP")
    accuracies, count = {}, 0
    for file in files:
        pairs = read_json_lines(file, PAIR)[: pairs_per_file or None]
        if not pairs:
            raise InputError(f"{file}: no pairs in this file; remove it")
        good, bad = np.split(log_likelihoods(loaded, [pair[key] for key in PAIR for pair in pairs], method), 2)
        accuracies[file.stem] = float((good > bad).mean())
        count += len(pairs)
    accuracy = float(np.mean([*accuracies.values()]))
    results = {"task": BLIMP, "metrics": {"accuracy": accuracy}, "method": method, "files": len(files)}
    return results | {"examples": count, "by_file": accuracies}
