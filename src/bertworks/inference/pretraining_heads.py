"""The steps of the heads of pre-training: the likeliest tokens at every [MASK] of a text, and whether B follows A.

Each mask is predicted with all others still masked, as in pre-training (paper, section 3.1). The next-sentence head was
trained on pairs of segments: half of the time B was the text after A (label 0), half of the time a random text (label
1). Both have the three steps of steps.py.

Shapes: N pairs, M masks of all texts, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from ..files import InputError, shorten
from ..tasks.inputs import Inputs
from ..tasks.rows import check_integer, pairs_of, text_of
from ..tasks.sequences import Integers, cut_pairs, frame
from ..tokenizer import Tokenizer, normalize
from .model import LoadedModel
from .steps import Steps, TextRows

MASK_COST = 16  # tokens that take about as long as the scores of one mask
FOLLOWS = 0  # the label of "B follows A"


# ---- masks


class Candidate(TypedDict):
    """A token for a mask."""

    id: int
    token: str
    score: float  # its probability among all tokens, 0 to 1
    text: str  # the caller's text with this token, and with the best one at every other mask


class MaskFiller(Steps["MaskRows"]):
    """Scores of all tokens at each mask of each text."""

    chunk = 128  # rows; each mask has a score for every token of the vocabulary

    def __init__(self, loaded: LoadedModel):
        """Raises InputError if the folder has no masked-LM head, or its encoder attends in one direction only."""
        super().__init__(loaded)
        loaded.check_language_model()
        if (direction := loaded.model.config.direction) != "both":
            what = f"is a language model with attention to the {direction} only, so it cannot fill masks"
            raise InputError(f"{loaded.folder} {what}; use a masked language model")

    def prepare(self, rows: Sequence[str]) -> "MaskRows":
        """Texts with a literal [MASK] each. Raises InputError if one has no mask, or loses one by being cut."""
        tokenizer, limit = self.loaded.tokenizer, self.loaded.limits.max_seq_length
        mask = tokenizer.roles["mask"]
        encodings = tokenizer.encode_batch([normalize("NFC", text) for text in rows], None, limit, specials=True)
        counts = [encoding.ids.count(tokenizer.mask_id) for encoding in encodings]
        for text, encoding, count in zip(rows, encodings, counts, strict=True):
            if mask not in text:
                raise InputError(f"no {mask} in {text[:80]!r}; write it, exactly so, at each word to predict")
            if count != text.count(mask):
                tokens = len(encoding.ids) + encoding.n_cut
                raise InputError(f"a text of {tokens} tokens loses a {mask} when cut to {limit}; shorten it")
        cut = np.array([encoding.n_cut for encoding in encodings], np.int64)
        inputs = Inputs.from_ids([encoding.ids for encoding in encodings], tokenizer, limit, cut)
        return MaskRows(inputs, rows, counts, tokenizer)

    def token_costs(self, inputs: Inputs) -> Integers:
        """A mask counts as many tokens more: it has a score for every token of the vocabulary."""
        masks = np.add.reduceat((inputs.ids == self.loaded.tokenizer.mask_id).astype(np.int64), inputs.edges[:-1])
        costs: Integers = super().token_costs(inputs) + MASK_COST * masks
        return costs

    def count(self, inputs: Inputs) -> int:
        return int((inputs.ids == self.loaded.tokenizer.mask_id).sum())

    def forward(self, inputs: Inputs) -> Tensor:
        """(M, V) scores of all tokens at each mask, in the order of the masks."""
        masked = inputs.ids == self.loaded.tokenizer.mask_id  # (T,)
        number = np.cumsum(masked) - 1  # of the mask at each token
        scores = torch.empty(self.count(inputs), self.loaded.model.config.vocab_size)
        for tokens, logits in self.loaded.token_scores(inputs, masked):
            scores[torch.from_numpy(number[tokens])] = logits.cpu()
        return scores


@dataclass(frozen=True)
class MaskRows(TextRows):
    """Texts with masks, ready for a model."""

    texts: Sequence[str]
    counts: list[int]  # (N,) masks of each text
    tokenizer: Tokenizer

    def decode(self, scores: Tensor, top_k: int = 5, targets: Sequence[str] = ()) -> list[list[list[Candidate]]]:
        """The `top_k` likeliest tokens, best first, for each mask of each text, from (M, V) scores.

        targets: words to choose from, each one token; () chooses from the whole vocabulary. Raises InputError if top_k
        is below 1, or a target is not one token.
        """
        check_integer(top_k, "top_k", 1)
        # a padded embedding table has more rows than the tokenizer has tokens
        allowed = torch.tensor(self._ids(targets) or range(self.tokenizer.vocab_size))
        best = allowed[scores[:, allowed].topk(min(top_k, len(allowed))).indices]  # probabilities may be rounded to 0
        ids, values = best.tolist(), scores.softmax(-1).gather(1, best).tolist()
        results, first = [], 0
        for text, count in zip(self.texts, self.counts, strict=True):
            masks = slice(first, first + count)
            results.append(self._candidates(text, ids[masks], values[masks]))
            first += count
        return results

    def _candidates(self, text: str, ids: list[list[int]], scores: list[list[float]]) -> list[list[Candidate]]:
        vocabulary, best, results = self.tokenizer.vocab, [row[0] for row in ids], []
        for m, (row, values) in enumerate(zip(ids, scores, strict=True)):
            texts = (self._filled(text, [*best[:m], i, *best[m + 1 :]]) for i in row)
            columns = zip(row, values, texts, strict=True)
            results.append([Candidate(id=i, token=vocabulary[i], score=p, text=filled) for i, p, filled in columns])
        return results

    def _filled(self, text: str, tokens: list[int]) -> str:
        """The text with a token at each mask; a token that continues a word is joined to it."""
        out, *rest = text.split(self.tokenizer.roles["mask"])
        for token, part in zip(tokens, rest, strict=True):
            out = self.tokenizer.joined(out, token) + part
        return out

    def _ids(self, targets: Sequence[str]) -> list[int]:
        """The token of each target, which may be written as in the vocabulary, such as ##s."""
        tokenizer = self.tokenizer
        numbers = {token: i for i, token in enumerate(tokenizer.vocab)} if targets else {}
        allowed = []
        for target in targets:
            ids = tokenizer.ids_of([tokenizer.inside(normalize("NFC", target))])[0]
            if len(ids) == 1 and ids != [tokenizer.unk_id]:
                allowed += ids
            elif target in numbers:
                allowed.append(numbers[target])
            else:
                raise InputError(f"targets: {target!r} is {len(ids)} tokens or unknown; expected words of one token")
        return list(dict.fromkeys(allowed))


