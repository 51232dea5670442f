"""Items of a layer probe: labelled texts, or the labelled words of sentences.

A word's label is taken as it is written, so any column of a file will do: CoNLL's entities, its parts of speech, its
chunks.

Shapes: N items, T tokens of all inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...files import InputError
from ...tasks.base import LengthLimits, Task
from ...tasks.inputs import Inputs
from ...tasks.kinds import KINDS, read_rows, with_labels
from ...tasks.sentences import Tagged, by_character, in_words
from ...tasks.table import TABLES, suffix_of
from ...tasks.tagging import TagRows
from ...tokenizer import Tokenizer

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """Labelled texts or words, as a probe takes them."""

    task: str
    unit: str  # "texts" or "words"
    inputs: Inputs
    labels: Numbers  # (N,)
    names: tuple[str, ...]  # K, of the training items
    token: Numbers | None  # (N,) the index of each word's first subword in `inputs.ids`; None: items are texts
    forms: list[str] | None  # (N,) the words, in lower case if the tokenizer lowers; None: items are texts
    of: int  # items in the file
    cut: int  # texts that were cut
    left_out: int = 0  # words whose label is not in `names`


def read_items(
    task: Task, path: Path, tokenizer: Tokenizer, limits: LengthLimits, most: int, seed: int, names: Sequence[str] = ()
) -> Items:
    """Items of one file, drawn at random: at most `most` texts, or whole sentences until they have `most` words.

    most: 0 takes all. names: the labels of the training items, for a development file; words with other labels are left
    out. Raises InputError with file and line, or if the task's kind is not single, pair or tagging.
    """
    if task.kind == "tagging":
        return _words(task, Path(path), tokenizer, limits, most, seed, tuple(names))
    if task.kind not in ("single", "pair"):
        raise InputError(f"{task.name} is of the kind {task.kind}; a layer probe takes single, pair and tagging")
    rows = read_rows(task, path)
    task = replace(task, labels=tuple(names)) if names else with_labels(task, rows)
    chosen = [rows[i] for i in _order(len(rows), seed)[: most or None]]
    inputs = KINDS[task.kind].prepare(tokenizer, chosen, task, limits).inputs
    cut = inputs.truncation()["examples"]
    return Items(task.name, "texts", inputs, inputs.labels, task.labels, None, None, len(rows), cut)


def _order(count: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng((seed, 11)).permutation(count).tolist()
    return order


def _words(
    task: Task, path: Path, tokenizer: Tokenizer, limits: LengthLimits, most: int, seed: int, names: tuple[str, ...]
) -> Items:
    rows, tags = _tagged(task, path, tokenizer)
    of, total = sum(map(len, tags)), 0
    chosen: list[int] = []
    for i in _order(len(rows), seed):
        if most and total >= most:
            break
        chosen.append(i)
        total += len(tags[i])
    rows = [rows[i]._replace(tags=None, document=number) for number, i in enumerate(chosen)]
    word_labels = [label for i in chosen for label in tags[i]]
    names = names or tuple(sorted(set(word_labels)))
    prepared = KINDS["tagging"].prepare(tokenizer, rows, replace(task, labels=("O",), raw_labels=()), limits)
    assert isinstance(prepared, TagRows)
    forms = [row.text[a:b] for row in rows for a, b in row.units]
    number = {name: i for i, name in enumerate(names)}
    has_name = np.array([label in number for label in word_labels])
    indices = np.flatnonzero(has_name & prepared.begins)
    labels = np.array([number[word_labels[i]] for i in indices], np.int64)
    return Items(
        task=f"{task.name}, {task.label}",
        unit="words",
        inputs=prepared.inputs,
        labels=labels,
        names=names,
        token=prepared.position[indices],
        forms=[forms[i].lower() if tokenizer.lowercase else forms[i] for i in indices],
        of=of,
        cut=0,
        left_out=int((~has_name).sum()),
    )


def _tagged(task: Task, path: Path, tokenizer: Tokenizer) -> tuple[list[Tagged], list[list[str]]]:
    """Sentences, and the label of each unit as it is written; labels of characters are read as IOB2."""
    table = suffix_of(path) in TABLES and suffix_of(path) != ".json"  # texts with spans
    if by_character(task) or not (table or task.header):
        rows: list[Any] = list(read_rows(task, path))
        rows = rows if by_character(task) else in_words(tokenizer, rows)[0]
        return rows, [list(row.tags or ()) for row in rows]
    if task.header and task.label not in task.header:
        raise InputError(f"no column {task.label!r} in {task.name}; expected one of {', '.join(task.header)}")
    rows = list(KINDS["tagging"].read(task, path, False))
    column = KINDS["tagging"].read(replace(task, text=(task.label,), label="", labels=(), raw_labels=()), path, False)
    labels = [[row.text[a:b] for a, b in row.units] for row in column]
    for row, row_labels in zip(rows, labels, strict=True):
        if len(row.units) != len(row_labels):
            raise InputError(f"{path}, line {row.line}: {len(row.units)} words, but {len(row_labels)} labels")
    return rows, labels
