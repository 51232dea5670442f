"""Checks of labelled data before training: problems that make its scores wrong, or worse than they could be.

`bertworks.finetune`, the command line and `bertworks doctor` call `check_labelled_data`. Two texts count as equal if
their words are, whatever their case, punctuation, white space and Unicode form (data/near_duplicates.py).
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.near_duplicates import duplicate_key
from ..files import InputError, clip
from ..reporting.run_files import TRAINED_ON
from ..reporting.tables import counted
from ..tokenizer import Tokenizer, normalize
from ..tokenizer.check import check as check_vocabulary
from ..tokenizer.check import normalizer_mismatch
from .base import Task
from .classification import NUMERIC
from .labels import label_parts

Severity = Literal["note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

MIN_TRAIN, MIN_DEV = 200, 100  # examples
UNBALANCED = 10  # examples of the most frequent label per example of the rarest
NOTABLE = 0.01  # fraction of the examples from which duplicates and the like are a warning
LEAK = 0.2  # fraction of the development examples in train from which their scores say nothing
SEEN = 0.05  # fraction of evaluated examples that a run was trained on; fewer may be duplicates
TRUNCATED = 0.05  # fraction of the examples
SAMPLE, CHARACTERS = 1_000, 200_000  # examples, and characters of them, whose words are looked up in the vocabulary
SHOWN = 3  # examples and labels that a message lists


@dataclass(frozen=True)
class Finding:
    """The result of a check. str() is one line: severity, evidence, advice."""

    check: str  # name of the check
    severity: Severity  # error: the result is wrong or unusable; warning: worse than it could be; note: a fact
    evidence: str  # what was found, and what follows from it
    advice: str = ""  # what to do
    where: str = ""  # run, where several are examined

    def __str__(self) -> str:
        where, advice = f"{self.where}: " if self.where else "", f"; {self.advice}" if self.advice else ""
        return f"{self.severity}: {where}{self.evidence}{advice}"


class Row(NamedTuple):
    """The common fields of the examples of all task types."""

    texts: tuple[str, ...]
    label: Any  # None: the task type has no labels, or this example has none
    line: int
    key: tuple[str, ...]  # the words of each text


def check_labelled_data(
    task: Task, train: Sequence[Any], dev: Sequence[Any] = (), tokenizer: Tokenizer | None = None
) -> list[Finding]:
    """The problems of labelled data, the gravest finding first.

    train, dev: examples as `read_rows` returns them. tokenizer: of the model to train; its vocabulary is checked.
    """
    rows, others = rows_of(task, train), rows_of(task, dev)
    findings = [*sizes(task, rows, others), *labels(task, rows, others), *texts(task, rows, others)]
    if tokenizer is not None:
        sample = rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]
        words = (normalize("NFC", "\n".join(row.texts)) for row in sample)
        if reason := check_vocabulary(tokenizer, words, CHARACTERS).reason or normalizer_mismatch(tokenizer):
            advice = "use a model whose vocabulary has this script and case"
            findings.append(Finding("vocabulary", "warning", reason, advice))
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def rows_of(task: Task, examples: Sequence[Any]) -> list[Row]:
    """The texts and labels of examples; of questions the contexts, each once, which train and dev must not share."""
    rows: dict[Any, Row] = {}
    for i, one in enumerate(examples):
        texts = (one.context,) if task.kind == "span" else (one.text, *getattr(one, "choices", ()))
        if getattr(one, "pair", None) is not None:
            texts = (one.text, one.pair)
        row = Row(texts, getattr(one, "label", None), one.line, tuple(map(duplicate_key, texts)))
        rows.setdefault(texts if task.kind == "span" else i, row)
    return [*rows.values()]


def hashes_of(task: Task, examples: Sequence[Any]) -> NDArray[np.uint64]:
    """A 64-bit hash of the words of each example."""
    keys = ("\x00".join(row.key).encode() for row in rows_of(task, examples))
    return np.frombuffer(b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys), "<u8")


def seen_in_training(run: Path, task: Task, examples: Sequence[Any]) -> list[Finding]:
    """Whether evaluated examples are training examples of a run, from the hashes in its folder.

    Runs of earlier versions have no hashes: nothing is found. Raises InputError if the file is damaged.
    """
    path = run / TRAINED_ON
    if not path.is_file():
        return []
    hashes = hashes_of(task, examples)
    try:
        seen = int(np.isin(hashes, np.load(path, mmap_mode="r")).sum())
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array of hashes ({error}); restore the file, or remove it") from None
    if not seen or seen < (LEAK if task.kind == "tagging" else SEEN) * len(hashes):  # short sentences repeat
        return []
    evidence = f"training examples of {run} among the evaluated ones: {seen:,} of {len(hashes):,}"
    return [Finding("train/dev overlap", "warning", f"{evidence}; these scores say little about new texts")]


def sizes(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Too few examples to learn from, or to evaluate on."""
    if len(train) < MIN_TRAIN:
        evidence = f"{counted(len(train), 'training example')}: scores differ by many points between seeds"
        advice = f"label {MIN_TRAIN} or better 1,000; until then train several seeds for at least 200 updates each"
        yield Finding("few examples", "warning", evidence, advice)
    if 0 < len(dev) < MIN_DEV and task.kind not in NUMERIC:
        interval = f"95 % interval of an accuracy of 50 %: ± {98 / math.sqrt(len(dev)):.0f} points"
        evidence = f"{counted(len(dev), 'development example')}: {interval}"
        advice = "label more, or give a larger dev_share of one labelled file"
        yield Finding("few examples", "warning", evidence, advice)


