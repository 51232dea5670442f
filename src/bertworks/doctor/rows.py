"""Rows to train and to judge on: too few, unbalanced, twice there, in both files, contradictory, empty, cut."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ..tasks.base import Data, Task
from ..tasks.classification import NUMERIC, label_parts
from ..tasks.draws import DIVIDED
from ..tokenizer import Tokenizer
from ..tokenizer.check import check as check_vocabulary
from ..tokenizer.normalization import normalize
from .alike import CHARACTERS, Shingles, find_alike, key_of
from .findings import Finding, NotChecked, Severity, named, percent

FEW, FEW_DEV = 200, 100  # rows
FEW_OF_LABEL = 10  # rows of one label
ALL_ALIKE = 0.95  # share of one label
UNBALANCED = 10.0  # rows of the commonest label for each of the rarest
DIVIDE = "divide one labelled file with --train FILE --dev-share 0.2"
SHIFT = 0.15  # total variation between the labels of train and dev
TWICE = 0.01  # share of rows from which duplicates and the like are a warning
SPOILED = 0.2  # share of dev rows in train from which the scores say nothing
CUT = 0.05  # share of rows that are cut
SAMPLE = 1_000  # rows that are tokenized
EXAMPLES = 3  # rows that a finding names


class Row(NamedTuple):
    """What all kinds of rows have: texts, a label, a line."""

    texts: tuple[str, ...]
    label: str | None
    line: int

    @property
    def text(self) -> str:
        """All texts of the row."""
        return "\n".join(self.texts)


def rows_of(task: Task, rows: Sequence[Any]) -> list[Row]:
    """The rows of any kind of task. Of questions the contexts, which train and dev must not share, each once."""
    if task.kind == "span":
        contexts: dict[str, int] = {}
        for row in rows:
            contexts.setdefault(row.context, row.line)
        return [Row((context,), None, line) for context, line in contexts.items()]
    if task.kind == "choice":
        return [Row((row.text, *row.choices), None if row.label is None else str(row.label), row.line) for row in rows]
    if task.kind == "tagging":
        return [Row((row.text,), None, row.line) for row in rows]
    return [Row((row.text,) if row.pair is None else (row.text, row.pair), row.label, row.line) for row in rows]


@dataclass(frozen=True)
class Rows:
    """The rows that are examined."""

    task: Task
    train: list[Row]
    dev: list[Row] = field(default_factory=list)  # [] if there is no second file
    tokenizer: Tokenizer | None = None  # of the model that reads them
    max_seq_length: int = 0  # tokens of an input; 0: not known
    divided: bool = False  # whether --dev-share drew the development rows from the table of the training rows

    @classmethod
    def of(cls, task: Task, data: Data, tokenizer: Tokenizer | None = None, max_seq_length: int = 0) -> "Rows":
        """The rows of a fine-tuning run."""
        divided = DIVIDED.fullmatch(data.source) is not None
        return cls(task, rows_of(task, data.train), rows_of(task, data.dev), tokenizer, max_seq_length, divided)

    @property
    def classes(self) -> bool:
        """Whether each row has one label that is a class."""
        return self.task.kind in ("single", "pair")

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """The words of each text of each training row."""
        return [tuple(map(key_of, row.texts)) for row in self.train]

    @cached_property
    def dev_keys(self) -> list[tuple[str, ...]]:
        """The words of each text of each development row."""
        return [tuple(map(key_of, row.texts)) for row in self.dev]

    @cached_property
    def shingles(self) -> tuple[Shingles, Shingles]:
        """Of the training and the development rows that are compared word by word: the first ones of each."""
        numbers: dict[str, int] = {}
        joined = ([" ".join(filter(None, key)) for key in keys] for keys in (self.keys, self.dev_keys))
        train, dev = (texts[: _within(texts)] for texts in joined)
        return Shingles.of_texts(train, numbers), Shingles.of_texts(dev, numbers)

    def labels(self, rows: list[Row]) -> Counter[str]:
        """How often each label occurs."""
        return Counter(name for row in rows for name in label_parts(row.label, self.task))


def _within(texts: list[str]) -> int:
    """How many texts have CHARACTERS characters together."""
    return sum(1 for total in accumulate(map(len, texts)) if total <= CHARACTERS)


def lines(rows: Iterable[Row]) -> str:
    """The lines of the first rows, for a sentence."""
    numbers = [row.line for row in rows]
    shown = ", ".join(map(str, numbers[:EXAMPLES]))
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{', ...' if len(numbers) > EXAMPLES else ''}"


def _share(count: int, total: int, limit: float = TWICE) -> Severity:
    return "warning" if count >= limit * total else "note"


# ---- how many


def count(rows: Rows) -> Iterator[Finding]:
    """Too few rows to learn from, or to judge on."""
    if len(rows.train) < FEW:
        yield Finding(
            "warning",
            f"{len(rows.train):,} training rows",
            f"label more rows, {FEW} or better 1,000; until then train several seeds (--restarts 5) and more updates "
            "(--min-steps 200), because single runs differ by many points",
            {"rows": len(rows.train)},
        )
    if 0 < len(rows.dev) < FEW_DEV:
        width = 100 * 1.96 * math.sqrt(0.25 / len(rows.dev))
        known = f": an accuracy near one half is known within ± {width:.0f} points (95 %)"
        accuracy = rows.task.kind not in NUMERIC  # values and scores of similarity have none
        yield Finding(
            "warning",
            f"{len(rows.dev):,} development rows{known if accuracy else ''}",
            "judge on more rows: " + ("label more, or give a larger --dev-share" if rows.divided else DIVIDE),
            {"rows": len(rows.dev), **({"points": round(width, 1)} if accuracy else {})},
        )


def balance(rows: Rows) -> Iterator[Finding]:
    """One label for nearly all rows, rare labels, and other shares in dev than in train."""
    if rows.task.kind == "regression":
        values = [float(row.label) for row in rows.train if row.label]
        if len(values) > 1 and np.ptp(values) == 0:
            yield Finding("error", f"every training row has the value {values[0]:g}", "there is nothing to learn")
        return
    if not (rows.classes or rows.task.kind == "multilabel"):
        raise NotChecked(f"rows of the kind {rows.task.kind} have no class")
    counts = rows.labels(rows.train)
    total = sum(counts.values())
    if not total:
        raise NotChecked("no labels")
    (most, often), *_ = ranked = counts.most_common()
    rarest, seldom = ranked[-1]
    numbers = {"commonest": often / total, "labels": len(counts)}
    if rows.classes and len(counts) > 1 and often >= ALL_ALIKE * total:
        yield Finding(
            "warning",
            f"{percent(often / total)} of the training rows have the label {named(most)}: always answering it has an "
            f"accuracy of {often / total:.3f}",
            "judge by macro_f1, not by accuracy; add rows of the other labels",
            numbers,
        )
    elif rows.classes and often >= UNBALANCED * seldom >= UNBALANCED * FEW_OF_LABEL:
        yield Finding(
            "warning",
            f"label {named(most)} has {often:,} training rows, {named(rarest)} has {seldom:,}",
            "judge by macro_f1 as well as by accuracy; add rows of the rare labels",
            numbers,
        )
    few = [name for name, times in counts.items() if times < FEW_OF_LABEL]
    if few and len(rows.train) >= FEW_OF_LABEL:
        shown = ", ".join(f"{named(name)} ({counts[name]})" for name in few[:EXAMPLES])
        yield Finding(
            "warning",
            f"{len(few)} of {len(counts)} labels have fewer than {FEW_OF_LABEL} training rows: {shown}"
            f"{', ...' if len(few) > EXAMPLES else ''}",
            "add rows, or join rare labels into one",
            {"rare": len(few), "labels": len(counts)},
        )
    yield from _shift(rows, counts)


def _shift(rows: Rows, counts: Counter[str]) -> Iterator[Finding]:
    """Labels that are more frequent in dev than in train, or the reverse; or in dev alone."""
    theirs = rows.labels(rows.dev)
    if not theirs:
        return
    if unknown := sorted(theirs.keys() - counts.keys()):
        yield Finding(
            "error",
            f"the development rows have labels that no training row has: {', '.join(map(named, unknown[:EXAMPLES]))}",
            "correct the labels, or add such rows to train",
            {"labels": len(unknown)},
        )
        return
    total, others = sum(counts.values()), sum(theirs.values())
    apart = {name: theirs[name] / others - counts[name] / total for name in counts | theirs}
    moved, noise = sum(map(abs, apart.values())) / 2, math.sqrt(len(apart) / others)
    if moved > max(SHIFT, noise):
        name = max(apart, key=lambda one: abs(apart[one]))
        yield Finding(
            "warning",
            f"label {named(name)} has {percent(counts[name] / total)} of the training rows and "
            f"{percent(theirs[name] / others)} of the development rows",
            "give another --split-seed, or label more rows"
            if rows.divided
            else f"draw both from the same rows: {DIVIDE}",
            {"moved": round(moved, 4)},
        )


# ---- the same row twice


def duplicates(rows: Rows) -> Iterator[Finding]:
    """Training rows that occur twice, exactly or nearly."""
    if rows.task.kind == "tagging":
        raise NotChecked("short sentences repeat in tagged text")
    again = repeated([(key, row.label) for row, key in zip(rows.train, rows.keys, strict=True)])
    same = [rows.train[i] for i in again]
    if same:
        yield Finding(
            _share(len(same), len(rows.train)),
            f"{len(same):,} of {len(rows.train):,} training rows repeat an earlier row with the same label "
            f"({lines(same)})",
            "look at them; `bertworks doctor TABLE --fix` writes a copy without those that are equal cell by cell"
            if rows.classes
            else "look at them",
            {"rows": len(same), "share": round(len(same) / len(rows.train), 4)},
        )
    if rows.task.kind == "choice":
        return
    shingles, exact = rows.shingles[0], {*repeated(rows.keys)}
    near = [rows.train[i] for i in find_alike(shingles, shingles) if i not in exact]
    if near:
        yield Finding(
            "note" if len(rows.task.text) > 1 else _share(len(near), len(rows.train), 0.05),
            f"{len(near):,} of {len(rows.train):,} training rows share most of their words with an earlier row "
            f"({lines(near)})",
            "look at them: templates and boilerplate teach little",
            {"rows": len(near), "share": round(len(near) / len(rows.train), 4)},
        )


def repeated(keys: Sequence[Any]) -> list[int]:
    """The positions of keys that occurred before."""
    seen: dict[Any, int] = {}
    return [i for i, key in enumerate(keys) if seen.setdefault(key, i) != i]


def conflicts(rows: Rows) -> Iterator[Finding]:
    """The same text with different labels."""
    if not rows.classes:
        raise NotChecked(f"rows of the kind {rows.task.kind} have no class")
    by_text: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row, key in zip(rows.train, rows.keys, strict=True):
        if row.label is not None:
            by_text[key].append(row)
    torn = [same for same in by_text.values() if len({row.label for row in same}) > 1]
    if torn:
        wrong = sum(len(same) - max(Counter(row.label for row in same).values()) for same in torn)
        one = torn[0]
        yield Finding(
            _share(wrong, len(rows.train)),
            f"{_texts(len(torn))} different labels in different rows: "
            f"{named(' / '.join(one[0].texts))} is "
            f"{' and '.join(named(str(name)) for name in dict.fromkeys(row.label for row in one))} ({lines(one)})",
            f"decide on one label for each; no model can be right on {wrong:,} of these rows",
            {"texts": len(torn), "rows": wrong},
        )


def _texts(count: int) -> str:
    return "1 text has" if count == 1 else f"{count:,} texts have"


def leakage(rows: Rows) -> Iterator[Finding]:
    """Development rows that are in the training rows, exactly or nearly."""
    if not rows.dev:
        raise NotChecked("no development rows given; give --dev, or divide the table: bertworks finetune --dev-share")
    train, what = set(rows.keys), "paragraphs" if rows.task.kind == "span" else "rows"
    same = {i for i, key in enumerate(rows.dev_keys) if key in train}
    whose, advice = f"the development {what}", "remove them from train, except to compare with published scores"
    if rows.divided:
        whose = "the table, which are development rows"
        advice = "keep such rows on one side with --group COLUMN, or remove these lines from the table"
    near = set() if rows.task.kind == "tagging" else {*find_alike(rows.shingles[1], rows.shingles[0])} - same
    for found, how in ((same, "are also"), (near, "share most of their words with rows")):
        if not found:
            continue
        share = len(found) / len(rows.dev)
        severity = _share(len(found), len(rows.dev))
        if share >= SPOILED and (found is same or len(rows.task.text) == 1):  # a pair may share one long text
            severity = "error"
        elif rows.task.kind == "tagging":
            severity = "note"  # short sentences repeat
        yield Finding(
            severity,
            f"{len(found):,} of {len(rows.dev):,} development {what} ({percent(share)}) {how} in the training {what} "
            f"({lines(rows.dev[i] for i in sorted(found))} of {whose})",
            f"{advice}: the scores on them say nothing about new texts",
            {"rows": len(found), "share": round(share, 4)},
        )


# ---- texts


def empty(rows: Rows) -> Iterator[Finding]:
    """Rows without a letter or digit, rows without a label."""
    bare = [row for row in (*rows.train, *rows.dev) if not any(char.isalnum() for char in row.texts[0])]
    total = len(rows.train) + len(rows.dev)
    if bare:
        yield Finding(
            _share(len(bare), total),
            f"{len(bare):,} of {total:,} rows have a text without a letter or digit ({lines(bare)})",
            "remove them, or restore their texts",
            {"rows": len(bare)},
        )
    unlabelled = [row for row in (*rows.train, *rows.dev) if rows.classes and row.label is None]
    if 0 < len(unlabelled) < total:
        yield Finding(
            "error",
            f"{len(unlabelled):,} of {total:,} rows have no label ({lines(unlabelled)})",
            "give them one, or remove them",
            {"rows": len(unlabelled)},
        )


def spelling(rows: Rows) -> Iterator[Finding]:
    """Labels that differ by case, white space or Unicode form alone."""
    if not rows.classes or rows.task.labels:
        raise NotChecked("the labels are given")
    forms: defaultdict[str, list[str]] = defaultdict(list)
    for name in rows.labels([*rows.train, *rows.dev]):
        forms[" ".join(normalize("NFC", name).casefold().split())].append(name)
    for names in forms.values():
        if len(names) > 1:
            alike = len({normalize("NFC", name) for name in names}) < len(names)  # on a screen the same
            yield Finding(
                "warning",
                f"labels that differ in {'Unicode form' if alike else 'case or blanks'} only: "
                f"{', '.join(map(ascii if alike else named, sorted(names)))}",
                "write them in one way; they are trained as different labels",
            )


def truncation(rows: Rows) -> Iterator[Finding]:
    """Texts that are longer than an input may be."""
    if rows.tokenizer is None or not rows.max_seq_length:
        raise NotChecked("no model given whose tokenizer counts tokens")
    if rows.task.kind in ("span", "tagging"):
        raise NotChecked(f"long rows of the kind {rows.task.kind} are divided into windows")
    sample = _sample(rows.train)
    specials = 2 if rows.classes and rows.task.kind == "single" else 3
    counts = [sum(map(len, rows.tokenizer.ids_of(list(row.texts[:2])))) + specials for row in sample]
    cut = sum(count > rows.max_seq_length for count in counts) / max(1, len(counts))
    if cut >= CUT:
        most = int(np.percentile(counts, 95))
        yield Finding(
            "warning",
            f"{percent(cut)} of {len(sample):,} training rows are longer than {rows.max_seq_length} tokens and are cut "
            f"(95 % have at most {most})",
            f"give --max-seq-length {-(-most // 16) * 16} if the model has so many positions; it takes more time",
            {"share": round(cut, 4), "tokens": most},
        )


def vocabulary(rows: Rows) -> Iterator[Finding]:
    """Texts that the vocabulary does not know, by script."""
    if rows.tokenizer is None:
        raise NotChecked("no model given whose vocabulary is compared")
    report = check_vocabulary(rows.tokenizer, (normalize("NFC", row.text) for row in _sample(rows.train)), 200_000)
    for warning in report.warnings:
        yield Finding("warning", warning.rstrip("."), "start from a model whose vocabulary has this script and case")


def _sample(rows: list[Row]) -> list[Row]:
    """SAMPLE rows, evenly spread."""
    return rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]


CHECKS: dict[str, Callable[[Rows], Iterable[Finding]]] = {
    "number of rows": count,
    "labels": balance,
    "spelling of labels": spelling,
    "empty rows": empty,
    "duplicate rows": duplicates,
    "conflicting labels": conflicts,
    "train and dev": leakage,
    "length": truncation,
    "vocabulary": vocabulary,
}
