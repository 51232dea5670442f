"""The contexts of a corpus in which a word means what it means here: `bertworks probe neighbours`.

Every place of the word in the files is embedded in its sentence, and those whose vectors lie nearest to the word in
the given sentence are kept. Files are streamed: what is held is a batch and the best so far.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..data.corpus import InputOptions, Reader
from ..data.sentences import split_sentences
from ..files import InputError
from ..tokenizer import normalize
from ..training.machine import facts
from .inside import BATCH, Floats, Forms, Inside, cosine

SENTENCES = 1024  # that are tokenized together


@dataclass(frozen=True)
class NeighbourConfig:
    """How `bertworks probe neighbours` looks."""

    sentence: str = ""  # the word in the meaning that is looked for; left out, the word alone is the sentence
    layer: int = -2  # 1 to L, 0 the embeddings, -1 the last, -2 the second to last
    top: int = 10  # contexts to print
    limit: int = 10_000  # places of the word to embed, in the order of the files; what comes after is not read
    beginning: bool = False  # the word may also begin a longer one (Korean nouns with particles)
    language: str = "en"  # of the rules that divide texts into sentences

    def __post_init__(self) -> None:
        if self.top < 1 or self.limit < 1:
            raise InputError(f"top = {self.top}, limit = {self.limit}; expected 1 or more")


class Context(NamedTuple):
    """One place of the word."""

    cosine: float
    left: str
    word: str
    right: str
    source: str  # of the document: file, archive member, line

    @property
    def text(self) -> str:
        return self.left + self.word + self.right


class _Place(NamedTuple):
    """One place before it is embedded."""

    ids: list[int]  # with [CLS] and [SEP], at most as many as the model has positions
    span: tuple[int, int]
    context: Context


def neighbours(
    inside: Inside, word: str, corpus: Sequence[str | Path], config: NeighbourConfig, options: InputOptions
) -> dict[str, Any]:
    """The nearest contexts, best first, equal sentences once, and how near all places are on average.

    Raises InputError if a file cannot be read, the sentence lacks the word, or the corpus does.
    """
    text = config.sentence or word
    ids = inside.encode(text).ids
    layer, span = inside.layer(config.layer), inside.require(text, ids, word, config.beginning)
    query = _mean(next(inside.states([ids])), layer, span)
    reader = Reader(corpus, options)
    pieces = inside.pieces_of(word)
    first = inside.tokenizer.readable(pieces[0][0])
    sentences = _sentences(reader, first if first.isalnum() else "", config.language)
    found = _places(inside, pieces, sentences, config.beginning)
    taken = itertools.islice(found, config.limit)
    best, values = _Best(config.top), _Moments()
    while batch := list(itertools.islice(taken, BATCH)):
        for place, states in zip(batch, inside.states([place.ids for place in batch]), strict=True):
            value = float(cosine(query, _mean(states, layer, place.span)))
            values.add(value)
            best.offer(place.context._replace(cosine=value))
    if not values.count:
        raise InputError(
            f"the word {word!r} is not in {', '.join(map(str, corpus))} ({reader.counts['documents']:,} documents); "
            "look for another one, or allow longer words with --beginning"
        )
    return {
        "probe": "neighbours",
        "model": str(inside.folder),
        "word": word,
        "corpus": [str(path) for path in corpus],
        "settings": {**vars(config), "layer": layer},
        "places": values.count,
        "more": values.count == config.limit,
        "documents": reader.counts["documents"],
        "mean": values.mean,
        "std": values.std,
        "neighbours": [
            {**context._asdict(), "cosine": round(context.cosine, 6), "times": best.times[context.text]}
            for context in best.ordered()
        ],
        "machine": facts(),
    }


def _mean(states: Floats, layer: int, span: tuple[int, int]) -> Floats:
    vector: Floats = states[layer, span[0] : span[1]].mean(0)
    return vector


class _Best:
    """The contexts with the highest cosine, equal sentences once; what was met first wins among equals."""

    def __init__(self, size: int):
        self.size, self.heap = size, list[tuple[float, int, Context]]()
        self.times = Counter[str]()  # of the sentences that are kept
        self.met = 0

    def offer(self, context: Context) -> None:
        self.met += 1
        if context.text in self.times:
            self.times[context.text] += 1
        elif len(self.heap) < self.size or context.cosine > self.heap[0][0]:
            self.times[context.text] = 1
            heapq.heappush(self.heap, (context.cosine, -self.met, context))
            if len(self.heap) > self.size:
                del self.times[heapq.heappop(self.heap)[2].text]

    def ordered(self) -> list[Context]:
        return [context for _, _, context in sorted(self.heap, reverse=True)]


class _Moments:
    """Mean and standard deviation of numbers as they come (Welford 1962)."""

    count, mean, _squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self._squares += step * (value - self.mean)

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0


# ---- finding the word


def _sentences(reader: Reader, first: str, language: str) -> Iterator[tuple[str, str]]:
    """(sentence, source of its document). Plain text without the word's `first` piece is not divided at all."""
    first = first.lower()
    for document in reader:
        for paragraph in normalize("NFC", document.text).split("\n"):
            if not paragraph.isascii() or first in paragraph.lower():
                for sentence in split_sentences(paragraph, language):
                    yield sentence, document.source


