"""The files in which a run says what it did, read and checked: results.json, log.jsonl, predictions.jsonl.

Whoever reads one says which fields it needs, and of what form. A file that was changed outside the program gives one
message with file and field, never a traceback.

A form is a type (float: any number), None for null, a table of forms by key ("key?" may be missing), {str: form} for a
table with any keys, [form] for a list, [form, form] for one of exactly two, or a tuple of forms of which one must fit.
"""

import subprocess
from pathlib import Path
from typing import Any

from ..files import READ_BYTES, InputError, parse_json, read_bytes, read_json, shorten

RUN: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 10}  # of a git command
LOG = "log.jsonl"
RESULTS = "results.json"
METRICS = {str: float}
RECORD = {"kind": str, "step": int}  # of a log; all else in it is a number or null
REPAIR = "restore the file"
_NAMES = {float: "a number", int: "an integer", str: "a text", bool: "true or false", dict: "a table", list: "a list"}


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


def read_results(path: Path | str, form: Any, repair: str = REPAIR) -> Any:
    """A JSON file that a run wrote. Raises InputError for what does not fit `form`; `repair` says what to do then.

    NaN and Infinity are read: runs could write them once.
    """
    found = read_json(path, finite=False)
    check(found, form, str(path), repair)
    return found


def read_log(run: Path | str) -> list[dict[str, Any]]:
    """The records of a run's log, oldest first; a last line that was cut by a kill is left out.

    Raises InputError with file and line for a line that no run writes.
    """
    return _read_lines(Path(run) / LOG, RECORD, {str: (float, None, str)}, cut=True)


def read_rows(path: Path, form: Any) -> list[Any]:
    """What a run wrote for each row of a file, a JSON object a line. Raises InputError with file and line."""
    return _read_lines(path, form)


def _read_lines(path: Path, *forms: Any, cut: bool = False) -> list[Any]:
    lines = read_bytes(path, "the lines of JSON that a run writes", READ_BYTES).split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if number == len(lines) and not line:
            break
        try:
            found.append(parse_json(line, where, finite=False))
        except InputError as error:
            if cut and number == len(lines):  # no newline behind it
                break
            raise InputError(f"{error}; {REPAIR}, or remove the line") from None
        for form in forms:
            check(found[-1], form, where, f"{REPAIR}, or remove the line")
    return found


def check(value: Any, form: Any, where: str, repair: str = REPAIR) -> None:
    """Raises InputError, which begins with `where`, if the value does not fit the form."""
    if problem := _problem(value, form, ""):
        raise InputError(f"{where}: {problem}; {repair}")


def _problem(value: Any, form: Any, field: str) -> str:
    """What is wrong, in words; "" if nothing is."""
    if isinstance(form, tuple):
        problems = [_problem(value, one, field) for one in form]
        return "" if "" in problems else problems[0]
    kind = type(form) if isinstance(form, dict | list) else form
    if not _is(value, kind):
        found = f"field {field} is {shorten(value)}" if field else f"found {shorten(value)}"
        return f"{found}; expected {_NAMES.get(kind, 'null')}"
    if isinstance(form, list):
        if len(form) > 1 and len(value) != len(form):
            return f"field {field} has {len(value)} items; expected {len(form)}"
        return _first((value[i], form[0], f"{field}[{i}]") for i in range(len(value)))
    if not isinstance(form, dict):
        return ""
    if str in form:
        return _first((item, form[str], _join(field, key)) for key, item in value.items())
    missing = [key for key in form if not key.endswith("?") and key not in value]
    if missing:
        return f"no field {_join(field, missing[0])}; expected {', '.join(key.rstrip('?') for key in form)}"
    named = ((key.rstrip("?"), one) for key, one in form.items())
    return _first((value[key], one, _join(field, key)) for key, one in named if key in value)


def _is(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _first(cases: Any) -> str:
    return next((problem for case in cases if (problem := _problem(*case))), "")


def _join(field: str, key: str) -> str:
    return f"{field}.{shorten(key)[1:-1]}".lstrip(".")
