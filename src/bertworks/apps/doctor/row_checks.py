"""Checks of rows to train and to judge on: too few, twice there, in both files, empty, cut; then those of labels.py."""

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ...data.encodings import misread
from ...reporting.tables import counted
from ...tasks.classification import NUMERIC
from ...tokenizer.check import check as check_vocabulary
from ...tokenizer.normalization import normalize
from .alike import find_alike
from .findings import Finding, NotChecked, percent, some_of
from .labels import balance, conflicts, spelling
from .rows import CUT, DIVIDE, FEW, Row, Rows, lines, lines_like, repeated, share_severity

FEW_DEV = 100  # rows
SPOILED = 0.2  # share of dev rows in train from which the scores say nothing
SAMPLE = 1_000  # rows that are tokenized
LOOK = "look at them"
COPIES = "; `bertworks doctor TABLE --fix` writes a copy without those that are equal cell by cell"
SHARES = ("shares most of its words", "share most of their words")


def count(rows: Rows) -> Iterator[Finding]:
    """Too few rows to learn from, or to judge on."""
    if len(rows.train) < FEW:
        yield Finding(
            "warning",
            counted(len(rows.train), "training row"),
            f"label more rows, {FEW} or better 1,000; until then train several seeds (--seeds 1 2 3 4 5) and "
            "more updates (--min-steps 200), because single runs differ by many points",
            {"rows": len(rows.train)},
        )
    if 0 < len(rows.dev) < FEW_DEV:
        width = 100 * 1.96 * math.sqrt(0.25 / len(rows.dev))
        known = f": an accuracy near one half is known within ± {width:.0f} points (95 %)"
        accuracy = rows.task.kind not in NUMERIC  # values and scores of similarity have none
        yield Finding(
            "warning",
            f"{counted(len(rows.dev), 'development row')}{known if accuracy else ''}",
            "judge on more rows: " + ("label more, or give a larger --dev-share" if rows.divided else DIVIDE),
            {"rows": len(rows.dev), **({"points": round(width, 1)} if accuracy else {})},
        )


def duplicates(rows: Rows) -> Iterator[Finding]:
    """Training rows that occur twice, exactly or nearly."""
    if rows.task.kind == "tagging":
        raise NotChecked("short sentences repeat in tagged text")
    again = repeated([(key, row.label) for row, key in zip(rows.train, rows.keys, strict=True)])
    same = [(rows.train[i], rows.train[first]) for i, first in again.items()]
    if same:
        yield Finding(
            share_severity(len(same), len(rows.train)),
            f"{some_of(len(same), len(rows.train), 'training rows', 'repeats', 'repeat')} an earlier row with the same "
            f"label ({lines_like(same)})",
            LOOK + (COPIES if rows.classes else ""),
            {"rows": len(same), "share": round(len(same) / len(rows.train), 4)},
        )
    if rows.task.kind == "choice":
        return
    shingles, exact = rows.shingles[0], {*repeated(rows.keys)}
    alike = find_alike(shingles, shingles)
    near = [(rows.train[i], rows.train[first]) for i, first in alike.items() if i not in exact]
    if near:
        yield Finding(
            "note" if len(rows.task.text) > 1 else share_severity(len(near), len(rows.train), 0.05),
            f"{some_of(len(near), len(rows.train), 'training rows', *SHARES)} with an earlier row ({lines_like(near)})",
            "look at them: templates and boilerplate teach little",
            {"rows": len(near), "share": round(len(near) / len(rows.train), 4)},
        )


def leakage(rows: Rows) -> Iterator[Finding]:
    """Development rows that are in the training rows, exactly or nearly."""
    if not rows.dev:
        raise NotChecked("no development rows given; give --dev, or divide the table: bertworks finetune --dev-share")
    what = "paragraphs" if rows.task.kind == "span" else "rows"
    train = {key: i for i, key in reversed([*enumerate(rows.keys)])}  # the first row of each
    same = {i: train[key] for i, key in enumerate(rows.dev_keys) if key in train}
    whose, advice = f" of the development {what}", "remove them from train, except to compare with published scores"
    if rows.divided:
        whose = " of the table, drawn as development rows"
        advice = "keep such rows on one side with --group COLUMN, or remove these lines from the table"
    alike = {} if rows.task.kind == "tagging" else find_alike(rows.shingles[1], rows.shingles[0])
    near = {i: first for i, first in alike.items() if i not in same}
    for found, how in ((same, ("is also", "are also")), (near, (f"{one} with rows" for one in SHARES))):
        if not found:
            continue
        pairs = [(rows.dev[i], rows.train[first]) for i, first in sorted(found.items())]
        share = len(found) / len(rows.dev)
        severity = share_severity(len(found), len(rows.dev))
        if share >= SPOILED and (found is same or len(rows.task.text) == 1):  # a pair may share one long text
            severity = "error"
        elif rows.task.kind == "tagging":
            severity = "note"  # short sentences repeat
        yield Finding(
            severity,
            f"{some_of(len(found), len(rows.dev), f'development {what} ({percent(share)})', *how)} in the training "
            f"{what} ({lines_like(pairs, whose, '' if rows.divided else f' of the training {what}')})",
            f"{advice}: the scores on them say nothing about new texts",
            {"rows": len(found), "share": round(share, 4)},
        )


def empty(rows: Rows) -> Iterator[Finding]:
    """Rows without a letter or digit, rows without a label."""
    bare = [row for row in (*rows.train, *rows.dev) if row.is_bare]
    total = len(rows.train) + len(rows.dev)
    if bare:
        yield Finding(
            share_severity(len(bare), total),
            f"{some_of(len(bare), total, 'rows', 'has', 'have')} a text without a letter or digit ({lines(bare)})",
            "remove them, or restore their texts",
            {"rows": len(bare)},
        )
    unlabelled = [row for row in (*rows.train, *rows.dev) if rows.classes and row.label is None]
    if 0 < len(unlabelled) < total:
        yield Finding(
            "error",
            f"{some_of(len(unlabelled), total, 'rows', 'has', 'have')} no label ({lines(unlabelled)})",
            "give them one, or remove them",
            {"rows": len(unlabelled)},
        )


def reading(rows: Rows) -> Iterator[Finding]:
    """Texts that were read in another encoding than their own."""
    if told := misread("\n".join(row.text for row in _sample(rows.train)), rows.task.form.encoding):
        found, _, advice = told.partition("; ")
        yield Finding("warning", found, advice)


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
        wanted = most if most > rows.max_seq_length else max(counts)
        yield Finding(
            "warning",
            f"{percent(cut)} of {len(sample):,} training rows are longer than {rows.max_seq_length} tokens and are cut "
            f"(95 % have at most {most}, the longest {max(counts)})",
            f"give --max-seq-length {-(-wanted // 16) * 16} if the model has so many positions (it takes more time), "
            "or shorten the texts to what decides their labels",
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
    "encoding of the texts": reading,
    "duplicate rows": duplicates,
    "conflicting labels": conflicts,
    "train and dev": leakage,
    "length": truncation,
    "vocabulary": vocabulary,
}
