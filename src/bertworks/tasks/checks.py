"""Checks of labelled data before training: what would make its scores wrong, or worse than they could be.

`bertworks.finetune`, the command line and `bertworks doctor` call `check_labelled_data`. Two texts count as equal if
their words are, whatever their case, punctuation, white space and Unicode form (data/near_duplicates.py).
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.near_duplicates import duplicate_key, find_near_duplicates, word_shingles
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

FEW_TRAIN, FEW_DEV = 200, 100  # examples
UNBALANCED = 10  # examples of the most frequent label per example of the rarest
NOTABLE = 0.01  # fraction of the examples from which duplicates and the like are a warning
LEAK = 0.2  # fraction of the development examples in train from which their scores say nothing
SEEN = 0.05  # fraction of evaluated examples that a run was trained on; fewer may be duplicates
TRUNCATED = 0.05  # fraction of the examples
SAMPLE, CHARACTERS = 1_000, 200_000  # examples, and characters of them, whose words are looked up in the vocabulary
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


def check_labelled_data(
    task: Task, train: Sequence[Any], dev: Sequence[Any] = (), tokenizer: Tokenizer | None = None
) -> list[Finding]:
    """What is wrong with labelled data, the gravest finding first.

    train, dev: examples as `read_rows` returns them. tokenizer: of the model to train; its vocabulary is checked.
    """
    rows, others = rows_of(task, train), rows_of(task, dev)
    found = [*sizes(task, rows, others), *labels(task, rows, others), *texts(task, rows, others)]
    if tokenizer is not None:
        found += vocabulary(tokenizer, rows)
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
        seen = int(np.isin(hashes, np.load(path, mmap_mode="r")).sum())
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array of hashes ({error}); restore the file, or remove it") from None
    if not seen or seen < (LEAK if task.kind == "tagging" else SEEN) * len(hashes):  # short sentences repeat
        return []
    evidence = f"training examples of {run} among the evaluated ones: {seen:,} of {len(hashes):,}"
    return [Finding("train/dev overlap", "warning", f"{evidence}; these scores say little about new texts")]


def sizes(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Too few examples to learn from, or to evaluate on."""
    if len(train) < FEW_TRAIN:
        evidence = f"{counted(len(train), 'training example')}: scores differ by many points between seeds"
        advice = f"label {FEW_TRAIN} or better 1,000; until then train several seeds for at least 200 updates each"
        yield Finding("few examples", "warning", evidence, advice)
    if 0 < len(dev) < FEW_DEV and task.kind not in NUMERIC:
        interval = f"95 % interval of an accuracy of 50 %: ± {98 / math.sqrt(len(dev)):.0f} points"
        evidence = f"{counted(len(dev), 'development example')}: {interval}"
        yield Finding(
            "few examples", "warning", evidence, "label more, or give a larger dev_share of one labelled file"
        )


