"""The labelled data of the demo, which docstrings contain without annotation.

Which words of a paragraph name a parameter, and which are other code? The markup (`axis`, :func:`sort`) is removed
from the text and becomes the tag of the word.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...files import InputError
from ...tasks.base import Task
from .config import DemoConfig
from .prose import CODE, END, PARAMETER, unmarked
from .text import Document, unit_hash, write_lines

TAGS = Task("tags", ("words",), "tags", "tagging", labels=("O", "B-PARAM", "B-CODE"), metrics=("f1",))
SPLITS = ("train", "dev", "test")
WORD = re.compile(r"\w+(?:[.'-]\w+)*|\S")
MARKED = re.compile(f"([{PARAMETER}{CODE}][^{END}]*){END}")
WORDS = range(6, 46)  # number of words of an example: it nearly always fits into 64 tokens
MAX_PER_NAME = 3  # paragraphs to tag
MIN_TRAIN, MIN_TEST = 30, 20  # examples: of the defaults, 100 in all


def split_by_name(documents: Iterable[Document], held_out: float) -> tuple[list[Document], list[Document]]:
    """(for pre-training, for the tasks): documents of one name (`median` of three packages) are in the same part."""
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        parts[unit_hash(f"held out {document.name}") < held_out].append(document)
    return parts


def write_examples(documents: Sequence[Document], config: DemoConfig, out: Path) -> None:
    """Write train, dev and test examples as JSON lines. Raises InputError if there are too few."""
    ordered = sorted(documents, key=lambda document: (unit_hash(f"task {document.name}"), document.source))
    examples, total = [*tag_examples(ordered)], config.train + config.dev + config.test
    scale = min(1.0, len(examples) / total)  # little text: smaller parts in the same proportion
    sizes = [int(scale * size) for size in (config.train, config.dev, config.test)]
    if sizes[0] < MIN_TRAIN or sizes[2] < MIN_TEST:
        raise InputError(
            f"{len(examples)} labelled examples in the docstrings of this Python; expected {total:,}, and at least "
            "some 100; run it in an environment with more installed packages"
        )
    for split, size in zip(SPLITS, sizes, strict=True):
        write_lines(out / TAGS.name / f"{split}.jsonl", examples[:size])
        examples = examples[size:]


def tag_examples(documents: Iterable[Document]) -> Iterator[dict[str, Any]]:
    """Tagged paragraphs, at most MAX_PER_NAME of each name."""
    of_name: Counter[str] = Counter()
    for document in documents:
        for words, tags in filter(None, map(tagged, document.text.split("\n"))):
            of_name[document.name] += 1
            if of_name[document.name] <= MAX_PER_NAME:
                yield {"words": words, "tags": tags, "source": document.source}


def tagged(paragraph: str) -> tuple[list[str], list[str]] | None:
    """Words and tags of a marked paragraph; None if its length or marks do not fit, or no parameter is marked."""
    words: list[str] = []
    tags: list[str] = []
    for part in MARKED.split(paragraph):
        inner, kind = unmarked(part), {PARAMETER: "B-PARAM", CODE: "B-CODE"}.get(part[:1])
        inside = WORD.findall(inner)
        if kind and inside != [inner]:  # an expression of several words, which has no single tag
            return None
        words += inside
        tags += [kind or "O"] * len(inside)
    return (words, tags) if len(words) in WORDS and "B-PARAM" in tags else None