def labels(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Labels that train lacks, and labels that are much rarer than others."""
    if task.kind not in ("single", "pair", "multilabel"):
        return
    counts, others = (Counter(name for row in rows for name in label_parts(row.label, task)) for rows in (train, dev))
    if unknown := sorted(others.keys() - counts.keys()):
        names = _first(map(named, unknown))
        evidence = f"labels in the development examples alone, which no model can predict: {names}"
        yield Finding("labels", "error", evidence, "correct the labels, or add such examples to train")
    if task.kind == "multilabel" or len(counts) < 2:
        return
    (most, highest), (rarest, lowest) = (counts.most_common()[i] for i in (0, -1))
    if highest >= UNBALANCED * lowest:
        evidence = (
            f"label {named(most)} has {highest:,} of {counts.total():,} training examples, {named(rarest)} {lowest:,}: "
            f"the majority-class baseline has an accuracy of {highest / counts.total():.3f}"
        )
        advice = "report macro_f1 beside accuracy; label more examples of the rare labels, or repeat the existing ones"
        yield Finding("labels", "warning", evidence, advice)


def texts(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Texts without a letter or digit, examples that occur twice, and development examples that are also in train."""
    rows = [*train, *dev]
    empty = [row for row in rows if not any(map(str.isalnum, row.texts[0]))]
    repeated, conflicting, seen = list[Row](), list[Row](), dict[tuple[str, ...], set[Any]]()
    for row in train:
        labels = seen.setdefault(row.key, set())
        if row.label in labels:
            repeated.append(row)
        elif labels and task.kind in ("single", "pair"):
            conflicting.append(row)
        labels.add(row.label)
    if task.kind == "tagging":  # short sentences repeat
        repeated = []
    leaks = [row for row in dev if row.key in seen]
    split = "development contexts" if task.kind == "span" else "development examples"
    yield from _finding("empty texts", "texts without a letter or digit", empty, rows, "remove them, or restore them")
    what, advice = "training examples that repeat an earlier one with its label", "remove them, unless texts repeat"
    yield from _finding("duplicates", what, repeated, train, f"{advice} in practice too")
    what = "training examples that have the text of an earlier one, and another label"
    yield from _finding("conflicting labels", what, conflicting, train, "decide on one label per text")
    advice = "their scores say nothing about new texts: remove them from train"
    for finding in _finding("train/dev overlap", f"{split} that are also in train", leaks, dev, advice):
        less: Severity = "note" if task.kind == "tagging" else finding.severity
        yield replace(finding, severity="error" if len(leaks) >= LEAK * len(dev) else less)


def _finding(check: str, what: str, faulty: Sequence[Row], rows: Sequence[Row], advice: str) -> Iterator[Finding]:
    """The finding about some of the rows, if there are any: how many, and the lines of the first ones."""
    if faulty:
        severity: Severity = "warning" if len(faulty) >= NOTABLE * len(rows) else "note"
        lines = f"line{'s' if len(faulty) > 1 else ''} {_first(str(row.line) for row in faulty)}"
        yield Finding(check, severity, f"{what}: {len(faulty):,} of {len(rows):,} ({lines})", advice)


def _first(words: Iterable[str]) -> str:
    words = [*words]
    return ", ".join([*words[:SHOWN], *(["..."] if len(words) > SHOWN else [])])


def percent(fraction: float) -> str:
    """A fraction as text: 12 %, 0.4 %."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.1 or not fraction else f"{100 * fraction:.2g} %"


def named(name: str) -> str:
    """A label or a text in a message."""
    return repr(clip(name, 40))
