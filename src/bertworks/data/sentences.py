"""Documents -> sentences, by the multilingual library sentencex; and a check of where the input's documents end."""

import re
import statistics
from collections.abc import Iterable, Iterator

import sentencex

from ..files import InputError
from .corpus import Document

BLOCK_CHARS = 50_000  # characters of a paragraph that are split at a time; nearly all paragraphs have fewer


def check_language(code: str) -> None:
    """Raises InputError for what is no language code; the library would read it as English without a word."""
    if not re.fullmatch("[a-z]{2,3}(-[A-Za-z]+)*", code):
        raise InputError(f"language {code!r}; expected an ISO code of two or three letters, such as en, ko or de")


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a document's text, in order, without surrounding space; a paragraph's end ends a sentence.

    No character but white space is lost, and all white space becomes single spaces. This also avoids a panic of
    sentencex 1.0 on a no-break space after an initial ("J.\\u00a0R.").
    """
    sentences = []
    for paragraph in text.split("\n"):
        words = " ".join(paragraph.split())
        if words:
            sentences += [stripped for sentence in _segment(language, words) if (stripped := sentence.strip())]
    return sentences


def _segment(language: str, paragraph: str) -> list[str]:
    """The sentences of a paragraph; of a very long one block by block, the last sentence of each carried to the next.

    The library's time is quadratic in the number of quotation marks that are not closed.
    """
    sentences: list[str] = []
    last, start = "", 0
    while start < len(paragraph):
        stop = start + BLOCK_CHARS
        if stop < len(paragraph):
            stop = paragraph.rfind(" ", start, stop) + 1 or stop
        sentences += _sentences(language, last + paragraph[start:stop])
        last = sentences.pop() if stop < len(paragraph) and len(sentences[-1]) <= BLOCK_CHARS else ""
        start = stop
    return sentences


def _sentences(language: str, paragraph: str) -> list[str]:
    try:
        return list(sentencex.segment(language, paragraph))
    except BaseException as error:  # the library's panics are no Exception, and must not end hours of building
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


def check_documents(documents: Iterable[Document], language: str = "en") -> list[str]:
    """Warnings about these documents, so that wrong boundaries of documents are seen before a long build."""
    lines: list[str] = []
    sentences: list[int] = []
    size = 0
    for document in documents:
        sentences.append(len(split_sentences(document.text, language)))
        lines += document.text.split("\n")[:100]
        size += len(document.text)
    if not sentences:
        return []
    return [warning for warning in (_check_counts(sentences, size), _check_wrapping(lines)) if warning]


def _check_counts(sentences: list[int], size: int) -> str | None:
    median = statistics.median(sentences)
    if len(sentences) == 1:
        return (
            f"the whole input is one document ({size:,} characters). Next-sentence prediction needs many: put each "
            "document into a file of its own, or separate them by blank lines and set documents to blank-line"
        )
    if median < 2:
        return (
            f"your documents are one line long: of the first {len(sentences)} documents half have at most {median:g} "
            "sentence. Next-sentence pairs need neighbours; check how documents are separated (documents, format)"
        )
    return None


def _check_wrapping(lines: list[str]) -> str | None:
    """Lines of nearly one length that stop in mid-sentence are wrapped text: each would be a paragraph."""
    full = [line for line in lines if len(line) > 40]
    wrapped = [line for line in full if len(line) < 100 and (line[-1].isalpha() or line[-1] == ",")]
    if len(full) >= 20 and len(wrapped) > 0.6 * len(full):
        return "lines end in mid-sentence: the text looks wrapped. Set paragraphs to blank-line to join its lines"
    return None
