"""The built-in tasks, from catalogue.toml."""

import tomllib
from pathlib import Path

from ..config import from_dict
from ..files import InputError
from .base import Task

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TASKS = {name: from_dict(Task, {"name": name, **table}, f"task {name}") for name, table in _TABLES.items()}


def find_task(name: str) -> Task:
    """The task of that name in any spelling, such as MNLI, SST-2 or sst2. Raises InputError for another name."""
    for task in TASKS.values():
        if _plain_name(task.name) == _plain_name(name):
            return task
    advice = "for data of your own give train, dev, text, label instead"
    raise InputError(f"no task {name!r}; expected one of {', '.join(TASKS)}; {advice}")


def _plain_name(name: str) -> str:
    """A task's name in one spelling: small letters, no hyphens."""
    return name.lower().replace("-", "").replace("_", "")
