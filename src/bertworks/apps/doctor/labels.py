"""Checks of the labels of rows: ids, rare, unbalanced, in several spellings, contradictory, of other shares in dev."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from ...tokenizer.normalization import normalize
from .findings import Finding, NotChecked, named, percent, some_of
from .rows import DIVIDE, EXAMPLES, IDS, OWN, Row, Rows, lines, own_labels, share_severity

FEW_OF_LABEL = 10  # rows of one label
ALL_ALIKE = 0.95  # share of one label
UNBALANCED = 10.0  # rows of the commonest label for each of the rarest
SHIFT = 0.15  # total variation between the labels of train and dev


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
    if rows.classes and own_labels(len(counts), total):  # nothing else about such labels means anything
        column = f"column {named(rows.task.label)}: " if rows.task.label else ""
        yield Finding("error", f"{column}{len(counts):,} labels for {total:,} training rows: {OWN}", IDS, numbers)
        return
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
            f"{some_of(len(few), len(counts), 'labels', 'has', 'have')} fewer than {FEW_OF_LABEL} training rows: "
            f"{shown}{', ...' if len(few) > EXAMPLES else ''}",
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
            share_severity(wrong, len(rows.train)),
            f"{_texts(len(torn))} different labels in different rows: "
            f"{named(' / '.join(one[0].texts))} is "
            f"{' and '.join(named(str(name)) for name in dict.fromkeys(row.label for row in one))} ({lines(one)})",
            f"decide on one label for each; no model can be right on {wrong:,} of these rows",
            {"texts": len(torn), "rows": wrong},
        )


def _texts(count: int) -> str:
    return "1 text has" if count == 1 else f"{count:,} texts have"


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