def labels(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Labels that train lacks, and one label for nearly all examples."""
    count, others = (_label_counts(task, rows) for rows in (train, dev))
    if unknown := sorted(others.keys() - count.keys()):
        names = _first(map(named, unknown))
        evidence = f"labels in the development examples alone, which no model can predict: {names}"
        yield Finding("labels", "error", evidence, "correct the labels, or add such examples to train")
    if task.kind == "multilabel" or len(count) < 2:
        return
    (most, often), (rarest, seldom) = (count.most_common()[i] for i in (0, -1))
    if often >= UNBALANCED * seldom:
        yield Finding(
            "labels",
            "warning",
            f"label {named(most)} has {often:,} of {count.total():,} training examples, {named(rarest)} {seldom:,}: "
            f"the majority-class baseline has an accuracy of {often / count.total():.3f}",
            "report macro_f1 beside accuracy; label more examples of the rare labels, or repeat those that there are",
        )


def _label_counts(task: Task, rows: Iterable[Row]) -> Counter[str]:
    """How often each label occurs; empty for kinds of tasks without classes."""
    if task.kind not in ("single", "pair", "multilabel"):
        return Counter()
    return Counter(name for row in rows for name in label_parts(row.label, task))


def texts(task: Task, train: Sequence[Row], dev: Sequence[Row]) -> Iterator[Finding]:
    """Texts without a letter or digit, examples that occur twice, and development examples that are also in train."""
    rows = [*train, *dev]
    if empty := [row for row in rows if not any(map(str.isalnum, row.texts[0]))]:
        yield _finding("empty texts", "texts without a letter or digit", empty, rows, "remove them, or restore them")
    groups: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in train:
        groups[row.key].append(row)
    if task.kind != "tagging":  # short sentences repeat
        yield from _duplicates(task, [rows for rows in groups.values() if len(rows) > 1], train)
    exact, near = [row for row in dev if row.key in groups], list[Row]()
    if task.kind not in ("tagging", "choice") and dev:
        others = [row for row in dev[:COMPARED] if row.key not in groups]
        mine, known = ([word_shingles(" ".join(row.key)) for row in split] for split in (others, train[:COMPARED]))
        near = [others[i] for i in find_near_duplicates(mine, known)]
    what = f"development {'contexts' if task.kind == 'span' else 'examples'}"
    advice = (
        "their scores say nothing about new texts: remove them from train; in one divided file (dev_share) keep what "
        "belongs together in one split (group)"
    )
    for evidence, found, leaks in (
        (f"{what} that are also in train", exact, True),
        (f"{what} that share most of their words with one in train", near, len(task.text) == 1),  # not of pairs
    ):
        if found:
            finding = _finding("train/dev overlap", evidence, found, dev, advice)
            less: Severity = "note" if task.kind == "tagging" else finding.severity
            yield replace(finding, severity="error" if leaks and len(found) >= LEAK * len(dev) else less)


def _duplicates(task: Task, groups: Sequence[Sequence[Row]], train: Sequence[Row]) -> Iterator[Finding]:
    """Training examples of equal texts, with one label or with several."""
    firsts = {id(row) for rows in groups for row in {one.label: one for one in reversed(rows)}.values()}
    if repeated := [row for rows in groups for row in rows if id(row) not in firsts]:
        repeated.sort(key=lambda row: row.line)
        what = "training examples that repeat an earlier one with its label"
        yield _finding("duplicates", what, repeated, train, "remove them, unless texts repeat in practice too")
    torn = [rows for rows in groups if task.kind in ("single", "pair") and len({row.label for row in rows}) > 1]
    if torn:
        wrong = [row for rows in torn for row in rows if row.label != _label_counts(task, rows).most_common(1)[0][0]]
        names = " and ".join(map(named, _label_counts(task, torn[0])))
        evidence = (
            f"texts with different labels: {len(torn):,}; {named(' / '.join(torn[0][0].texts))} is {names} "
            f"({_lines(torn[0])}); no model can be right on {len(wrong):,} of these examples"
        )
        yield Finding("conflicting labels", _severity(wrong, train), evidence, "decide on one label per text")


def vocabulary(tokenizer: Tokenizer, train: Sequence[Row]) -> Iterator[Finding]:
    """Words of up to SAMPLE training examples, evenly spread, that the vocabulary lacks."""
    rows = train[:: max(1, len(train) // SAMPLE)][:SAMPLE]
    sample = (normalize("NFC", "\n".join(row.texts)) for row in rows)
    if reason := check_vocabulary(tokenizer, sample, CHARACTERS).reason or normalizer_mismatch(tokenizer):
        yield Finding("vocabulary", "warning", reason, "use a model whose vocabulary has this script and case")


def _finding(check: str, what: str, rows: Sequence[Row], of: Sequence[Row], advice: str) -> Finding:
    """A finding about some rows of many: how many, and the lines of the first ones."""
    return Finding(check, _severity(rows, of), f"{what}: {len(rows):,} of {len(of):,} ({_lines(rows)})", advice)


def _first(words: Iterable[str]) -> str:
    words = [*words]
    return ", ".join([*words[:SHOWN], *(["..."] if len(words) > SHOWN else [])])


def _lines(rows: Sequence[Row]) -> str:
    return f"line{'s' if len(rows) > 1 else ''} {_first(str(row.line) for row in rows)}"


def _severity(rows: Sequence[Row], of: Sequence[Row]) -> Severity:
    return "warning" if len(rows) >= NOTABLE * len(of) else "note"


def percent(share: float) -> str:
    """A fraction as text: 12 %, 0.4 %."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def named(name: str) -> str:
    """A label or a text in a message."""
    return repr(clip(name, 40))
