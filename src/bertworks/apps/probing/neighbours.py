"""The nearest contexts of a word in a corpus: `bertworks probe neighbours`.

Every occurrence of the word in the files is embedded in its sentence. The occurrences nearest to the word in the given
sentence are kept. Files are streamed: a batch of sentences and the occurrences so far are in memory.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...data.corpus import InputOptions, Reader
from ...data.sentences import split_sentences
from ...files import InputError
from ...tokenizer import normalize
from ...training.machine import facts
from .config import NeighbourConfig
from .model import BATCH, ProbedModel, cosine
from .words import Forms, Span

SENTENCES = 1024  # that are tokenized together


class Context(NamedTuple):
    """One occurrence of the word."""

    cosine: float
    left: str
    word: str
    right: str
    source: str  # the document: file, archive member, line

    @property
    def text(self) -> str:
        return self.left + self.word + self.right


def find_neighbours(
    model: ProbedModel, word: str, corpus: Sequence[str | Path], config: NeighbourConfig, options: InputOptions
) -> dict[str, Any]:
    """The nearest contexts, best first, equal sentences once; mean and deviation of the cosine of all occurrences.

    Raises InputError if a file cannot be read, the sentence lacks the word, or the corpus does.
    """
    text = config.sentence or word
    ids = model.encode(text).ids
    layer, span = model.layer(config.layer), model.words.require(text, ids, word, config.beginning)
    query = next(model.states([ids]))[layer, slice(*span)].mean(0)
    reader = Reader(corpus, options)
    subwords = model.words.subwords(word)
    first = model.tokenizer.readable(subwords[0][0])
    sentences = _sentences(reader, first if first.isalnum() else "", config.language)
    occurrences = itertools.islice(_occurrences(model, subwords, sentences, config.beginning), config.limit)
    contexts: list[Context] = []
    while batch := list(itertools.islice(occurrences, BATCH)):
        for (_, span, context), states in zip(batch, model.states([ids for ids, _, _ in batch]), strict=True):
            contexts.append(context._replace(cosine=float(cosine(query, states[layer, slice(*span)].mean(0)))))
    if not contexts:
        raise InputError(
            f"the word {word!r} is not in {', '.join(map(str, corpus))} ({reader.counts['documents']:,} documents); "
            "give another word, or allow longer words with --beginning"
        )
    values, times = [context.cosine for context in contexts], Counter(context.text for context in contexts)
    best: dict[str, Context] = {}
    for context in sorted(contexts, key=lambda context: -context.cosine):  # equal ones stay in their order
        best.setdefault(context.text, context)
    return {
        "probe": "neighbours",
        "model": str(model.folder),
        "word": word,
        "corpus": [str(path) for path in corpus],
        "settings": {**vars(config), "layer": layer},
        "places": len(values),
        "more": len(values) == config.limit,
        "documents": reader.counts["documents"],
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "neighbours": [
            {**context._asdict(), "cosine": round(context.cosine, 6), "times": times[context.text]}
            for context in itertools.islice(best.values(), config.top)
        ],
        "machine": facts(),
    }


# ---- finding the word


def _sentences(reader: Reader, first: str, language: str) -> Iterator[tuple[str, str]]:
    """(sentence, source of its document). ASCII paragraphs without the word's `first` subword are skipped."""
    first = first.lower()
    for document in reader:
        for paragraph in normalize("NFC", document.text).split("\n"):
            if not paragraph.isascii() or first in paragraph.lower():
                for sentence in split_sentences(paragraph, language):
                    yield sentence, document.source


def _occurrences(
    model: ProbedModel, word: Forms, sentences: Iterable[tuple[str, str]], beginning: bool
) -> Iterator[tuple[list[int], Span, Context]]:
    """Every occurrence of the word, in order: the token ids of its sentence, its position in them, its context."""
    tokenizer = model.tokenizer
    sentences = iter(sentences)
    while chunk := list(itertools.islice(sentences, SENTENCES)):
        rows = tokenizer.ids_of([text for text, _ in chunk])
        spans = [model.words.find(row, word, beginning) for row in rows]
        hits = [(matches, one) for matches, one in zip(spans, chunk, strict=True) if matches]
        encodings = tokenizer.encode_batch([text for _, (text, _) in hits])
        for (matches, (text, source)), encoding in zip(hits, encodings, strict=True):
            for start, end in matches:
                left, right = encoding.offsets[start + 1][0], encoding.offsets[end][1]
                context = Context(0.0, text[:left], text[left:right], text[right:], source)
                yield *_cut_around(encoding.ids, (start + 1, end + 1), model.positions), context


def _cut_around(ids: list[int], span: Span, length: int) -> tuple[list[int], Span]:
    """A row with [CLS] and [SEP] cut to `length` tokens, as many left of a word as right; the word's position in it."""
    start, end = span
    skipped = max(0, min((start + end - length) // 2, len(ids) - length))
    return [ids[0], *ids[1:-1][skipped : skipped + length - 2], ids[-1]], (start - skipped, end - skipped)


# ---- the table


def show(results: dict[str, Any]) -> None:
    """Print one line per neighbour, nearest first, with the word in one column."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console, settings = Console(highlight=False, soft_wrap=True), results["settings"]
    width = max(12, (console.width - 8 - max(cell_len(one["word"]) for one in results["neighbours"])) // 2)
    where = f"in {settings['sentence']!r}" if settings["sentence"] else "alone"
    console.print(Text(f"{results['word']!r} {where}, layer {settings['layer']}, {results['model']}", "bold"))
    for one in results["neighbours"]:
        left, right = set_cell_size(one["left"][::-1], width)[::-1], set_cell_size(one["right"], width)
        line = Text(f"{one['cosine']:.3f}  {left}").append(one["word"], "bold").append(right.rstrip())
        console.print(line)
    more = " (the limit: the rest was not read)" if results["more"] else ""
    summary = f"mean cosine {results['mean']:.3f}, standard deviation {results['std']:.3f}"
    console.print(Text(f"{results['places']:,} occurrences in {results['documents']:,} documents{more}; {summary}"))
