"""Raw text in, predictions out: `Predictor(folder)` is what the command line, servers and benchmarks all use.

Results are plain dictionaries, ready for JSON. Inputs are batched by length and given back in the caller's order.
Offsets count characters of the caller's own string. What is longer than the folder's limit is read through windows; of
pairs and choices, which are not, `cut` in a result and `truncated` on the predictor say what was lost.

Shapes: N texts, L positions, M masks, D width, V vocabulary, K labels, C choices.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray

from ..checkpoint.folder import check_size, find_model, read_config
from ..checkpoint.pooling import Pooling, read_pooling
from ..files import InputError
from ..model.prepare import for_inference
from ..tasks.base import Example, KindName, Prepared, Task
from ..tasks.choice import Choice, Chosen
from ..tasks.classification import Classified
from ..tasks.kinds import KINDS
from ..tasks.questions import Question
from ..tasks.rows import check_count, pairs_of, text_of, text_pairs_of, texts_of
from ..tasks.span import Answered
from ..tasks.tagging import Entity, from_texts
from ..tokenizer import normalize
from .model import BATCH, LoadedModel
from .predictions import Candidate

T = TypeVar("T")

CHUNK = 1024  # texts that are put in order of length together
CHARACTERS = 4_000_000  # of a chunk, so that memory stays bounded whatever the length of texts


class Predictor:
    """A model folder, or one of sentence-transformers, ready to use, in float32; on a GPU if there is one and `device`
    does not say otherwise."""

    def __init__(self, folder: Path | str, max_length: int | None = None, device: str | None = None):
        """`max_length`: tokens an input may have; left out, what the folder was fine-tuned with, or its positions.

        Raises InputError if the folder (or run folder) is incomplete or damaged, or max_length exceeds its positions.
        """
        folder, self.pooling = read_pooling(find_model(folder))
        if max_length is None and self.pooling and self.pooling.max_length:
            max_length = min(self.pooling.max_length, read_config(folder)[0].max_length)
        self.loaded = LoadedModel.load(folder, max_length, device)
        self.folder, self.tokenizer = self.loaded.folder, self.loaded.tokenizer
        self.model, self.device = for_inference(self.loaded.model), self.loaded.device
        self.max_length = self.loaded.limits.max_seq_length
        self.kind = str(self.loaded.settings.get("kind", ""))  # of its task; "": only pre-trained
        self.truncated = {"examples": 0, "tokens": 0}  # inputs that were cut since this predictor was made
        self.note = check_size(self.tokenizer, self.model.config, str(self.folder))  # "", or what a user should know

    # ---- masks

    @overload
    def fill_mask(self, text: str, top_k: int = 5) -> list[list[Candidate]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill_mask(self, text: Sequence[str], top_k: int = 5) -> list[list[list[Candidate]]]: ...
    def fill_mask(self, text: str | Sequence[str], top_k: int = 5) -> list[Any]:
        """The `top_k` likeliest pieces for every literal [MASK] (or <mask>) of a text: one list a mask, best first.

        A list of texts gives a list of these. Each mask is judged with all others still masked, as in pre-training.
        Raises InputError if the folder has no masked-LM head, a text has no [MASK] or loses one by being cut, or top_k
        is below 1.
        """
        check_count(top_k, "top_k")
        if "mlm" not in self.model.heads:
            raise InputError(
                f"{self.folder} has no masked-LM head, so it cannot fill masks; pre-trained folders have one"
            )
        if self.model.config.direction != "both":
            raise InputError(
                f"{self.folder} is a language model that sees the {self.model.config.direction} side alone; it "
                "predicts neighbours and fills no masks"
            )
        if isinstance(text, str):
            return self._fill(text_of(text, "text"), top_k)
        return [self._fill(one, top_k) for one in texts_of(text)]

    @torch.no_grad()
    def _fill(self, text: str, top_k: int) -> list[list[Candidate]]:
        encoding = self.tokenizer.encode(normalize("NFC", text), max_length=self.max_length, specials=True)
        places = [i for i, number in enumerate(encoding.ids) if number == self.tokenizer.mask_id]
        mask = self.tokenizer.roles["mask"]
        if mask not in text:
            raise InputError(f"no {mask} in {text[:80]!r}; write it, just so, where a word is to be guessed")
        if len(places) != text.count(mask):
            raise InputError(
                f"a text of {len(encoding.ids) + encoding.n_cut} tokens loses a {mask} when cut to {self.max_length}"
            )
        self._note(int(encoding.n_cut > 0), encoding.n_cut)
        ids = torch.tensor([encoding.ids], device=self.device)
        hidden = self.model.encoder(ids, hidden_states=False).packed[places]  # (M, D)
        tokens = self.tokenizer.vocab_size  # a padded table has more rows, which no token has
        chances = self.loaded.check_finite(self.model.masked_lm_logits(hidden).float()).softmax(-1)  # (M, V)
        top = chances[:, :tokens].topk(min(top_k, tokens))
        pieces = top.indices.tolist()
        best = [row[0] for row in pieces]
        return [
            [
                Candidate(token=self.tokenizer.vocab[piece], score=score, text=self._filled(text, best, m, piece))
                for piece, score in zip(row, scores, strict=True)
            ]
            for m, (row, scores) in enumerate(zip(pieces, top.values.tolist(), strict=True))
        ]

    def _filled(self, text: str, best: list[int], place: int, piece: int) -> str:
        """The text with the best piece at each mask, but another at one; what continues a word is joined to it."""
        parts = text.split(self.tokenizer.roles["mask"])
        out = parts[0]
        for one, rest in zip([*best[:place], piece, *best[place + 1 :]], parts[1:], strict=True):
            out = self.tokenizer.joined(out, one) + rest
        return out

    # ---- labels

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None, all_scores: bool = False
    ) -> Classified: ...
    @overload
    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, all_scores: bool = False
    ) -> list[Classified]: ...
    def classify(self, texts: Any, pairs: Any = None, all_scores: bool = False) -> Any:
        """The label of a text, or of a pair of texts; lists give lists. Regressions and several labels: see Classified.

        A single text that is too long is judged through overlapping windows, and the probabilities are averaged.
        Raises InputError if the folder has no classifier, or `pairs` has another length than `texts`.
        """
        if isinstance(texts, str):
            return next(self.classify_stream([(texts, None if pairs is None else text_of(pairs, "pairs"))], all_scores))
        if pairs is None:
            return list(self.classify_stream(((text, None) for text in texts_of(texts)), all_scores))
        return list(self.classify_stream(text_pairs_of(texts, pairs, ("texts", "pairs")), all_scores))

    def classify_stream(self, rows: Iterable[tuple[str, str | None]], all_scores: bool = False) -> Iterator[Classified]:
        """`classify` for any number of (text, pair or None), in constant memory, in their order."""
        self.loaded.check_head("single")
        checked = (
            (text_of(text, f"rows[{i}][0]"), None if pair is None else text_of(pair, f"rows[{i}][1]"))
            for i, (text, pair) in enumerate(pairs_of(rows, "rows", "(text, pair or None)"))
        )
        for chunk in _chunks(checked):
            kind: KindName = self.kind if self.kind in ("regression", "multilabel") else "single"  # type: ignore[assignment]
            prepared = self._prepare(kind, [Example(*row) for row in chunk])
            for result in prepared.decode(self.loaded.scores(prepared.inputs), self.loaded.settings):
                if not all_scores:
                    del result["scores"]
                yield result

    # ---- tags

    @overload
    def tag(self, texts: str) -> list[Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Sequence[str]) -> list[list[Entity]]: ...
    def tag(self, texts: Any) -> Any:
        """The entities of a text of any length, in order; lists give lists.

        Raises InputError if the folder has no tagger.
        """
        if isinstance(texts, str):
            return next(self.tag_stream([texts]))
        return list(self.tag_stream(texts))

    def tag_stream(self, texts: Iterable[str]) -> Iterator[list[Entity]]:
        """`tag` for any number of texts, in constant memory, in their order."""
        self.loaded.check_head("tagging")
        characters = bool(self.loaded.settings.get("characters"))
        for chunk in _chunks(texts_of(texts)):
            prepared = self._prepare("tagging", from_texts(self.tokenizer, chunk, characters))
            yield from prepared.decode(self.loaded.scores(prepared.inputs), self.loaded.settings)

    # ---- answers

    @overload
    def answer(self, questions: str, contexts: str) -> Answered: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Answered]: ...
    def answer(self, questions: Any, contexts: Any) -> Any:
        """The stretch of a context of any length that answers a question; lists give lists.

        A folder that was fine-tuned with unanswerable questions may say that there is no answer, by its own threshold.
        Raises InputError if the folder has no span head, or there are not as many contexts as questions.
        """
        if isinstance(questions, str):
            return next(self.answer_stream([(questions, contexts)]))
        return list(self.answer_stream(text_pairs_of(questions, contexts, ("questions", "contexts"))))

    def answer_stream(self, rows: Iterable[tuple[str, str]], n_best: int = 1) -> Iterator[Any]:
        """`answer` for any number of (question, context), in constant memory, in their order.

        n_best: more than 1 gives lists of the best answers instead, best first.
        """
        self.loaded.check_head("span")
        check_count(n_best, "n_best")
        checked = (
            (text_of(question, f"rows[{i}][0]"), text_of(context, f"rows[{i}][1]"))
            for i, (question, context) in enumerate(pairs_of(rows, "rows", "(question, context)"))
        )
        for chunk in _chunks(checked):
            prepared = self._prepare("span", [Question(str(i), *row) for i, row in enumerate(chunk)])
            for best in prepared.decode(self.loaded.scores(prepared.inputs), self.loaded.settings):
                yield best[:n_best] if n_best > 1 else best[0]

    # ---- choices

    def choose(self, text: str, choices: Sequence[str]) -> Chosen:
        """Which of the choices fits the text. Raises InputError if the folder has no choice head."""
        return next(self.choose_stream([(text, choices)]))

    def choose_stream(self, rows: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Chosen]:
        """`choose` for any number of (text, choices), all of as many choices, in constant memory, in their order."""
        self.loaded.check_head("choice")
        checked = (
            (text_of(text, f"rows[{i}][0]"), list(texts_of(choices, f"rows[{i}][1]")))
            for i, (text, choices) in enumerate(pairs_of(rows, "rows", "(text, choices)"))
        )
        for chunk in _chunks(checked):
            prepared = self._prepare("choice", [Choice(text, tuple(choices)) for text, choices in chunk])
            yield from prepared.decode(self.loaded.scores(prepared.inputs), self.loaded.settings)

    # ---- vectors

    @torch.no_grad()
    def embed(
        self, texts: str | Sequence[str], pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """(N, D) vectors of texts, pooled from those of their tokens in the last layer; (D,) for a single text.

        pooling: mean, cls, or another of checkpoint.pooling.MODES. normalize: scale every vector to length 1. Left out,
        both are what a sentence-transformers folder says, else the mean, as it is.
        """
        how = self.pooling or Pooling()
        how = replace(
            how,
            modes=how.modes if pooling is None else (pooling,),
            normalize=how.normalize if normalize is None else normalize,
        )
        width = self.model.encoder.width * len(how.modes)
        parts = [np.empty((0, width), np.float32)]
        for chunk in _chunks([text_of(texts, "texts")] if isinstance(texts, str) else texts_of(texts)):
            inputs = self._prepare("single", [Example(how.text(text), "") for text in chunk]).inputs
            part = np.empty((len(inputs), width), np.float32)
            for batch_rows in inputs.by_length(BATCH):
                batch = {name: value.to(self.device) for name, value in inputs.batch(batch_rows).items()}
                mask = batch["attention_mask"]
                states = self.model.encoder(batch["input_ids"], mask, hidden_states=False).last_hidden_state
                part[batch_rows] = self.loaded.check_finite(how.pool(states, mask)).cpu().numpy()
            parts.append(part)
        vectors = np.concatenate(parts)
        return vectors[0] if isinstance(texts, str) else vectors

    # ---- inside

    def _prepare(self, kind: KindName, rows: Sequence[Any]) -> Prepared:
        """Rows featurised, what was cut noted."""
        columns = ("text", "pair")[: 2 if kind in ("pair", "span") else 1]
        task = Task("prediction", columns, kind=kind, labels=self.loaded.labels, choices=("", ""))
        prepare = KINDS[kind].prepare_windows or KINDS[kind].prepare
        prepared = prepare(self.tokenizer, rows, task, self.loaded.limits)
        self._note(*prepared.inputs.truncation().values())
        return prepared

    def _note(self, examples: int, tokens: int) -> None:
        self.truncated["examples"] += examples
        self.truncated["tokens"] += tokens


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """CHUNK rows at a time, or fewer long ones: some CHARACTERS in all."""
    chunk: list[T] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += _characters(row)
        if len(chunk) == CHUNK or size > CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _characters(row: Any) -> int:
    if isinstance(row, str | None):
        return len(row or "")
    return sum(map(_characters, row))
