"""The result files of a run, read and checked: results.json, log.jsonl, predictions.jsonl.

The reader says which fields it needs, and of what form (typed.py). A file that was changed outside the
program gives one message with file and field, never a traceback.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

from ..files import READ_BYTES, InputError, parse_json, read_bytes, read_json
from ..typed import check_fields

RUN: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 10}  # of a git command
LOG = "log.jsonl"
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"
EXAMPLES = "examples.jsonl"  # a few development examples, which the page of `bertworks serve` offers
TRAINED_ON = "trained_on.npy"  # hashes of the training examples, which `evaluate` compares with its own
METRICS = {str: float}
RECORD = {"kind": str, "step": range(1 << 63), "seconds?": (float, None)}  # of a log; all else is a number or null
REPAIR = "restore the file"


def commit() -> str | None:
    """The commit of the code that runs, with "-dirty" if files differ from it; None if it runs from no checkout.

    An installed copy inside somebody else's repository has no commit: git must know this very file.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    describe = [*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], **RUN)
        return subprocess.run(describe, **RUN).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def seed_folders(folder: Path) -> dict[int, Path]:
    """The folders seed-1, seed-2, ... of a run with several seeds, by seed."""
    folders = {int(path.name[5:]): path for path in folder.glob("seed-*") if re.fullmatch(r"seed-\d+", path.name)}
    return dict(sorted(folders.items()))


def run_folders(folder: Path) -> list[Path]:
    """The run folders below a folder: of seeds, a search, a study, a demo (finetune/tags/own/lr-0.001/seed-1)."""
    folders = {path.parent for depth in range(1, 6) for path in folder.glob("*/" * depth + LOG)}
    return sorted(path for path in folders if path.name != "model" and path.parent.name != "snapshots")


def runs_in(folder: Path) -> list[Path]:
    """`folder`, or the runs of its seeds, seed-1, seed-2 ... Raises InputError if it holds other runs."""
    if (folder / LOG).exists():
        return [folder]
    inside = run_folders(folder)
    seeds = [run for run in seed_folders(folder).values() if run in inside]
    if len(seeds) == len(inside):
        return seeds or [folder]
    raise InputError(f"{folder} is a folder of {len(inside)} runs; give those to draw, such as {inside[0]}")


def read_results(path: Path | str, form: Any, repair: str = REPAIR) -> Any:
    """A JSON file that a run wrote. Raises InputError for what does not fit `form`; `repair` says what to do then."""
    try:
        results = read_json(path)
    except InputError as error:
        raise InputError(f"{error}; {repair}") from None
    check_fields(results, form, str(path), repair)
    return results


def read_log(run: Path | str) -> list[dict[str, Any]]:
    """The records of a run's log, oldest first; a last line that was cut by a kill is left out.

    Raises InputError with file and line for a line that no run writes.
    """
    return read_json_lines(Path(run) / LOG, RECORD, {str: (float, None, str)}, cut=True)


def read_json_lines(path: Path, *forms: Any, cut: bool = False) -> list[Any]:
    """The JSON objects that a run wrote, one per line. Raises InputError with file and line for one of another form.

    cut: leave out a last line that a kill has cut.
    """
    lines = read_bytes(path, "the lines of JSON that a run writes", READ_BYTES).split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if number == len(lines) and not line:
            break
        try:
            records.append(parse_json(line, where))
        except InputError as error:
            if cut and number == len(lines):  # no newline behind it
                break
            raise InputError(f"{error}; {REPAIR}, or remove the line") from None
        for form in forms:
            check_fields(records[-1], form, where, f"{REPAIR}, or remove the line")
    return records