# ---- next sentences


class Following(TypedDict):
    """Whether B follows A."""

    follows: bool  # whether the probability is above one half
    score: float  # the probability that B follows A, 0 to 1
    tokens: int  # tokens that the model read
    cut: int  # tokens that did not fit


class NextSentence(Steps["FollowingRows"]):
    """Scores of "B follows A" and of "B is a random text" for pairs (A, B)."""

    def __init__(self, loaded: LoadedModel):
        """Raises InputError if the folder has no next-sentence head; ALBERT's sentence-order head is none."""
        super().__init__(loaded)
        if "nsp" not in loaded.model.heads:
            own = "a sentence-order head, which says less" if "sop" in loaded.model.heads else "no next-sentence head"
            what = f"{loaded.folder} has {own}, so it cannot say whether B follows A"
            raise InputError(f"{what}; use a folder pre-trained with next-sentence prediction, before fine-tuning")

    def checked(self, rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
        """The pairs, as they are. Raises InputError for any other row."""
        return pairs_of(rows, "(text, text)", text_of)

    def prepare(self, rows: Sequence[tuple[str, str]]) -> "FollowingRows":
        """Pairs; the longer text is cut from its end. Raises InputError if a text has no token."""
        tokenizer, limit = self.loaded.tokenizer, self.loaded.limits.max_seq_length
        first, second, _, total = cut_pairs(tokenizer, [a for a, _ in rows], [b for _, b in rows], limit)
        for row, part in np.argwhere(np.stack([first.length, second.length], 1) == 0).tolist():
            empty = f"text {'AB'[part]} of a pair is {shorten(rows[row][part])}, which has no token"
            raise InputError(f"{empty}; expected a sentence; leave the pair out")
        cut = total - first.length - second.length
        return FollowingRows(Inputs.unlabelled(frame(tokenizer, first, second), tokenizer, limit, cut))

    def forward(self, inputs: Inputs) -> Tensor:
        """(N, 2) scores before the softmax: B follows A, B is a random text."""
        return self.loaded.scores(inputs, head="nsp")


@dataclass(frozen=True)
class FollowingRows(TextRows):
    """Pairs, ready for a model."""

    def decode(self, scores: Tensor, *_: Any) -> list[Following]:
        """The answer for each pair, from (N, 2) scores."""
        probabilities = scores.double().softmax(-1)[:, FOLLOWS].tolist()
        counts = zip(probabilities, self.tokens.tolist(), self.cut.tolist(), strict=True)
        return [Following(follows=p > 0.5, score=p, tokens=tokens, cut=cut) for p, tokens, cut in counts]
