"""Findings: what a check found, with its evidence and advice, and the report of an examination.

A check is a function that takes what is examined and yields findings; it raises `NotChecked` where it cannot look. Its
name is its key in a table of checks.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from ...files import InputError, clip

S = TypeVar("S")
Severity = Literal["note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("note", "warning", "error")
Number = float | int | str | None


class NotChecked(Exception):
    """A check cannot be made here; the message says why."""


@dataclass(frozen=True)
class Finding:
    """Something that an expert would point at."""

    severity: Severity  # error: the result is wrong or unusable; warning: it is worse than it could be; note: a fact
    evidence: str  # what was found, with its numbers
    advice: str = ""  # what to do
    numbers: Mapping[str, Number] = field(default_factory=dict)  # the evidence for programs
    check: str = ""  # name of the check
    where: str = ""  # the run or file, where several are examined


@dataclass
class Report:
    """What an examination found."""

    target: str
    kind: str  # "pre-training run", "corpus store", ...
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)  # names of the checks that were made
    skipped: dict[str, str] = field(default_factory=dict)  # checks that could not be made, and why
    fixed: list[str] = field(default_factory=list)  # what --fix did
    not_fixed: list[str] = field(default_factory=list)  # what --fix could not do, and why

    @property
    def worst(self) -> Severity | None:
        """The gravest severity; None if there is no finding."""
        return max((one.severity for one in self.findings), key=SEVERITIES.index, default=None)

    def examine(self, checks: Mapping[str, Callable[[S], Iterable[Finding]]], subject: S, where: str = "") -> None:
        """Make the checks on `subject` and keep what they find. A file that a check cannot read is an error.

        Several checks may fail at one damaged file: the first one reports it, the others count as not made.
        """
        for name, check in checks.items():
            try:
                found = [replace(one, check=name, where=one.where or where) for one in check(subject)]
            except NotChecked as reason:
                self.skipped.setdefault(name, str(reason))
                continue
            except InputError as error:
                known = [one.check for one in self.findings if (one.evidence, one.where) == (str(error), where)]
                if known and name not in known:
                    self.skipped.setdefault(name, f"the file that {known[0]!r} found damaged is needed")
                    continue
                found = [] if known else [Finding("error", str(error), check=name, where=where)]
            if name not in self.checked:
                self.checked.append(name)
            self.findings += found

    @contextlib.contextmanager
    def fixing(self, what: str) -> Iterator[None]:
        """Make a fix of `what`. If files cannot be read or written, keep the reason; the report is printed anyway."""
        try:
            yield
        except (InputError, OSError) as error:
            self.not_fixed.append(f"{what} ({getattr(error, 'strerror', None) or error})")

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        findings = [{**vars(one), "numbers": dict(one.numbers)} for one in self.sorted()]
        return {
            "target": self.target,
            "kind": self.kind,
            "worst": self.worst,
            "findings": findings,
            "checked": self.checked,
            "skipped": self.skipped,
            "fixed": self.fixed,
            "not_fixed": self.not_fixed,
        }

    def sorted(self) -> list[Finding]:
        """The findings, the gravest first."""
        return sorted(self.findings, key=lambda one: -SEVERITIES.index(one.severity))


def percent(share: float) -> str:
    """A share as text: 12 %, 0.4 %."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def some_of(count: int, total: int, what: str, one: str, several: str) -> str:
    """Some of all, and the verb that fits: 1 of 63 rows has, 2 of 63 rows have."""
    return f"{count:,} of {total:,} {what} {one if count == 1 else several}"


def named(name: str) -> str:
    """The name of a label or column in a sentence."""
    return repr(clip(name, 40))
