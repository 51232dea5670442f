"""Raw text in, predictions out: `Predictor(folder)` is what the command line, the server and the benchmarks use.

Results are plain dictionaries, ready for JSON. Inputs are sorted by length into batches; results keep the caller's
order. Offsets count characters of the caller's own string. Single texts, contexts and texts to tag may have any length:
the model reads long ones in overlapping windows. Pairs, choices, questions, masks and texts to embed are cut to the
folder's limit. `cut` in a result and `truncated` on the predictor count the lost tokens.

Each kind of result is made in three steps (steps.py), which a server calls itself to share a forward pass.

Shapes: N texts, D width of a vector.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint.folder import check_size, read_config
from ..checkpoint.locate import ModelLike, find_model
from ..checkpoint.pooling import Pooling, read_pooling, similarity_note
from ..checkpoint.start import network_of
from ..files import InputError
from ..tasks.base import PreparedRows
from ..tasks.choice import ChoiceRows, Chosen
from ..tasks.classification import Classified, ClassRows
from ..tasks.rows import check_count, in_chunks, pairs_of, rows_of, text_of, text_pairs_of, texts_of
from ..tasks.span import Answered, SpanRows
from ..tasks.tagging import Entity, TagRows, Unit
from .engines import Computing, EngineName, Precision
from .masks import Candidate, MaskFiller
from .model import LoadedModel
from .next_sentence import Following, NextSentence
from .steps import Embedder, HeadSteps, Steps

P = TypeVar("P", bound=PreparedRows)

ROWS = 1024  # rows of a chunk, which are sorted by length together
MASKED_ROWS = 128  # rows with masks of a chunk: each mask has a score for every token of the vocabulary
CHARACTERS = 4_000_000  # characters of a chunk: memory stays bounded whatever the length of the texts


class Predictor:
    """A model folder, or one of sentence-transformers, ready for raw text.

    `fill_mask` predicts masked tokens, `next_sentence` whether one text follows another, and `embed` gives a vector for
    each text. What fine-tuning added decides on the others: `classify` (labels and numbers), `tag` (entities), `answer`
    (questions), `choose` (multiple choice). `kind` names the task's kind. Methods with `_stream` take any iterable and
    keep memory bounded.

        Predictor("runs/sst2").classify(["a fine film", "dull"])
    """

    def __init__(
        self,
        folder: ModelLike,
        max_length: int | None = None,
        device: str | None = None,
        precision: Precision = "float32",
        engine: EngineName = "auto",
    ):
        """folder: model folder, run folder, exported folder, or a loaded model (a LoadedModel keeps its settings).

        max_length: tokens an input may have; by default the length of fine-tuning, else the model's positions.

        device: by default the GPU if there is one. precision: number type of weights and products; auto is bfloat16
        where the processor multiplies it faster, else float32. engine: packed, or compiled for this processor, for
        which the first batch waits half a minute or more (engines.py). Raises InputError if the folder (or run folder)
        is incomplete or damaged, or max_length exceeds its positions.
        """
        place, self.pooling = read_pooling(find_model(folder))
        if isinstance(folder, LoadedModel):
            self.loaded = folder
        else:
            if max_length is None and self.pooling and self.pooling.max_length:
                max_length = min(self.pooling.max_length, read_config(place)[0].max_length)
            computing, network = Computing(precision, engine), network_of(folder)
            self.loaded = LoadedModel.load(place, max_length, device, computing, network)
        self.folder, self.model, self.tokenizer = self.loaded.folder, self.loaded.network, self.loaded.tokenizer
        self.max_length = self.loaded.limits.max_seq_length
        self.kind = self.loaded.kind  # of the task it was fine-tuned for; "": only pre-trained
        self.truncated = {"examples": 0, "tokens": 0}  # inputs cut since this predictor was made
        size = check_size(self.tokenizer, self.model.config, str(self.folder))
        notes = [self.loaded.note, size, similarity_note(find_model(folder))]
        self.note = "\n".join(filter(None, notes))  # "", or what the user should know

    def __repr__(self) -> str:
        kind, engine = self.kind or "pre-trained", self.loaded.engine
        computing = f"precision={engine.precision!r}, engine={engine.name!r}"
        return f"Predictor({str(self.folder)!r}, kind={kind!r}, max_length={self.max_length}, {computing})"

    # ---- masks

    @functools.cached_property
    def mask_filler(self) -> MaskFiller:
        """The steps of `fill_mask`. Raises InputError if the folder cannot fill masks."""
        return MaskFiller(self.loaded)

    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self, text: str, top_k: int = 5, targets: Sequence[str] = ()
    ) -> list[list[Candidate]]: ...
    @overload
    def fill_mask(
        self, text: Sequence[str], top_k: int = 5, targets: Sequence[str] = ()
    ) -> list[list[list[Candidate]]]: ...
    def fill_mask(self, text: str | Sequence[str], top_k: int = 5, targets: Sequence[str] = ()) -> list[Any]:
        """The `top_k` likeliest tokens for every literal [MASK] (or <mask>) of a text: one list a mask, best first.

        A list of texts gives a list of these. targets: choose only from these words, each one token. Raises InputError
        if the folder has no masked-LM head, a text has no [MASK] or loses one by being cut, a target is not one token,
        or top_k is below 1.
        """
        check_count(top_k, "top_k")
        filler, single = self.mask_filler, isinstance(text, str)
        targets = list(texts_of(targets, "targets"))
        results: list[list[list[Candidate]]] = []
        for prepared, scores in self.scored(filler, [text_of(text, "text")] if single else texts_of(text), MASKED_ROWS):
            results += prepared.decode(scores, top_k, targets)
        return results[0] if single else results

    # ---- pairs of sentences

    @functools.cached_property
    def next_sentence_steps(self) -> NextSentence:
        """The steps of `next_sentence`. Raises InputError if the folder has no next-sentence head."""
        return NextSentence(self.loaded)

    @overload
    def next_sentence(self, a: str, b: str) -> Following: ...  # type: ignore[overload-overlap]
    @overload
    def next_sentence(self, a: Sequence[str], b: Sequence[str]) -> list[Following]: ...
    def next_sentence(self, a: Any, b: Any) -> Any:
        """The probability that text B follows text A, by the next-sentence head; lists give lists.

        Pairs that are too long are cut. Raises InputError if the folder has no next-sentence head (fine-tuned folders
        have none), a text has no token, or there are not as many of both.
        """
        if isinstance(a, str):
            return next(self.next_sentence_stream([(a, b)]))
        return list(self.next_sentence_stream(text_pairs_of(a, b, ("a", "b"))))

    def next_sentence_stream(self, rows: Iterable[tuple[str, str]]) -> Iterator[Following]:
        """`next_sentence` for any number of (A, B), in constant memory, in their order."""
        for prepared, scores in self.scored(self.next_sentence_steps, pairs_of(rows, "(text, text)", text_of)):
            yield from prepared.decode(scores)

    # ---- labels

    @functools.cached_property
    def classifier(self) -> HeadSteps[ClassRows]:
        """The steps of `classify`. Raises InputError if the folder has no classifier."""
        return HeadSteps(self.loaded, "single")

    @overload
    def classify(  # type: ignore[overload-overlap]
        self, texts: str, pairs: str | None = None, all_scores: bool = False, raw: bool = False
    ) -> Classified: ...
    @overload
    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, all_scores: bool = False, raw: bool = False
    ) -> list[Classified]: ...
    def classify(self, texts: Any, pairs: Any = None, all_scores: bool = False, raw: bool = False) -> Any:
        """The label of a text, or of a pair of texts; lists give lists. Regressions and several labels: see Classified.

        A single text that is too long is read in overlapping windows, whose probabilities are averaged. all_scores: add
        the scores of all labels. raw: scores before softmax or sigmoid instead of probabilities. Raises InputError if
        the folder has no classifier, if it was fine-tuned on pairs and gets single texts or the other way round, or if
        `pairs` and `texts` differ in length.
        """
        if isinstance(texts, str):
            row = (texts, None if pairs is None else text_of(pairs, "pairs"))
            return next(self.classify_stream([row], all_scores, raw))
        return list(self.classify_stream(rows_of(texts, pairs), all_scores, raw))

    def classify_stream(
        self, rows: Iterable[tuple[str, str | None]], all_scores: bool = False, raw: bool = False
    ) -> Iterator[Classified]:
        """`classify` for any number of (text, pair or None), in constant memory, in their order."""
        classifier = self.classifier
        for prepared, scores in self.scored(classifier, checked_pairs(rows, self.loaded.texts_a_row)):
            for result in prepared.decode(scores, self.loaded.settings, raw):
                if not all_scores:
                    del result["scores"]
                yield result

    # ---- tags

    @functools.cached_property
    def tagger(self) -> HeadSteps[TagRows]:
        """The steps of `tag`. Raises InputError if the folder has no tagger."""
        return HeadSteps(self.loaded, "tagging")

    @overload
    def tag(self, texts: str) -> list[Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Sequence[str]) -> list[list[Entity]]: ...
    def tag(self, texts: Any) -> Any:
        """The entities of a text of any length, in order; lists give lists.

        Raises InputError if the folder has no tagger.
        """
        return next(self.tag_stream([texts])) if isinstance(texts, str) else list(self.tag_stream(texts))

    def tag_stream(self, texts: Iterable[str]) -> Iterator[list[Entity]]:
        """`tag` for any number of texts, in constant memory, in their order."""
        for prepared, scores in self.scored(self.tagger, texts_of(texts)):
            yield from prepared.decode(scores, self.loaded.settings)

    def tag_words(self, texts: Iterable[str]) -> Iterator[list[Unit]]:
        """Every word (or character) of each text with its tag and the probabilities of all tags, in constant memory."""
        for prepared, scores in self.scored(self.tagger, texts_of(texts)):
            yield from prepared.units(scores)

    # ---- answers

    @functools.cached_property
    def answerer(self) -> HeadSteps[SpanRows]:
        """The steps of `answer`. Raises InputError if the folder has no span head."""
        return HeadSteps(self.loaded, "span")

    @overload
    def answer(self, questions: str, contexts: str) -> Answered: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Answered]: ...
    def answer(self, questions: Any, contexts: Any) -> Any:
        """The span of a context of any length that answers a question; lists give lists.

        A folder that was fine-tuned with unanswerable questions may answer that there is none, by its own threshold.
        Raises InputError if the folder has no span head, or there are not as many contexts as questions.
        """
        if isinstance(questions, str):
            return next(self.answer_stream([(questions, contexts)]))
        return list(self.answer_stream(text_pairs_of(questions, contexts, ("questions", "contexts"))))

    @overload
    def answer_stream(self, rows: Iterable[tuple[str, str]], n_best: Literal[1] = 1) -> Iterator[Answered]: ...
    @overload
    def answer_stream(self, rows: Iterable[tuple[str, str]], n_best: int) -> Iterator[Any]: ...
    def answer_stream(self, rows: Iterable[tuple[str, str]], n_best: int = 1) -> Iterator[Any]:
        """`answer` for any number of (question, context), in constant memory, in their order.

        n_best: above 1 gives lists of the best answers instead, best first.
        """
        answerer = self.answerer
        check_count(n_best, "n_best")
        for prepared, scores in self.scored(answerer, pairs_of(rows, "(question, context)", text_of)):
            for best in prepared.decode(scores, self.loaded.settings):
                yield best[:n_best] if n_best > 1 else best[0]

    # ---- choices

    @functools.cached_property
    def chooser(self) -> HeadSteps[ChoiceRows]:
        """The steps of `choose`. Raises InputError if the folder has no choice head."""
        return HeadSteps(self.loaded, "choice")

    def choose(self, text: str, choices: Sequence[str]) -> Chosen:
        """Which of the choices fits the text. Raises InputError if the folder has no choice head."""
        return next(self.choose_stream([(text, choices)]))

    def choose_stream(self, rows: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Chosen]:
        """`choose` for any number of (text, choices), all of as many choices, in constant memory, in their order."""
        chooser = self.chooser
        checked = pairs_of(rows, "(text, choices)", lambda choices, at: list(texts_of(choices, at)))
        for prepared, scores in self.scored(chooser, checked):
            yield from prepared.decode(scores, self.loaded.settings)

    # ---- vectors

    def embedder(self, pooling: str | None = None, normalize: bool | None = None) -> Embedder:
        """The steps of `embed`. Raises InputError if the pooling is unknown."""
        how = self.pooling or Pooling()
        modes = how.modes if pooling is None else (pooling,)
        how = replace(how, modes=modes, normalize=how.normalize if normalize is None else normalize)
        return Embedder(self.loaded, how)

    def embed(
        self, texts: str | Sequence[str], pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """(N, D) vectors of texts, pooled from those of their tokens in the last layer; (D,) for a single text.

        pooling: mean, cls, or another of checkpoint.pooling.MODES. normalize: scale every vector to length 1. By
        default both are what a sentence-transformers folder says, else the mean, not normalised.
        """
        embedder, single = self.embedder(pooling, normalize), isinstance(texts, str)
        vectors = [np.empty((0, embedder.width), np.float32)]
        for prepared, scores in self.scored(embedder, [text_of(texts, "texts")] if single else texts_of(texts)):
            vectors.append(prepared.decode(scores))
        whole = np.concatenate(vectors)
        return whole[0] if single else whole

    # ---- the steps of a stream

    def scored(self, steps: Steps[P], rows: Iterable[Any], most: int = ROWS) -> Iterator[tuple[P, Tensor]]:
        """Chunks of rows with their scores, ready to be decoded; adds the lost tokens to `truncated`."""
        for chunk in in_chunks(rows, most, CHARACTERS):
            prepared = steps.prepare(chunk)
            self.truncated["examples"] += int((prepared.cut > 0).sum())
            self.truncated["tokens"] += int(prepared.cut.sum())
            yield prepared, steps.score([prepared])[0]


def checked_pairs(rows: Iterable[Any], count: int) -> Iterator[tuple[str, str | None]]:
    """The rows of a classifier, (text, pair or None) each, as they are.

    count: texts of a row that the model was fine-tuned on, 1 or 2; 0: not known. Raises InputError for other rows.
    """

    def second(pair: Any, where: str) -> str | None:
        if pair is None and count == 2:
            raise InputError(f"{where} is None; the model was fine-tuned on pairs: give `pairs` too, a text for each")
        if pair is not None and count == 1:
            raise InputError(f"{where} is a second text; the model was fine-tuned on single texts: leave `pairs` out")
        return None if pair is None else text_of(pair, where)

    return pairs_of(rows, "(text, pair or None)", second)
