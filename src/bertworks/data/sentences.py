"""Documents -> sentences, by one of several splitters; and a check of where the input's documents end.

auto    sentencex, with its rules for the language, a related one or English; for Korean the rules of korean.py
line    every line of the text is a sentence
"""

import functools
import statistics
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Literal

import sentencex

from .corpus import Document
from .korean import RULES_VERSION, korean_sentences
from .languages import KOREAN, base_of
from .wrapping import looks_wrapped

Splitter = Literal["auto", "line"]

BLOCK_CHARS = 50_000  # characters of a paragraph that are split at a time; nearly all paragraphs have fewer


def splitter_version(splitter: str, language: str) -> str:
    """What cuts sentences, with its version: `sentencex 1.0.32 (rules: de)`. A store's manifest names it."""
    if splitter == "line":
        return "line"
    rules = base_of(language)
    if rules == KOREAN:
        return f"Korean rules {RULES_VERSION}"
    return f"sentencex {metadata.version('sentencex')} (rules: {rules})"


def split_sentences(text: str, language: str = "en", splitter: Splitter = "auto") -> list[str]:
    """The sentences of a document's text, in order, without surrounding space; a paragraph's end ends a sentence.

    No character but white space is lost, and all white space becomes single spaces. This also avoids a panic of
    sentencex 1.0 on a no-break space after an initial ("J.\\u00a0R.").
    """
    sentences, split = [], _splitter(splitter, base_of(language))
    for paragraph in text.split("\n"):
        words = " ".join(paragraph.split())
        if words:
            sentences += [stripped for sentence in _blockwise(split, words) if (stripped := sentence.strip())]
    return sentences


def _splitter(splitter: Splitter, rules: str) -> Callable[[str], list[str]]:
    """Cuts a paragraph; joined, what it returns is the paragraph."""
    if splitter == "line":
        return lambda paragraph: [paragraph]
    return korean_sentences if rules == KOREAN else functools.partial(_sentencex_sentences, rules)


def _blockwise(split: Callable[[str], list[str]], paragraph: str) -> list[str]:
    """The sentences of a paragraph; of a very long one block by block, the last sentence of each carried to the next.

    The library's time is quadratic in the number of quotation marks that are not closed.
    """
    sentences: list[str] = []
    last, start = "", 0
    while start < len(paragraph):
        stop = start + BLOCK_CHARS
        if stop < len(paragraph):
            stop = paragraph.rfind(" ", start, stop) + 1 or stop
        sentences += split(last + paragraph[start:stop])
        last = sentences.pop() if stop < len(paragraph) and len(sentences[-1]) <= BLOCK_CHARS else ""
        start = stop
    return sentences


def _sentencex_sentences(rules: str, paragraph: str) -> list[str]:
    try:
        return list(sentencex.segment(rules, paragraph))
    except BaseException as error:  # the library's panics are not Exceptions, and must not end a long build
        if type(error).__name__ != "PanicException":
            raise
        return [paragraph]


def document_batches(documents: Iterable[Document], chars: int) -> Iterator[list[Document]]:
    """Lists of consecutive documents, each ended by the document with which it reaches `chars` characters."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= chars:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def check_documents(documents: Iterable[Document], language: str = "en", splitter: Splitter = "auto") -> list[str]:
    """Warnings about these documents, so that wrong documents, lines or sentences are seen before a long build."""
    texts = [document.text for document in documents]
    lines = [line for text in texts for line in text.split("\n")[:100]]
    letters = [char for line in lines for char in line if char.isalpha()]
    notes = []
    if texts and statistics.median(len(split_sentences(text, language, splitter)) for text in texts) < 2:
        notes.append(
            f"half of the first {len(texts):,} documents have one sentence at most, and next-sentence prediction needs "
            "neighbours: check how documents are separated (--input.documents, --input.format), or pre-train with "
            "--objective mlm"
        )
    if looks_wrapped(lines):
        notes.append("lines end in mid-sentence: the text looks wrapped; join them with --input.paragraphs blank-line")
    if base_of(language) != KOREAN and sum("가" <= char <= "힣" for char in letters) > len(letters) / 2:
        notes.append(f"most letters are Hangul, and the language is {language!r}: give --language ko")
    return notes
