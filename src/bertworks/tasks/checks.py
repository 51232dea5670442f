"""Checks of labelled data before training: what would make its scores wrong, or worse than they could be.

`bertworks.finetune`, the command line and `bertworks doctor` call `check_labelled_data`. Two texts are equal here if
they have the same words, whatever their case, punctuation, white space and Unicode form.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.encodings import misread
from ..files import InputError, clip
from ..reporting.run_files import TRAINED_ON
from ..reporting.tables import counted
from ..tokenizer import Tokenizer, normalize
from ..tokenizer.check import check as check_vocabulary
from .base import Task
from .classification import NUMERIC
from .labels import label_parts

Severity = Literal["note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("note", "warning", "error")  # the gravest last

FEW_TRAIN, FEW_DEV = 200, 100  # examples
FEW_OF_LABEL = 10  # training examples of one label
CONSTANT = 0.95  # fraction of one label from which accuracy says little
UNBALANCED = 10  # examples of the most frequent label per example of the rarest
SHIFT = 0.15  # total variation distance between the labels of train and dev
IDS, FEW_IDS = 0.8, 20  # labels per example from which labels look like ids; fewer labels never do
NOTABLE = 0.01  # fraction of the examples from which duplicates and the like are a warning
LEAK = 0.2  # fraction of the development examples in train from which their scores say nothing
SEEN = 0.05  # fraction of evaluated examples that a run was trained on; fewer may be duplicates
TRUNCATED = 0.05  # fraction of the examples
SAMPLE = 1_000  # examples that are tokenized
SHOWN = 3  # examples and labels that a message lists
_WORDS = re.compile(r"[\w\u0900-\u0963\u0966-\u0dff]+")  # \w lacks the vowel signs of Indic scripts


@dataclass(frozen=True)
class Finding:
    """What a check found. str() is one line: severity, evidence, advice."""

    check: str  # name of the check
    severity: Severity  # error: the result is wrong or unusable; warning: worse than it could be; note: a fact
    evidence: str  # what was found, in numbers, and what follows from it
    advice: str = ""  # what to do
    where: str = ""  # run or file, where several are examined

    def __str__(self) -> str:
        where, advice = f"{self.where}: " if self.where else "", f"; {self.advice}" if self.advice else ""
        return f"{self.severity}: {where}{self.evidence}{advice}"


class Row(NamedTuple):
    """What examples of all kinds of tasks have."""

    texts: tuple[str, ...]
    label: str | None
    line: int

    @property
    def key(self) -> tuple[str, ...]:
        """The words of each text."""
        return tuple(map(words_of, self.texts))


@dataclass(frozen=True)
class LabelledData:
    """Training and development examples, and how a model reads them."""

    task: Task
    train: list[Row]
    dev: list[Row]
    tokenizer: Tokenizer | None  # None: nothing is tokenized
    max_seq_length: int

    @property
    def is_classification(self) -> bool:
        """Whether each example has one class."""
        return self.task.kind in ("single", "pair")

    @cached_property
    def train_keys(self) -> list[tuple[str, ...]]:
        """The words of each training example."""
        return [row.key for row in self.train]

    @cached_property
    def dev_keys(self) -> list[tuple[str, ...]]:
        """The words of each development example."""
        return [row.key for row in self.dev]

    def labels(self, rows: list[Row]) -> Counter[str]:
        """How often each label occurs."""
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
    return sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))


def rows_of(task: Task, examples: Sequence[Any]) -> list[Row]:
    """The texts and labels of examples; of questions the contexts, each once, which train and dev must not share."""
    if task.kind == "span":
        first_lines: dict[str, int] = {}
        for one in examples:
            first_lines.setdefault(one.context, one.line)
        return [Row((context,), None, line) for context, line in first_lines.items()]
    if task.kind == "choice":
        return [
            Row((one.text, *one.choices), None if one.label is None else str(one.label), one.line) for one in examples
        ]
    if task.kind == "tagging":
        return [Row((one.text,), None, one.line) for one in examples]
    return [Row((one.text,) if one.pair is None else (one.text, one.pair), one.label, one.line) for one in examples]


def words_of(text: str) -> str:
    """The words of a text without case and punctuation; the text itself if it has no words."""
    return " ".join(_WORDS.findall(normalize("NFC", text).casefold())) or text.strip()


def hashes_of(task: Task, examples: Sequence[Any]) -> NDArray[np.uint64]:
    """A 64-bit hash of the words of each example."""
    keys = ("\x00".join(row.key).encode() for row in rows_of(task, examples))
    return np.frombuffer(b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys), "<u8")


def seen_in_training(run: Path, task: Task, examples: Sequence[Any]) -> list[Finding]:
    """Whether evaluated examples are training examples of a run, from the hashes in its folder.

    Nothing is found for runs without the file: those of earlier versions. Raises InputError if it is damaged.
    """
    path = run / TRAINED_ON
    if not path.is_file():
        return []
    try:
        trained_on = np.load(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not an array of hashes ({error}); remove the file, or restore it") from None
    hashes = hashes_of(task, examples)
    seen = int(np.isin(hashes, trained_on).sum())
    if not seen or seen < (LEAK if task.kind == "tagging" else SEEN) * len(hashes):
        return []
    what = "contexts" if task.kind == "span" else "examples"
    return [
        Finding(
            "train/dev overlap",
            "warning",
            f"{some_of(seen, len(hashes), what, 'is', 'are')} in the training data of {run}: these scores say little "
            "about new texts",
            "evaluate on other examples",
        )
    ]


def examples(data: LabelledData) -> Iterator[Finding]:
    """Too few examples to learn from, or to evaluate on."""
    if len(data.train) < FEW_TRAIN:
        yield Finding(
            "few examples",
            "warning",
            f"{counted(len(data.train), 'training example')}: scores differ by many points between seeds",
            f"label more, {FEW_TRAIN} or better 1,000; until then train several seeds, with at least 200 updates "
            "(min_steps)",
        )
    if 0 < len(data.dev) < FEW_DEV:
        width = 100 * 1.96 * math.sqrt(0.25 / len(data.dev))
        interval = f": an accuracy of 50 % is known within ± {width:.0f} points (95 %)"
        yield Finding(
            "few examples",
            "warning",
            f"{counted(len(data.dev), 'development example')}{'' if data.task.kind in NUMERIC else interval}",
            "evaluate on more: label more, or give a larger dev_share of one labelled file",
        )


def balance(data: LabelledData) -> Iterator[Finding]:
    """Labels that look like ids, one label for nearly all examples, rare labels."""
    if data.task.kind == "regression":
        values = {float(row.label) for row in data.train if row.label}
        if len(data.train) > 1 and len(values) == 1:
            yield Finding("labels", "error", f"every training example has the value {values.pop():g}: nothing to learn")
        return
    counts = data.labels(data.train)
    if not (data.is_classification or data.task.kind == "multilabel") or not counts:
        return
    total, (most, often), (rarest, seldom) = counts.total(), *(counts.most_common()[i] for i in (0, -1))
    baseline = f"the majority-class baseline has an accuracy of {often / total:.3f}"
    if data.is_classification and len(counts) >= max(FEW_IDS, IDS * total):
        yield Finding(
            "labels",
            "error",
            f"{len(counts):,} labels in {total:,} training examples: nearly every example has a label of its own",
            f"column {data.task.label!r} may hold ids; name the column of labels with label",
        )
        return
    if (
        data.is_classification
        and len(counts) > 1
        and (often >= CONSTANT * total or often >= UNBALANCED * seldom >= UNBALANCED * FEW_OF_LABEL)
    ):
        yield Finding(
            "labels",
            "warning",
            f"label {named(most)} has {often:,} of {total:,} training examples, {named(rarest)} {seldom:,}: {baseline}",
            "report macro_f1 beside accuracy; label more examples of the rare labels, or set class_weights",
        )
    rare = {name: count for name, count in counts.items() if count < FEW_OF_LABEL}
    if rare and len(data.train) >= FEW_OF_LABEL:
        yield Finding(
            "labels",
            "warning",
            f"{some_of(len(rare), len(counts), 'labels', 'has', 'have')} fewer than {FEW_OF_LABEL} training examples: "
            f"{_first(f'{named(name)} ({count})' for name, count in rare.items())}",
            "label more of them, or merge rare labels",
        )


def label_shift(data: LabelledData) -> Iterator[Finding]:
    """Labels that only one split has, or that are more frequent in one than in the other."""
    train, dev = data.labels(data.train), data.labels(data.dev)
    if not train or not dev:
        return
    if unknown := sorted(dev.keys() - train.keys()):
        yield Finding(
            "label shift",
            "error",
            f"{counted(len(unknown), 'label')} of the development examples never in train: "
            f"{_first(map(named, unknown))}; no model can predict them",
            "correct the labels, or add such examples to train",
        )
        return
    moved = {name: dev[name] / dev.total() - train[name] / train.total() for name in train}
    distance = sum(map(abs, moved.values())) / 2
    if distance > max(SHIFT, math.sqrt(len(moved) / dev.total())):  # the second one: expected of a random split
        name = max(moved, key=lambda one: abs(moved[one]))
        yield Finding(
            "label shift",
            "warning",
            f"label {named(name)} has {percent(train[name] / train.total())} of the training examples and "
            f"{percent(dev[name] / dev.total())} of the development examples",
            "draw both from one labelled file (dev_share), or with another split_seed",
        )


def label_spelling(data: LabelledData) -> Iterator[Finding]:
    """Labels that differ in case, white space or Unicode form only."""
    if not data.is_classification:
        return
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in data.labels([*data.train, *data.dev]):
        spellings[" ".join(normalize("NFC", name).casefold().split())].append(name)
    for names in spellings.values():
        if len(names) > 1:
            shown = repr if len({normalize("NFC", name) for name in names}) == len(names) else ascii
            yield Finding(
                "label spelling",
                "warning",
                f"labels that differ in case, blanks or Unicode form only: {', '.join(map(shown, sorted(names)))}; "
                "they are trained as different labels",
                "write them in one way",
            )


def missing(data: LabelledData) -> Iterator[Finding]:
    """Texts without a letter or digit, examples without a label, texts that were decoded with the wrong encoding."""
    rows = [*data.train, *data.dev]
    if bare := [row for row in rows if not any(map(str.isalnum, row.texts[0]))]:
        yield Finding(
            "empty texts",
            _severity(len(bare), len(rows)),
            f"{some_of(len(bare), len(rows), 'examples', 'has', 'have')} a text without a letter or digit "
            f"({lines(bare)})",
            "remove them, or restore their texts",
        )
    unlabelled = [row for row in rows if data.is_classification and row.label is None]
    if 0 < len(unlabelled) < len(rows):
        yield Finding(
            "missing labels",
            "error",
            f"{some_of(len(unlabelled), len(rows), 'examples', 'has', 'have')} no label ({lines(unlabelled)})",
            "label them, or remove them",
        )
    if warning := misread("\n".join("\n".join(row.texts) for row in data.sample), data.task.form.encoding):
        found, _, advice = warning.partition("; ")
        yield Finding("encoding", "warning", found, advice)


def duplicates(data: LabelledData) -> Iterator[Finding]:
    """Training examples that occur twice, with the same label or with different ones."""
    if data.task.kind == "tagging":  # short sentences repeat
        return
    by_key: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row, key in zip(data.train, data.train_keys, strict=True):
        by_key[key].append(row)
    repeated = [row for same in by_key.values() for row in _repeated(same)]
    if repeated:
        yield Finding(
            "duplicates",
            _severity(len(repeated), len(data.train)),
            f"{some_of(len(repeated), len(data.train), 'training examples', 'repeats', 'repeat')} an earlier one with "
            f"the same label ({lines(repeated)})",
            "remove them unless they are frequent in practice too",
        )
    torn = [same for same in by_key.values() if data.is_classification and len({row.label for row in same}) > 1]
    if torn:
        wrong = sum(len(same) - max(Counter(row.label for row in same).values()) for same in torn)
        texts, labels = named(" / ".join(torn[0][0].texts)), dict.fromkeys(str(row.label) for row in torn[0])
        yield Finding(
            "conflicting labels",
            _severity(wrong, len(data.train)),
            f"{'1 text has' if len(torn) == 1 else f'{len(torn):,} texts have'} different labels: {texts} is "
            f"{' and '.join(map(named, labels))} ({lines(torn[0])}); no model can be right on {wrong:,} of these "
            "examples",
            "decide on one label for each text",
        )


def _repeated(same: list[Row]) -> list[Row]:
    """Of examples with equal texts: those whose label an earlier one has."""
    first = {row.label: row for row in reversed(same)}
    return [row for row in same if row is not first[row.label]]


def overlap(data: LabelledData) -> Iterator[Finding]:
    """Development examples that are also in train."""
    train = {*data.train_keys}
    both = [row for row, key in zip(data.dev, data.dev_keys, strict=True) if key in train]
    if both:
        share = len(both) / len(data.dev)
        what = "development contexts" if data.task.kind == "span" else "development examples"
        tagging = data.task.kind == "tagging"  # short sentences repeat
        yield Finding(
            "train/dev overlap",
            "error" if share >= LEAK else "note" if tagging else _severity(len(both), len(data.dev)),
            f"{some_of(len(both), len(data.dev), what, 'is', 'are')} also in train ({percent(share)}; {lines(both)}): "
            "their scores say nothing about new texts",
            "remove them from train; if one file was divided (dev_share), keep examples that belong together in one "
            "split with group",
        )


def tokens(data: LabelledData) -> Iterator[Finding]:
    """Texts that are truncated, and words that the vocabulary lacks."""
    if data.tokenizer is None:
        return
    sample = data.sample
    if data.max_seq_length and data.task.kind not in ("span", "tagging"):  # their long texts are divided into windows
        specials = 2 if data.task.kind == "single" else 3
        counts = [sum(map(len, data.tokenizer.ids_of([*row.texts[:2]]))) + specials for row in sample]
        share = sum(count > data.max_seq_length for count in counts) / max(1, len(counts))
        if share >= TRUNCATED:
            most = int(np.percentile(counts, 95))
            wanted = most if most > data.max_seq_length else max(counts)
            yield Finding(
                "truncation",
                "warning",
                f"{percent(share)} of {len(sample):,} training examples are longer than {data.max_seq_length} tokens "
                f"and are truncated (95 % have at most {most}, the longest {max(counts)})",
                f"set max_seq_length to {-(-wanted // 16) * 16} if the model has so many positions, or shorten the "
                "texts",
            )
    texts = (normalize("NFC", "\n".join(row.texts)) for row in sample)
    for warning in check_vocabulary(data.tokenizer, texts, 200_000).warnings:
        yield Finding(
            "vocabulary", "warning", warning.rstrip("."), "use a model whose vocabulary has this script and case"
        )


CHECKS: tuple[Callable[[LabelledData], Iterable[Finding]], ...] = (
    examples,
    balance,
    label_shift,
    label_spelling,
    missing,
    duplicates,
    overlap,
    tokens,
)


def lines(rows: Sequence[Row]) -> str:
    """The lines of the first examples."""
    return f"line{'s' if len(rows) > 1 else ''} {_first(str(row.line) for row in rows)}"


def _first(words: Iterable[str]) -> str:
    words = [*words]
    return ", ".join([*words[:SHOWN], *(["..."] if len(words) > SHOWN else [])])


def _severity(count: int, total: int) -> Severity:
    return "warning" if count >= NOTABLE * total else "note"


def some_of(count: int, total: int, what: str, one: str, several: str) -> str:
    """Some of all, and the verb that fits: 1 of 63 examples has, 2 of 63 examples have."""
    return f"{count:,} of {total:,} {what} {one if count == 1 else several}"


def percent(share: float) -> str:
    """A fraction as text: 12 %, 0.4 %."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def named(name: str) -> str:
    """A label or a text in a message."""
    return repr(clip(name, 40))
