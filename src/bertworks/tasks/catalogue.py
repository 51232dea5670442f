"""All the tasks that have a literal, by name."""

import difflib

from ..files import InputError
from .base import Task
from .glue import GLUE
from .korean import KOREAN
from .ner import NER
from .squad import SQUAD
from .swag import CHOICES

TASKS: dict[str, Task] = {**GLUE, **SQUAD, **CHOICES, **NER, **KOREAN}


def find_task(name: str) -> Task:
    """The task of that name, however written: MNLI, SST-2 and sst2 are found. Raises InputError for an unknown one."""
    plain = plain_name(name)
    found = next((task for key, task in TASKS.items() if plain_name(key) == plain), None)
    if found is None:
        near = difflib.get_close_matches(name.lower(), TASKS, 1)
        hint = f"did you mean {near[0]}" if near else f"known: {', '.join(TASKS)}"
        raise InputError(f"no task {name!r}; {hint}. For data of your own: --train, --dev, --text, --label")
    return found


def plain_name(name: str) -> str:
    """A task's name in one spelling: small letters, no hyphens."""
    return name.lower().replace("-", "").replace("_", "")
