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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint.folder import check_size, read_config
from ..checkpoint.locate import ModelLike, find_model
from ..checkpoint.pooling import Pooling, read_pooling, similarity_note
from ..checkpoint.start import network_of
from ..tasks.base import PreparedRows
from ..tasks.choice import ChoiceRows, Chosen
from ..tasks.classification import ClassRows
from ..tasks.rows import check_integer, in_chunks, text_pairs_of, texts_of
from ..tasks.span import SpanRows
from ..tasks.tagging import TagRows, Unit
from .engines import Precision
from .likelihood import Method, log_likelihoods
from .model import LoadedModel
from .pretraining_heads import MaskFiller, NextSentence
from .steps import Embedder, HeadSteps, Steps

P = TypeVar("P", bound=PreparedRows)
R = TypeVar("R")

Texts = str | Sequence[str]  # one text, or several
CHARACTERS = 4_000_000  # characters of a chunk: memory stays bounded whatever the length of the texts


class Predictor:
    """A model folder, or one of sentence-transformers, ready for raw text.

    `fill_mask` predicts masked tokens, `next_sentence` whether one text follows another, and `embed` gives a vector for
    each text. What fine-tuning added decides on the others: `classify` (labels and numbers), `tag` (entities), `answer`
    (questions), `choose` (multiple choice). `kind` names the task's kind. `stream` takes any
    iterable and keeps memory bounded.

        Predictor("runs/sst2").classify(["a fine film", "dull"])
    """

    def __init__(
        self,
        folder: ModelLike,
        max_length: int | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ):
        """folder: model folder, run folder, exported folder, or a loaded model (a LoadedModel keeps its settings).

        max_length: tokens an input may have; by default the length of fine-tuning, else the model's positions.

        device: by default the GPU if there is one. precision: number type of weights and products; auto is bfloat16
        where the processor multiplies it faster, else float32. Raises InputError if the folder (or run folder) is
        incomplete or damaged, or max_length exceeds its positions.
        """
        place, self.pooling = read_pooling(find_model(folder))
        if isinstance(folder, LoadedModel):
            self.loaded = folder
        else:
            if max_length is None and self.pooling and self.pooling.max_length:
                max_length = min(self.pooling.max_length, read_config(place)[0].max_length)
            self.loaded = LoadedModel.load(place, max_length, device, precision, network_of(folder))
        self.folder, self.model, self.tokenizer = self.loaded.folder, self.loaded.network, self.loaded.tokenizer
        self.max_length = self.loaded.limits.max_seq_length
        self.kind = self.loaded.kind  # of the task it was fine-tuned for; "": only pre-trained
        self.truncated = {"examples": 0, "tokens": 0}  # inputs cut since this predictor was made
        notes = check_size(self.tokenizer, self.model.config, str(self.folder)), similarity_note(find_model(folder))
        self.note = "\n".join(filter(None, notes))  # a message for the user, or ""

    def __repr__(self) -> str:
        kind, engine = self.kind or "pre-trained", self.loaded.engine
        computing = f"precision={engine.precision!r}, engine={engine.name!r}"
        return f"Predictor({str(self.folder)!r}, kind={kind!r}, max_length={self.max_length}, {computing})"

    # ---- masks

    @functools.cached_property
    def mask_filler(self) -> MaskFiller:
        """The steps of `fill_mask`. Raises InputError if the folder cannot fill masks."""
        return MaskFiller(self.loaded)

    def fill_mask(self, text: Texts, top_k: int = 5, targets: Sequence[str] = ()) -> list[Any]:
        """The `top_k` likeliest tokens for every literal [MASK] (or <mask>) of a text, a `Candidate` each, best first.

        There is one list per mask; a list of texts gives a list of these. targets: choose only from these words, each
        one token. Raises InputError if the folder has no masked-LM head, a text has no [MASK] or loses one by being
        cut, a target is not one token, or top_k is below 1.
        """
        check_integer(top_k, "top_k", 1)
        filler, single = self.mask_filler, isinstance(text, str)
        targets = list(texts_of(targets, "targets"))
        scored = self.scored(filler, texts_of([text] if single else text))
        results = (candidates for prepared, scores in scored for candidates in prepared.decode(scores, top_k, targets))
        return next(results) if single else list(results)

    def score(self, texts: Texts, method: Method = "word-l2r") -> Any:
        """The log-likelihood of a text in nats, of a masked LM its pseudo-log-likelihood; lists give lists.

        Higher is likelier. Sums over tokens, so compare texts of similar length under one model. method: word-l2r masks
        the later tokens of a word with each token; plain masks one token at a time (likelihood.py). Raises InputError
        if the folder has no masked-LM head, or a text has no token or more than the model reads.
        """
        single = isinstance(texts, str)
        values = log_likelihoods(self.loaded, list(texts_of([texts] if single else texts)), method).tolist()
        return values[0] if single else values

    # ---- pairs of sentences

    @functools.cached_property
    def next_sentence_steps(self) -> NextSentence:
        """The steps of `next_sentence`. Raises InputError if the folder has no next-sentence head."""
        return NextSentence(self.loaded)

    def next_sentence(self, a: Texts, b: Texts) -> Any:
        """The probability that text B follows text A, by the next-sentence head: a `Following`; lists give lists.

        Pairs that are too long are cut. Raises InputError if the folder has no next-sentence head (fine-tuned folders
        have none), a text has no token, or there are not as many of both.
        """
        single = isinstance(a, str)
        rows = [(a, b)] if single else text_pairs_of(a, b, ("a", "b"))
        return _one_or_all(self.stream(self.next_sentence_steps, rows), single)

    # ---- labels

    @functools.cached_property
    def classifier(self) -> HeadSteps[ClassRows]:
        """The steps of `classify`. Raises InputError if the folder has no classifier."""
        return HeadSteps(self.loaded, "single")

    def classify(self, texts: Texts, pairs: Texts | None = None, all_scores: bool = False, raw: bool = False) -> Any:
        """The label of a text, or of a pair of texts, as `Classified`; lists give lists.

        A single text that is too long is read in overlapping windows, whose probabilities are averaged. all_scores: add
        the scores of all labels. raw: scores before softmax or sigmoid instead of probabilities. Raises InputError if
        the folder has no classifier, if it was fine-tuned on pairs and gets single texts or the other way round, or if
        `pairs` and `texts` differ in length.
        """
        single = isinstance(texts, str)
        rows = [(texts, pairs)] if single else text_pairs_of(texts, pairs, ("texts", "pairs"))
        results = list(self.stream(self.classifier, rows, raw))
        if not all_scores:
            for result in results:
                del result["scores"]
        return results[0] if single else results

    # ---- tags

    @functools.cached_property
    def tagger(self) -> HeadSteps[TagRows]:
        """The steps of `tag`. Raises InputError if the folder has no tagger."""
        return HeadSteps(self.loaded, "tagging")

    def tag(self, texts: Texts) -> Any:
        """The entities of a text of any length, a list of `Entity` in order; lists give lists.

        Raises InputError if the folder has no tagger.
        """
        single = isinstance(texts, str)
        return _one_or_all(self.stream(self.tagger, [texts] if single else texts), single)

    def tag_words(self, texts: Iterable[str]) -> Iterator[list[Unit]]:
        """Every word (or character) of each text with its tag and the probabilities of all tags, in constant memory."""
        for prepared, scores in self.scored(self.tagger, texts_of(texts)):
            yield from prepared.units(scores)

    # ---- answers

    @functools.cached_property
    def answerer(self) -> HeadSteps[SpanRows]:
        """The steps of `answer`. Raises InputError if the folder has no span head."""
        return HeadSteps(self.loaded, "span")

    def answer(self, questions: Texts, contexts: Texts) -> Any:
        """The span of a context of any length that answers a question, as `Answered`; lists give lists.

        A folder that was fine-tuned with unanswerable questions may give no answer, by its own threshold.
        Raises InputError if the folder has no span head, or there are not as many contexts as questions.
        """
        single = isinstance(questions, str)
        rows = [(questions, contexts)] if single else text_pairs_of(questions, contexts, ("questions", "contexts"))
        return _one_or_all((best[0] for best in self.stream(self.answerer, rows)), single)

    # ---- choices

    @functools.cached_property
    def chooser(self) -> HeadSteps[ChoiceRows]:
        """The steps of `choose`. Raises InputError if the folder has no choice head."""
        return HeadSteps(self.loaded, "choice")

    def choose(self, text: str, choices: Sequence[str]) -> Chosen:
        """Which of the choices fits the text. Raises InputError if the folder has no choice head."""
        chosen: Chosen = next(self.stream(self.chooser, [(text, choices)]))
        return chosen

    # ---- vectors

    def embedder(self, pooling: str | None = None, normalize: bool | None = None) -> Embedder:
        """The steps of `embed`. Raises InputError if the pooling is unknown."""
        how = self.pooling or Pooling()
        how = replace(how, mode=pooling or how.mode, normalize=how.normalize if normalize is None else normalize)
        return Embedder(self.loaded, how)

    def embed(self, texts: Texts, pooling: str | None = None, normalize: bool | None = None) -> NDArray[np.float32]:
        """(N, D) vectors of texts, pooled from those of their tokens in the last layer; (D,) for a single text.

        pooling: mean, cls or max. normalize: scale every vector to length 1. By
        default both are what a sentence-transformers folder says, else the mean, not normalised.
        """
        embedder, single = self.embedder(pooling, normalize), isinstance(texts, str)
        scored = self.scored(embedder, texts_of([texts] if single else texts))
        parts = [prepared.decode(scores) for prepared, scores in scored]
        whole = np.concatenate([np.empty((0, embedder.width), np.float32), *parts])
        return whole[0] if single else whole

    # ---- any number of rows

    def stream(self, steps: Steps[Any], rows: Iterable[Any], *options: Any) -> Iterator[Any]:
        """The results of any number of rows, in constant memory, in their order.

        steps: `classifier`, `tagger`, `answerer`, `chooser` or `next_sentence_steps`, whose `checked` describes a row.
        Results are those of the list methods; classifiers give the scores of all labels too, `answerer` a list of the
        best answers.
        """
        for prepared, scores in self.scored(steps, steps.checked(rows)):
            yield from prepared.decode(scores, self.loaded.settings, *options)

    def scored(self, steps: Steps[P], rows: Iterable[Any]) -> Iterator[tuple[P, Tensor]]:
        """Chunks of checked rows with their scores, ready to be decoded; adds the lost tokens to `truncated`."""
        for chunk in in_chunks(rows, steps.chunk, CHARACTERS):
            prepared = steps.prepare(chunk)
            self.truncated["examples"] += int((prepared.cut > 0).sum())
            self.truncated["tokens"] += int(prepared.cut.sum())
            yield prepared, steps.score([prepared])[0]


def _one_or_all(results: Iterator[R], single: bool) -> R | list[R]:
    return next(results) if single else list(results)
