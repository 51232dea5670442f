"""The curves of a run folder, as its log is written: what the page's tab "Training" draws."""

from pathlib import Path
from typing import Any

from ...reporting.run_files import LOG, RESULTS, read_log

MOST = 1000  # records of a kind that are returned


def read_curves(run: Path, seen: str = "") -> dict[str, Any]:
    """The name of the run, whether it has results, a version of its log, and the log's records, MOST of each kind.

    seen: the version that the caller has; if it is today's, `records` is null. A run that has not begun has no records.
    Raises InputError if the log is damaged.
    """
    log = run / LOG
    named = {"run": run.resolve().name, "finished": (run / RESULTS).is_file()}
    if not log.is_file():
        return {**named, "version": "", "records": []}
    found = log.stat()
    version = f"{found.st_size}-{found.st_mtime_ns}"
    records = None if version == seen else thinned(read_log(run))
    return {**named, "version": version, "records": records}


def thinned(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most MOST records of each kind, evenly spaced, the last one among them; in their order."""
    kept: set[int] = set()
    for kind in {record["kind"] for record in records}:
        numbers = [i for i, record in enumerate(records) if record["kind"] == kind]
        step = -(-len(numbers) // MOST)
        kept.update(numbers[::-1][::step])
    return [record for i, record in enumerate(records) if i in kept]
