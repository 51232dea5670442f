"""A run, and its identity: its recipe and all that it reads, and nothing else.

When a command is run again, its run is recognised by the hash in results.json or in the state. If the hash differs, the
recipe.toml beside it shows which field differs.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config import differences, load_recipe, to_toml
from ..files import InputError
from .distributed import World

RECIPE = "recipe.toml"
FORMAT = 2  # of results.json; 1: those without a number
_SHOWN = 3  # differing fields that a message has

RecordCallback = Callable[[Mapping[str, Any]], Any]
"""Called with each record of a run's log; when it returns True, the run is saved and stops."""


@dataclass(frozen=True)
class RunIdentity:
    """Everything that determines the result of a run."""

    recipe: Any  # resolved: a dataclass, with or without a `loop`
    inputs: tuple[str, ...] = ()  # checksums and names of all that the run reads
    settings: tuple[Any, ...] = ()  # further dataclasses that determine it

    @cached_property
    def hash(self) -> str:
        """The hash that is recorded in results.json and state, and that names the folder of a study's run."""
        texts = [to_toml(one) for one in (reproducible_settings(self.recipe), *self.settings)]
        return hashlib.sha256("\n".join([*texts, *self.inputs]).encode()).hexdigest()

    def difference(self, run: Path) -> str:
        """In which fields the recipe of a run folder differs, as a sentence and a space; "" if that is unknown."""
        path = run / RECIPE
        try:
            recipe = load_recipe(path, type(self.recipe))
        except InputError:  # of another version, for example
            return ""
        unlike = differences(reproducible_settings(recipe), reproducible_settings(self.recipe))
        if not unlike:
            return f"The settings in {path} are the same; data or model differ. "
        shown = ", ".join(f"{key} = {old!r} (now {new!r})" for key, old, new in unlike[:_SHOWN])
        return f"Found {shown}{' and more fields that differ' * (len(unlike) > _SHOWN)} in {path}. "


def reproducible_settings(recipe: Any) -> Any:
    """The recipe without what does not change the outcome: how often a run logs, saves, keeps snapshots and evaluates,
    and how many processes make its batches.

    Evaluations do change it where the best weights are kept.
    """
    neutral: dict[str, Any] = {"snapshots": (), "workers": 0}
    if loop := getattr(recipe, "loop", None):
        every = loop.eval_every if loop.keep_best else 0
        neutral["loop"] = replace(loop, log_every=0, save_every=0, save_minutes=0.0, eval_every=every)
    return replace(recipe, **{name: value for name, value in neutral.items() if hasattr(recipe, name)})


@dataclass(frozen=True)
class Run:
    """A run of this process: its folder, its identity, and the processes that take part."""

    out: Path
    identity: RunIdentity
    world: World
    quiet: bool = False
    on_record: RecordCallback | None = None

    def say(self, text: str) -> None:
        """Print a line to stderr, once for all processes."""
        if not self.quiet and self.world.is_main:
            print(text, file=sys.stderr)