def _places(inside: Inside, pieces: Forms, sentences: Iterable[tuple[str, str]], beginning: bool) -> Iterator[_Place]:
    """Every place of the word with these pieces, in order."""
    sentences = iter(sentences)
    while chunk := list(itertools.islice(sentences, SENTENCES)):
        rows = inside.tokenizer.ids_of([text for text, _ in chunk])
        hits = [
            (found, one) for row, one in zip(rows, chunk, strict=True) if (found := inside.find(row, pieces, beginning))
        ]
        encodings = inside.tokenizer.encode_batch([text for _, (text, _) in hits])
        for (found, (text, source)), encoding in zip(hits, encodings, strict=True):
            for start, end in found:
                ids, span = _window(encoding.ids[1:-1], (start, end), inside.positions - 2)
                left, right = encoding.offsets[start + 1][0], encoding.offsets[end][1]
                context = Context(0.0, text[:left], text[left:right], text[right:], source)
                framed = [inside.tokenizer.cls_id, *ids, inside.tokenizer.sep_id]
                yield _Place(framed, (span[0] + 1, span[1] + 1), context)


def _window(ids: list[int], span: tuple[int, int], room: int) -> tuple[list[int], tuple[int, int]]:
    """The pieces round a word that fit, as many on its left as on its right, and its place among them."""
    start, end = span
    first = max(0, min((start + end - room) // 2, len(ids) - room))
    return ids[first : first + room], (start - first, end - first)


# ---- showing it


def show(results: dict[str, Any]) -> None:
    """Keyword in context: a line a neighbour, nearest first."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console, settings = Console(highlight=False, soft_wrap=True), results["settings"]
    side = max(12, (console.width - 8 - max(cell_len(one["word"]) for one in results["neighbours"])) // 2)
    where = f"in {settings['sentence']!r}" if settings["sentence"] else "alone"
    console.print(Text(f"{results['word']!r} {where}, layer {settings['layer']}, {results['model']}", "bold"))
    for one in results["neighbours"]:
        left, right = _cut(one["left"][::-1], side)[::-1], _cut(one["right"], side)
        line = Text(f"{one['cosine']:.3f}  " + " " * (side - cell_len(left)) + left)
        console.print(line.append(one["word"], "bold").append(right))
    more = " (the limit: what comes after was not read)" if results["more"] else ""
    told = f"cosine of all of them {results['mean']:.3f} on average, standard deviation {results['std']:.3f}"
    console.print(Text(f"{results['places']:,} places in {results['documents']:,} documents{more}; {told}"))


def _cut(text: str, cells: int) -> str:
    """The beginning of a text that fills at most so many columns (an ideograph fills two)."""
    from rich.cells import cell_len

    text = text[:cells]
    while cell_len(text) > cells:
        text = text[:-1]
    return text
