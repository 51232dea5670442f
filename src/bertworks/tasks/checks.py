"""Checks of labelled data before training: what would make its scores wrong, or worse than they could be.

`bertworks.finetune`, the command line and `bertworks doctor` call `check_labelled_data`. Two texts count as equal if
their words are, whatever their case, punctuation, white space and Unicode form (data/duplicates.py).
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.duplicates import duplicate_key, find_near_duplicates, word_shingles
from ..files import InputError, clip
from ..reporting.run_files import TRAINED_ON
from ..reporting.tables import counted
from ..tokenizer import Tokenizer, normalize
from ..tokenizer.check import check as check_vocabulary
from ..tokenizer.check import misfit
from .base import Task
from .classification import NUMERIC
from .labels import label_parts

Severity = Literal["note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

FEW_TRAIN, FEW_DEV = 200, 100  # examples
UNBALANCED = 10  # examples of the most frequent label per example of the rarest
NOTABLE = 0.01  # fraction of the examples from which duplicates and the like are a warning
LEAK = 0.2  # fraction of the development examples in train from which their scores say nothing
SEEN = 0.05  # fraction of evaluated examples that a run was trained on; fewer may be duplicates
TRUNCATED = 0.05  # fraction of the examples
SAMPLE = 1_000  # examples that are tokenized
COMPARED = 20_000  # examples that are compared word by word
SHOWN = 3  # examples and labels that a message lists


@dataclass(frozen=True)
class Finding:
    """What a check found. str() is one line: severity, evidence, advice."""

    check: str  # name of the check
    severity: Severity  # error: the result is wrong or unusable; warning: worse than it could be; note: a fact
    evidence: str  # what was found, and what follows from it
    advice: str = ""  # what to do
    where: str = ""  # run, where several are examined

    def __str__(self) -> str:
        where, advice = f"{self.where}: " if self.where else "", f"; {self.advice}" if self.advice else ""
        return f"{self.severity}: {where}{self.evidence}{advice}"


class Row(NamedTuple):
    """What examples of all kinds of tasks have."""

    texts: tuple[str, ...]
    label: Any  # None: the kind has no labels, or this example has none
    line: int
    key: tuple[str, ...]  # the words of each text


@dataclass(frozen=True)
class LabelledData:
    """Training and development examples, and how a model reads them."""

    task: Task
    train: list[Row]
    dev: list[Row]
    tokenizer: Tokenizer | None  # None: nothing is tokenized
    max_seq_length: int

    @property
    def has_one_class(self) -> bool:
        """Whether each example has one class."""
        return self.task.kind in ("single", "pair")

    def labels(self, rows: Iterable[Row]) -> Counter[str]:
        """How often each label occurs; empty for kinds of tasks without classes."""
        if not self.has_one_class and self.task.kind != "multilabel":
            return Counter()
        return Counter(name for row in rows for name in label_parts(row.label, self.task))

    @property
    def sample(self) -> list[Row]:
        """Up to SAMPLE training examples, evenly spread."""
        return self.train[:: max(1, len(self.train) // SAMPLE)][:SAMPLE]


def check_labelled_data(
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any] = (),
    tokenizer: Tokenizer | None = None,
    max_seq_length: int = 0,
) -> list[Finding]:
    """What is wrong with labelled data, the gravest finding first.

    train, dev: examples as `read_rows` returns them. tokenizer, max_seq_length: of the model to train; without them
    truncated texts and [UNK] are not counted.
    """
    data = LabelledData(task, rows_of(task, train), rows_of(task, dev), tokenizer, max_seq_length)
    found = [finding for check in CHECKS for finding in check(data)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


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
        trained_on = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array of hashes ({error}); restore the file, or remove it") from None
    if trained_on.dtype != hashes.dtype:
        raise InputError(f"{path}: {trained_on.dtype} numbers; expected hashes; restore the file, or remove it")
    seen = int(np.isin(hashes, trained_on).sum())
    if not seen or seen < (LEAK if task.kind == "tagging" else SEEN) * len(hashes):  # short sentences repeat
        return []
    evidence = f"training examples of {run} among the evaluated ones: {seen:,} of {len(hashes):,}"
    return [Finding("train/dev overlap", "warning", f"{evidence}; these scores say little about new texts")]


def sizes(data: LabelledData) -> Iterator[Finding]:
    """Too few examples to learn from, or to evaluate on."""
    train, dev = len(data.train), len(data.dev)
    if train < FEW_TRAIN:
        evidence = f"{counted(train, 'training example')}: scores differ by many points between seeds"
        advice = f"label {FEW_TRAIN} or better 1,000; until then train several seeds for at least 200 updates each"
        yield Finding("few examples", "warning", evidence, advice)
    if 0 < dev < FEW_DEV:
        evidence = counted(dev, "development example")
        if data.task.kind not in NUMERIC:
            evidence += f": 95 % interval of an accuracy of 50 %: ± {98 / math.sqrt(dev):.0f} points"
        advice = "label more, or give a larger dev_share of one labelled file"
        yield Finding("few examples", "warning", evidence, advice)


def labels(data: LabelledData) -> Iterator[Finding]:
    """One label for nearly all examples, labels that train lacks, a regression with one value."""
    values = {row.label for row in data.train}
    if data.task.kind == "regression" and len(values) == 1 < len(data.train):
        yield Finding("labels", "error", f"every training example has the value {min(values)}: nothing to learn")
    train, dev = data.labels(data.train), data.labels(data.dev)
    if unknown := sorted(dev.keys() - train.keys()):
        evidence = (
            f"labels in the development examples alone, which no model can predict: {_first(map(named, unknown))}"
        )
        yield Finding("labels", "error", evidence, "correct the labels, or add such examples to train")
    if not data.has_one_class or len(train) < 2:
        return
    total, (most, often), (rarest, seldom) = train.total(), *(train.most_common()[i] for i in (0, -1))
    if often >= UNBALANCED * seldom:
        yield Finding(
            "labels",
            "warning",
            f"label {named(most)} has {often:,} of {total:,} training examples, {named(rarest)} {seldom:,}: the "
            f"majority-class baseline has an accuracy of {often / total:.3f}",
            "report macro_f1 beside accuracy; label more examples of the rare labels, or set class_weights",
        )


def texts(data: LabelledData) -> Iterator[Finding]:
    """Texts without a letter or digit, examples that occur twice, and development examples that are also in train."""
    rows, total = [*data.train, *data.dev], len(data.train)
    if empty := [row for row in rows if not any(map(str.isalnum, row.texts[0]))]:
        evidence = f"texts without a letter or digit: {_some(empty, len(rows))}"
        yield Finding("empty texts", _severity(empty, len(rows)), evidence, "remove them, or restore them")
    groups: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in data.train:
        groups[row.key].append(row)
    if data.task.kind != "tagging":  # short sentences repeat
        yield from _duplicates(data, [rows for rows in groups.values() if len(rows) > 1], total)
    yield from _overlap(data, groups.keys())


def _duplicates(data: LabelledData, groups: Sequence[Sequence[Row]], total: int) -> Iterator[Finding]:
    """Training examples of equal texts, with one label or with several."""
    firsts = {id(row) for rows in groups for row in {one.label: one for one in reversed(rows)}.values()}
    if repeated := [row for rows in groups for row in rows if id(row) not in firsts]:
        repeated.sort(key=lambda row: row.line)
        evidence = f"training examples that repeat an earlier one with its label: {_some(repeated, total)}"
        advice = "remove them, unless texts repeat in practice too"
        yield Finding("duplicates", _severity(repeated, total), evidence, advice)
    torn = [rows for rows in groups if data.has_one_class and len(data.labels(rows)) > 1]
    if torn:
        wrong = [row for rows in torn for row in rows if row.label != data.labels(rows).most_common(1)[0][0]]
        names = " and ".join(map(named, data.labels(torn[0])))
        evidence = (
            f"texts with different labels: {len(torn):,}; {named(' / '.join(torn[0][0].texts))} is {names} "
            f"({_lines(torn[0])}); no model can be right on {len(wrong):,} of these examples"
        )
        yield Finding("conflicting labels", _severity(wrong, total), evidence, "decide on one label per text")


def _overlap(data: LabelledData, train: Collection[tuple[str, ...]]) -> Iterator[Finding]:
    """Development examples that are also in train, exactly or nearly."""
    what, total, kind = "contexts" if data.task.kind == "span" else "examples", len(data.dev), data.task.kind
    advice = "remove them from train; in one divided file (dev_share) keep what belongs together in one split (group)"
    if both := [row for row in data.dev if row.key in train]:
        evidence = f"development {what} that are also in train: {_some(both, total)} ({percent(len(both) / total)})"
        less = "note" if kind == "tagging" else _severity(both, total)  # short sentences repeat
        severity: Severity = "error" if len(both) >= LEAK * total else less
        evidence += "; their scores say nothing about new texts"
        yield Finding("train/dev overlap", severity, evidence, advice)
    if kind in ("tagging", "choice") or not data.dev:
        return
    rows = [row for row in data.dev[:COMPARED] if row.key not in train]
    dev, others = ([word_shingles(" ".join(row.key)) for row in split] for split in (rows, data.train[:COMPARED]))
    if near := [rows[i] for i in find_near_duplicates(dev, others)]:
        evidence = f"development {what} that share most of their words with one in train: {_some(near, total)}"
        leak = len(data.task.text) == 1 and len(near) >= LEAK * total  # two pairs may share their longer text
        yield Finding("train/dev overlap", "error" if leak else _severity(near, total), evidence, advice)


def tokens(data: LabelledData) -> Iterator[Finding]:
    """Texts that are truncated, and words that the vocabulary lacks."""
    if data.tokenizer is None:
        return
    rows = data.sample
    specials = 2 if data.task.kind == "single" else 3
    counts = [sum(map(len, data.tokenizer.ids_of([*row.texts[:2]]))) + specials for row in rows]
    share = sum(count > data.max_seq_length for count in counts) / max(1, len(counts))
    windows = data.task.kind in ("span", "tagging")  # their long texts are divided
    if data.max_seq_length and share >= TRUNCATED and not windows:
        most = int(np.percentile(counts, 95))
        wanted = most if most > data.max_seq_length else max(counts)
        yield Finding(
            "truncation",
            "warning",
            f"{percent(share)} of {len(rows):,} training examples are longer than {data.max_seq_length} tokens and are "
            f"truncated (95 % have at most {most}, the longest {max(counts)})",
            f"set max_seq_length to {-(-wanted // 16) * 16} if the model has so many positions, or shorten the texts",
        )
    sample = (normalize("NFC", "\n".join(row.texts)) for row in rows)
    advice = "use a model whose vocabulary has this script and case"
    if reason := check_vocabulary(data.tokenizer, sample, 200_000).lacking or misfit(data.tokenizer):
        yield Finding("vocabulary", "warning", reason, advice)


CHECKS: tuple[Callable[[LabelledData], Iterable[Finding]], ...]
CHECKS = (sizes, labels, texts, tokens)


def _first(words: Iterable[str]) -> str:
    words = [*words]
    return ", ".join([*words[:SHOWN], *(["..."] if len(words) > SHOWN else [])])


def _lines(rows: Sequence[Row]) -> str:
    return f"line{'s' if len(rows) > 1 else ''} {_first(str(row.line) for row in rows)}"


def _some(rows: Sequence[Row], total: int) -> str:
    """How many of all, and the lines of the first ones."""
    return f"{len(rows):,} of {total:,} ({_lines(rows)})"


def _severity(rows: Sequence[Row], total: int) -> Severity:
    return "warning" if len(rows) >= NOTABLE * total else "note"


def percent(share: float) -> str:
    """A fraction as text: 12 %, 0.4 %."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def named(name: str) -> str:
    """A label or a text in a message."""
    return repr(clip(name, 40))
