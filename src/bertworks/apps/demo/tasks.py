"""The split of the documents, and the two tasks whose rows come from its held-out side.

Tags: which words of a paragraph name a parameter, and which are other code? The docstring's own markup is removed from
the text and becomes the tag. Packages: which package is a document from?
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ...files import InputError, atomic_write, to_json
from ...tasks.base import Example, Task
from ...tasks.kinds import kind_of
from .config import TaskConfig
from .prose import CODE, END, PARAMETER, unmarked
from .text import Document, read_rows, unit_hash, write_rows

SIDES = ("train", "dev", "test")
TAGS = Task(
    "tags", ("words",), "tags", "tagging", labels=("O", "B-PARAM", "B-CODE"), metrics=("f1", "precision", "recall")
)
WORD = re.compile(r"\w+(?:[.'-]\w+)*|\S")
MARKED = re.compile(f"([{PARAMETER}{CODE}][^{END}]*){END}")
WORDS = range(6, 46)  # of a paragraph to tag: it fits into 64 tokens nearly always
MOST_OF_A_NAME = 3  # paragraphs to tag
LEAST_TAGGED = 100  # paragraphs for dev and for test: with fewer a rate is chosen, and an effect seen, by chance
# What these packages are called besides by their names.
ALIASES = ("np", "plt", "mpl", "pd", "nx", "cpython", "scikit", "sklearn", "aten")


class Rows(NamedTuple):
    """A task and its rows, as its kind reads them."""

    task: Task
    rows: Mapping[str, Sequence[Any]]  # of SIDES


def split_by_name(documents: Iterable[Document], held_out: float) -> tuple[list[Document], list[Document]]:
    """(to train on, held out). All documents of one name (`median` of three packages, say) fall on the same side."""
    sides: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        sides[unit_hash(f"held out {document.name}") < held_out].append(document)
    return sides


# ---- tags


def write_tags(documents: Iterable[Document], wanted: TaskConfig, folder: Path) -> None:
    """Rows of the tagging task from marked documents, as JSON lines of words and tags.

    Of too few paragraphs train gets its number, dev and test half of the rest each, and at most theirs. Raises
    InputError if one of them has less than LEAST_TAGGED, or than `wanted` says.
    """
    marked = sorted(documents, key=lambda d: (unit_hash(f"task {d.name}"), d.source))
    quota = {side: getattr(wanted, side) for side in SIDES}
    rows = _tagged_rows(marked, quota)
    if len(rows["test"]) < min(wanted.test, wanted.dev):
        found, least = sum(map(len, rows.values())), min(LEAST_TAGGED, wanted.dev, wanted.test)
        rows = _tagged_rows(marked, quota | {"dev": max(least, min(wanted.dev, (found - wanted.train) // 2))})
        if len(rows["test"]) < least:
            raise InputError(
                f"{found} held-out paragraphs that mark a parameter; expected {wanted.train + 2 * least} or more: "
                "install more packages, or lower --tags.train and --tags.dev"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for side, found_rows in rows.items():
        with atomic_write(folder / f"{side}.jsonl", "w") as file:
            file.writelines(to_json(row) + "\n" for row in found_rows)


def _tagged_rows(documents: Iterable[Document], quota: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Rows for each side until it has its quota, the sides in their order. All rows of one name fall on one side."""
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in quota}
    side_of: dict[str, str] = {}
    of_name: Counter[str] = Counter()
    for document in documents:
        for words, tags in filter(None, map(tagged, document.text.split("\n"))):
            free = [side for side in quota if len(rows[side]) < quota[side]]
            if not free or of_name[document.name] == MOST_OF_A_NAME:
                break
            if (side := side_of.setdefault(document.name, free[0])) in free:
                of_name[document.name] += 1
                rows[side].append({"words": words, "tags": tags, "source": document.source})
    return rows


def tagged(paragraph: str) -> tuple[list[str], list[str]] | None:
    """The words of a marked paragraph and their tags; None if it is no row: length, marks, or no parameter in it."""
    words: list[str] = []
    tags: list[str] = []
    for part in MARKED.split(paragraph):
        inner, kind = unmarked(part), {PARAMETER: "B-PARAM", CODE: "B-CODE"}.get(part[:1])
        found = WORD.findall(inner)
        if kind and found != [inner]:  # an expression of several words, which has no one tag
            return None
        words += found
        tags += [kind or "O"] * len(found)
    return (words, tags) if len(words) in WORDS and "B-PARAM" in tags else None


def read_tags(folder: Path) -> Rows:
    """The tagging task, and its rows."""
    return Rows(TAGS, {side: kind_of(TAGS).read(TAGS, folder / f"{side}.jsonl", True) for side in SIDES})


# ---- packages


def write_packages(documents: Sequence[Document], wanted: TaskConfig, labels: int, folder: Path) -> None:
    """Rows for telling packages apart, as JSON lines of text and label."""
    for side, found in package_rows(documents, wanted, labels).items():
        write_rows(folder / f"{side}.jsonl", found)


def package_rows(documents: Sequence[Document], wanted: TaskConfig, labels: int) -> dict[str, list[Document]]:
    """Documents of the `labels` commonest packages for train, dev and test, without their packages' names.

    Each label has equally many, and no name is on two sides. Of too few documents train gets its number and dev a
    third of the rest at most. Raises InputError if fewer than two packages have enough.
    """
    needed = max(1, 2 * wanted.train // labels)
    common = {label: n for label, n in Counter(d.label for d in documents).most_common(labels) if n >= needed}
    if len(common) < 2:
        raise InputError(
            f"{len(common)} packages with {needed} held-out documents or more; expected two: install more packages, or "
            "lower --packages.train"
        )
    train, dev, test = (getattr(wanted, side) // len(common) for side in SIDES)
    left = min(common.values()) - train
    quota = {"train": train, "dev": min(dev, left // 3), "test": min(test, left - min(dev, left // 3))}
    rows: dict[str, list[Document]] = {side: [] for side in quota}
    taken: Counter[tuple[str, str]] = Counter()
    side_of: dict[str, str] = {}
    hidden = give_aways(common)
    for document in sorted(documents, key=lambda d: unit_hash(f"task {d.name}")):
        free = [side for side in quota if taken[side, document.label] < quota[side]]
        if document.label in common and free and (side := side_of.setdefault(document.name, free[0])) in free:
            taken[side, document.label] += 1
            rows[side].append(document._replace(text=" ".join(hidden.sub(" ", document.text).split())))
    return rows


def give_aways(labels: Iterable[str]) -> re.Pattern[str]:
    """Matches the packages' names, as import and as distribution, with all that dots and hyphens join to them."""
    distributions = metadata.packages_distributions()
    names = {name.lower() for label in labels for name in (label, *distributions.get(label, ()))}
    inside = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    return re.compile(
        rf"(?:\w+[.-])*\w*(?:{inside})\w*(?:[.-]\w+)*|\b(?:{'|'.join(ALIASES)})\b(?:\.\w+)*", re.IGNORECASE
    )


def read_packages(folder: Path) -> Rows:
    """The task of telling packages apart, and its rows."""
    documents = {side: read_rows(folder / f"{side}.jsonl") for side in SIDES}
    labels = tuple(sorted({d.label for d in documents["train"]}))
    rows = {side: [Example(d.text, None, d.label) for d in found] for side, found in documents.items()}
    return Rows(Task("packages", ("text",), "label", labels=labels), rows)
