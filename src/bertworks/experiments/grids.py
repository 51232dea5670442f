"""Grids of settings of fine-tuning: the paper's (appendix A.3, section 4.1), or one's own in words."""

import functools
import itertools
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config import from_dict
from ..files import InputError, shorten
from ..finetuning.job import check_settings
from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Limits, Task
from ..training.machine import World


class Setting(NamedTuple):
    """One setting of a grid."""

    batch_size: int
    lr: float
    epochs: float

    @property
    def name(self) -> str:
        """Its folder: b16-lr5e-05-e2."""
        return f"b{self.batch_size}-lr{self.lr:g}-e{self.epochs:g}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields and their values."""
        return self._asdict()

    def of(self, config: FinetuneConfig) -> FinetuneConfig:
        """The recipe with this setting in it."""
        optim = replace(config.optim, lr=self.lr)
        return replace(config, batch_size=self.batch_size, epochs=float(self.epochs), min_steps=0, optim=optim)


@dataclass(frozen=True)
class OwnSetting:
    """One setting of a grid of the user's own: fields of the recipe by their dotted names."""

    values: tuple[tuple[str, str], ...]  # field and value, as written

    @property
    def name(self) -> str:
        """Its folder: optim.lr=1e-4-epochs=3."""
        return "-".join(f"{field}={value}" for field, value in self.values)

    def of(self, config: FinetuneConfig) -> FinetuneConfig:
        """The recipe with this setting in it. Raises InputError for an unknown field or a value of another type."""
        table: dict[str, Any] = {"min_steps": 0} if "epochs" in dict(self.values) else {}
        for field, value in self.values:
            *path, name = field.split(".")
            functools.reduce(lambda inner, part: inner.setdefault(part, {}), path, table)[name] = _parsed(value)
        return from_dict(FinetuneConfig, table, f"--sweep {self.name}", config)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields and their values."""
        return {field: _parsed(value) for field, value in self.values}


def _parsed(value: str) -> Any:
    """A value as TOML has it; a text without quotes is a text."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


_SHARED = {  # fields that decide what all runs of a sweep share: rows as tokens, a teacher's scores, the seeds
    **{field.name: "start one run for each value, and compare them" for field in fields(Limits)},
    **dict.fromkeys(("class_weights", "teacher"), "start one run for each value, and compare them"),
    **dict.fromkeys(("seeds", "loop.seed"), "give --seeds or --restarts"),
}


def own_grid(text: str) -> tuple[OwnSetting, ...]:
    """The settings of a grid such as "optim.lr=1e-4,3e-4 epochs=3": every combination of the values.

    Blanks beside a comma are ignored. Raises InputError if it is no grid.
    """
    grid: dict[str, list[str]] = {}
    for part in re.sub(r"\s*,\s*", ",", text).split():
        field, equals, values = part.partition("=")
        field = field.removeprefix("--").replace("-", "_")
        found = values.split(",")
        named = re.fullmatch(r"\w+(\.\w+)*", field) and all(re.fullmatch(r"[\w.+-]+", value) for value in found)
        if not equals or not named or field in grid:
            raise InputError(f"--sweep {shorten(text)}: found {shorten(part)}; {_GRID}")
        if field in _SHARED:
            raise InputError(f"--sweep {shorten(text)}: {field} is the same in all runs of a sweep; {_SHARED[field]}")
        if len({*map(_parsed, found)}) < len(found):
            raise InputError(f"--sweep {shorten(text)}: {shorten(part)} has equal values; give each value once")
        grid[field] = found
    if not grid:  # a setting without a field has no name, and so no folder inside --out
        raise InputError(f"--sweep {shorten(text)}: no field in it; {_GRID}")
    pairs = [[(field, value) for value in values] for field, values in grid.items()]
    return tuple(map(OwnSetting, itertools.product(*pairs)))


def settings_of(name: str) -> "tuple[Setting | OwnSetting, ...]":
    """The settings of a grid by its name, or of one's own. Raises InputError if it is neither."""
    return SWEEPS[name] if name in SWEEPS else own_grid(name)


SWEEPS = {
    "paper": tuple(itertools.starmap(Setting, itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)))),  # A.3
    "glue": tuple(Setting(32, rate, 3) for rate in (5e-5, 4e-5, 3e-5, 2e-5)),  # section 4.1
}
_GRID = (
    f'expected {", ".join(SWEEPS)}, or fields with their values, each field once, such as "optim.lr=1e-4,3e-4 epochs=3"'
)


def check_grid(name: str, config: FinetuneConfig) -> None:
    """Raises InputError for an unknown grid, or one that does not fit the recipe."""
    loop, grid = config.loop, settings_of(name)
    for setting in grid:
        setting.of(config)
    if (loop.steps or loop.tokens or loop.hours) and len({one.fields.get("epochs") for one in grid}) > 1:
        raise InputError(f"the sweep {name} varies epochs; leave loop.steps, loop.tokens and loop.hours out")


def check_runs(name: str, config: FinetuneConfig, task: Task, model: Path, world: World) -> None:
    """Raises InputError, which names the setting, if one does not fit the model or the task."""
    for setting in settings_of(name):
        try:
            check_settings(setting.of(config), task, model, world)
        except InputError as error:
            raise InputError(f"--sweep {setting.name}: {error}") from None
