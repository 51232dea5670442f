"""Corpus stores: little or cut text, documents of one sentence, [UNK], an unused vocabulary, duplicate documents."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.near_duplicates import find_near_duplicates, shingles
from ...data.store import Store
from ...data.vocabulary import tokenizer_of, unknown_fraction_of
from ...tasks.checks import Finding, percent
from ...tokenizer import Tokenizer
from ...tokenizer.check import normalizer_mismatch

ONE_SENTENCE = 0.3  # fraction of the documents
UNKNOWN = 0.02  # fraction of [UNK] among the tokens
UNUSED = 0.5  # fraction of the vocabulary that never occurs
CUT = 0.01  # fraction of the sentences
TWICE = 0.01  # fraction of the documents
DOCUMENTS, TOKENS = 3_000, 3_000_000  # examined per split
SMALL = 1_000_000  # tokens


@dataclass(frozen=True)
class OpenStore:
    """A store that could be opened."""

    store: Store

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made it."""
        return tokenizer_of(self.store)

    def documents(self, split: str) -> Iterator[NDArray[Any]]:
        """The tokens of the first documents of a split."""
        count = tokens = 0
        for shard in self.store.shards(split):
            for first, last in zip(shard.documents, shard.documents[1:], strict=False):
                if count == DOCUMENTS or tokens > TOKENS:
                    return
                document = shard.tokens[int(shard.sentences[first]) : int(shard.sentences[last])]
                count, tokens = count + 1, tokens + len(document)
                yield document


def size(opened: OpenStore) -> Iterator[Finding]:
    """Little text, none held out, sentences that were cut."""
    counts = opened.store.manifest["counts"]
    tokens, cut = counts["train"]["tokens"], counts["sentences cut"]
    sentences = counts["train"]["sentences"] + counts["validation"]["sentences"]
    if tokens < SMALL:
        advice = "add text, or continue from another encoder (--init): so little text has few contexts"
        yield Finding("size", "note", f"{tokens:,} training tokens", advice)
    if not counts["validation"]["documents"]:
        advice = "build with --validation-share 0.005: without held-out text losses are those of the training text"
        yield Finding("size", "warning", "no held-out documents", advice)
    if cut > CUT * sentences:
        evidence = f"sentences that were cut: {cut:,} of {sentences:,} ({percent(cut / sentences)}): no full stops"
        advice = "look at them with `bertworks corpus show`; check --language and the format of the input"
        yield Finding("size", "warning", evidence, advice)


def one_sentence(opened: OpenStore) -> Iterator[Finding]:
    """Documents that have no next sentence."""
    counts = np.concatenate([np.diff(shard.documents) for shard in opened.store.shards("train")])
    fraction = float((counts == 1).mean())
    if fraction > ONE_SENTENCE:
        evidence = f"{percent(fraction)} of {len(counts):,} documents have one sentence: they have no true pair"
        advice = "join what belongs together (records of a .jsonl; paragraphs between blank lines: --input.documents "
        advice += "file), check --language, or train with --objective mlm --instances.input-format full-sentences"
        yield Finding("one sentence", "warning", evidence, advice)


def unknown(opened: OpenStore) -> Iterator[Finding]:
    """Many [UNK]: the store does not have the unknown words."""
    if (fraction := unknown_fraction_of(opened.store, opened.tokenizer)) > UNKNOWN:
        evidence = f"{percent(fraction)} of the training tokens are [UNK]"
        yield Finding("[UNK]", "warning", evidence, "train a vocabulary on this text (`bertworks tokenizer train`)")


def vocabulary(opened: OpenStore) -> Iterator[Finding]:
    """A vocabulary that contradicts its own normalizer, or that the text does not use."""
    if contradiction := normalizer_mismatch(opened.tokenizer):
        yield Finding("vocabulary", "error", contradiction)
    counts = opened.store.unigram_counts()
    unused, tokens = int((counts == 0).sum()), int(counts.sum())
    if unused > UNUSED * len(counts) and tokens > 20 * len(counts):
        evidence = f"tokens of the vocabulary that never occur in the training text: {unused:,} of {len(counts):,}"
        advice = "it may be the vocabulary of another language or case; a smaller one of this text trains faster"
        yield Finding("vocabulary", "warning", evidence, advice)


def duplicates(opened: OpenStore) -> Iterator[Finding]:
    """Documents that occur twice in train, or in train and held-out text, exactly or nearly."""
    train, held_out = ([shingles(tokens) for tokens in opened.documents(split)] for split in ("train", "validation"))
    documents = [*train, *held_out]
    first_like = find_near_duplicates(documents, documents)  # in one call, which makes each document's sketch once
    again = sum(i < len(train) for i in first_like)
    leaked = sum(i >= len(train) > j for i, j in first_like.items())
    splits = ("training", again, train, "an earlier one"), ("held-out", leaked, held_out, "a training document")
    for what, count, of, like in splits:
        if count > TWICE * len(of):
            evidence = f"{what} documents that share most of their text with {like}: {count:,} of {len(of):,}"
            yield Finding("duplicates", "warning", evidence, "build with --near-duplicates 0.8")


CHECKS: tuple[Callable[[OpenStore], Iterable[Finding]], ...]
CHECKS = (size, one_sentence, unknown, vocabulary, duplicates)
