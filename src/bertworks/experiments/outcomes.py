"""Finished runs of fine-tuning, read from their folders for `compare`."""

from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, not_found, shorten
from ..reporting.run_files import LOG, METRICS, PREDICTIONS, RESULTS, read_json_lines, read_results, seed_folders
from ..training.identity import RECIPE
from ..training.run import STATE_FOLDER
from ..typed import check_fields


class Outcome(NamedTuple):
    """A finished run: its results, and what it predicted for each development row."""

    folder: Path
    results: dict[str, Any]
    rows: list[dict[str, Any]]


def read_runs(folder: Path) -> dict[int | None, Outcome]:
    """The run in `folder`, under None, or those of its seeds. Raises InputError if one is missing or unfinished."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {not_found(folder, 'folder')}; runs are folders that `bertworks finetune` wrote")
    return {seed: read_run(run) for seed, run in seed_folders(folder).items()} or {None: read_run(folder)}


def read_run(folder: Path) -> Outcome:
    """The run in `folder`. Raises InputError if there is none, or if it is not finished."""
    path, expected = folder / RESULTS, "expected a run folder of `bertworks finetune`"
    if not path.exists():
        started = any((folder / name).exists() for name in (RECIPE, LOG, STATE_FOLDER, PREDICTIONS))
        found = "is not finished" if started else "is no run"
        raise InputError(f"{folder} {found} (no {RESULTS}); {'rerun its command' if started else expected}")
    results = read_results(path, {"kind?": str})
    if (kind := results.get("kind")) != "finetune":
        inside = f", such as one in {folder / 'cells'}" if (folder / "cells").is_dir() else ""
        raise InputError(f"{folder}: results of the kind {shorten(kind)}; {expected}{inside}")
    if not (folder / PREDICTIONS).is_file():
        raise InputError(
            f"{folder}: no {PREDICTIONS} in this folder; restore it, or run the fine-tuning again in a new folder"
        )
    check_fields(results, {"task": str, "metrics": METRICS, "predicted": {str: int}}, str(path))
    rows = read_json_lines(folder / PREDICTIONS, {})
    if not rows:
        raise InputError(f"{folder / PREDICTIONS}: no rows in it; restore it, or fine-tune again in a new folder")
    return Outcome(folder, results, rows)
