"""Folders of runs: seeds, a sweep, a suite, cells, a demo. What several runs have in common is listed once."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...reporting.run_files import LOG, RESULTS
from .findings import Finding, NotChecked
from .logs import RunFiles

UNSTABLE = 0.05  # standard deviation over seeds
SHOWN = 4  # runs that a finding names
DEEPEST = 5  # folders from a folder of runs to a run: a demo has finetune/tags/pre-trained/lr-0.001/seed-1


def seeds(run: RunFiles) -> Iterator[Finding]:
    """Seeds that collapsed, and scores that differ much between seeds."""
    results = run.results
    runs = results.get("runs") or []
    if not results.get("seeds") or not runs:
        raise NotChecked("one seed")
    fallen = [seed for seed, one in zip(results["seeds"], results.get("collapsed") or [], strict=False) if one]
    if fallen:
        yield Finding(
            "warning",
            f"{len(fallen)} of {len(runs)} seeds collapsed: {', '.join(map(str, fallen))}",
            "report means with and without them; optim.rule = 'adamw' and more epochs make fine-tuning more stable",
            {"collapsed": len(fallen), "seeds": len(runs)},
        )
    name = next(name for name in runs[0] if name != "loss")
    values = [
        one[name] for one, bad in zip(runs, results.get("collapsed") or [False] * len(runs), strict=False) if not bad
    ]
    if len(values) > 1 and (spread := statistics.stdev(values)) > UNSTABLE:
        yield Finding(
            "warning",
            f"{name} differs by a standard deviation of {100 * spread:.1f} points over {len(values)} seeds "
            f"({100 * min(values):.1f} to {100 * max(values):.1f})",
            "train more seeds before you compare anything; recipe `stable` has what helps (--recipe stable)",
            {"std": spread, "seeds": len(values)},
        )


def runs_inside(folder: Path) -> list[Path]:
    """The run folders in a folder of runs: seeds, a sweep, a suite, the cells of a study."""
    found = {path.parent for depth in range(1, DEEPEST + 1) for path in folder.glob("*/" * depth + LOG)}
    above = {parent for path in found for parent in path.parents}
    found |= {path.parent for path in folder.glob(f"*/{RESULTS}") if path.parent not in above}
    return sorted(path for path in found if path.name != "model" and path.parent.name != "snapshots")


def parts_of_demo(folder: Path) -> Iterator[Finding]:
    """The folders of a demo, which are examined one by one."""
    store, pretrained = folder / "store", folder / "pretrain"
    ways = [f"{pretrained} --corpus {store}"] if (pretrained / LOG).is_file() else []
    ways += [str(store)] if store.is_dir() else []
    ways += sorted(str(path.parent) for path in folder.glob("finetune/*/pre-trained"))
    yield Finding(
        "note",
        f"a demo{'' if (folder / RESULTS).is_file() else ', under way or stopped'}: its parts were not examined",
        "; ".join(f"bertworks doctor {way}" for way in ways) or "rerun the demo to resume",
        {"parts": len(ways)},
    )


def groups_of(folder: Path, runs: Sequence[Path]) -> list[Path]:
    """The folders between `folder` and its runs that have results: a sweep's settings, or a suite's tasks."""
    above = {parent for run in runs for parent in run.parents if folder in parent.parents}
    return sorted(path for path in above if (path / RESULTS).is_file())


def merged(findings: Iterable[Finding], everyone: Sequence[str], what: str = "runs") -> list[Finding]:
    """One finding for those of one check and advice in several runs; where their evidence differs, it names each run's.

    everyone: the names of all runs; what: what they are.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.check, one.severity, one.advice), []).append(one)
    return [one for same in groups.values() for one in _joined(same, everyone, what)]


def _joined(same: Sequence[Finding], everyone: Sequence[str], what: str) -> list[Finding]:
    """Findings of one check and advice as one, unless they are all of one run."""
    names = list(dict.fromkeys(one.where for one in same))
    if len(names) == 1:
        return [replace(one, numbers={**one.numbers, "runs": 1}) for one in same]
    by_evidence: dict[str, list[str]] = {}
    for one in same:
        by_evidence.setdefault(one.evidence, []).append(one.where)
    evidence, numbers = same[0].evidence, dict(same[0].numbers)
    if len(by_evidence) > 1:
        parts = [f"{_names(runs, everyone)}: {text}" for text, runs in by_evidence.items()]
        more = f"; and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
        evidence, numbers = "; ".join(parts[:SHOWN]) + more, {}
    return [
        replace(
            same[0], evidence=evidence, where=_those(names, everyone, what), numbers={**numbers, "runs": len(names)}
        )
    ]


def _those(names: Sequence[str], everyone: Sequence[str], what: str) -> str:
    """Which of all runs, in words."""
    if {*names} == {*everyone}:
        return f"all {len(names)} {what}"
    return f"{len(names)} of {len(everyone)} {what} ({_names(names, everyone)})"


def _names(names: Sequence[str], everyone: Sequence[str]) -> str:
    """The names of runs; a setting is named in place of its runs if all of them are among these."""
    folders = {name: name.rpartition("/")[0] for name in everyone}
    some = {folders[name] for name in everyone if name not in names} | {""}
    shown = list(dict.fromkeys(name if folders.get(name, "") in some else folders[name] for name in names))
    more = f", and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"{', '.join(shown[:SHOWN])}{more}"


SEED_CHECKS: Mapping[str, Callable[[RunFiles], Iterable[Finding]]] = {"seeds": seeds}
