"""`bertworks recipes`, `recipes tasks` and `recipes schema`: the recipes that come with bertworks, and their fields."""

import itertools
import re
import textwrap
from dataclasses import dataclass
from typing import Any, Literal

from ..config import RECIPES, find_recipe, recipe_names
from ..files import InputError
from .arguments import Positional, parse


@dataclass(frozen=True)
class Arguments:
    """List the recipes that come with bertworks, or print one.

    Example:
        bertworks recipes
        bertworks recipes pretrain/cpu > my.toml

    The commands take such a name, or the path of your own file.
    """

    name: Positional[str] = ""  # recipe to print: KIND/NAME (pretrain/cpu), or NAME if only one kind has it


def recipes(argv: list[str]) -> None:
    """Print the list, or the recipe."""
    asked = parse(Arguments, argv, "recipes").name
    names = recipe_names()
    if not asked:
        print("\n".join(listed(names)))
        return
    alike = [name for name in names if name.partition("/")[2] == asked] or [asked]
    if len(alike) > 1:
        raise InputError(f"several recipes have the name {asked}: {', '.join(alike)}; give the whole name")
    print(find_recipe(alike[0]).read_text(encoding="utf-8"), end="")


def listed(names: list[str]) -> list[str]:
    """Return the lines of the list, at most 80 columns wide: each recipe with the first sentence of its comment."""
    lines, width = [], max(map(len, names)) + 2
    for name in names:
        about = first_sentence((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
        lines += textwrap.wrap(f"{name:<{width}}{about}", 80, subsequent_indent=" " * width, break_on_hyphens=False)
    use = ["`bertworks recipes NAME` prints a recipe. To use one:", "  bertworks pretrain cpu --corpus STORE --out RUN"]
    return [*lines, "", *use]


def studies() -> str:
    """Return the lines of `study run --help` that list the studies, each in one line of at most 80 columns."""
    names = sorted(recipe_names("study"), key=lambda name: ("/" in name, name))
    width = max(map(len, names)) + 2
    lines = ["", "", "Studies (`bertworks recipes study/NAME` prints one):"]
    for name in names:
        about = first_sentence((RECIPES / "study" / f"{name}.toml").read_text(encoding="utf-8"))
        lines.append(f"    {name:<{width}}" + textwrap.shorten(about, 76 - width, placeholder=" ..."))
    return "\n".join(lines)


def first_sentence(recipe: str) -> str:
    """Return the first sentence of the comment that a recipe begins with."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    for end in re.finditer(r"[.?:;](?<!et al\.)(?= |$)", text):
        if text.count("(", 0, end.start()) == text.count(")", 0, end.start()):
            return text[: end.end()].rstrip(".:;")
    return text


@dataclass(frozen=True)
class TasksArguments:
    """List the tasks that fine-tuning knows, with metrics, files and own defaults.

    The first metric selects the best run.

    Files after the bar are also evaluated if they exist.
    """


def tasks(argv: list[str]) -> None:
    """Print the table of tasks."""
    parse(TasksArguments, argv, "recipes tasks")
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ..tasks.catalogue import TASKS

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("task", "kind", "metrics", "files, and defaults that differ"):
        table.add_column(heading, no_wrap=heading in ("task", "kind"), overflow="fold")
    for task in TASKS.values():
        names = (file.partition("#")[0] for file in (task.train, task.dev) if file)
        files = " ".join(dict.fromkeys(names)) or f"no training file; {task.test}"
        more = " ".join(task.more.values())
        lines = [f"{files} | {more}" if more else files]
        if task.defaults:
            lines.append(" ".join(f"{name}={value:g}" for name, value in task.defaults.items()))
        table.add_row(task.name, task.kind, "\n".join(task.metrics), "\n".join(lines))
    Console(markup=False, highlight=False).print(table)


Recipes = Literal["pretrain", "finetune", "distill", "study"]


@dataclass(frozen=True)
class SchemaArguments:
    """Print the JSON Schema of recipes, of results.json, or of a line of predictions.

    Example:
        bertworks recipes schema recipe --kind finetune > finetune.schema.json

    An editor completes a recipe that begins with #:schema ./finetune.schema.json
    """

    what: Positional[Literal["recipe", "results", "predictions"]]  # what the schema is of
    kind: Recipes | None = None  # kind of recipe; none: any of them


def schema(argv: list[str]) -> None:
    """Print the schema as JSON."""
    arguments = parse(SchemaArguments, argv, "recipes schema")
    if arguments.kind and arguments.what != "recipe":
        raise InputError(f"--kind is of recipes; leave it out beside {arguments.what}")
    from ..files import to_json

    made = {
        "recipe": lambda: recipe_schema(arguments.kind),
        "results": results_schema,
        "predictions": predictions_schema,
    }
    print(to_json(made[arguments.what](), indent=1))


def recipe_schema(kind: Recipes | None = None) -> dict[str, Any]:
    """The schema of one kind of recipe, or of any."""
    from ..config import SCHEMA
    from ..experiments.recipe import Study
    from ..finetuning.recipe import FinetuneConfig
    from ..pretraining.recipe import DistillConfig, PretrainConfig
    from ..reporting.schemas import DRAFT, schema_of

    kinds = {"pretrain": PretrainConfig, "finetune": FinetuneConfig, "distill": DistillConfig, "study": Study}
    found = {name: schema_of(cls) for name, cls in kinds.items() if kind in (None, name)}
    for name, one in found.items():
        number = {"type": "integer", "minimum": 1, "maximum": SCHEMA, "description": "of the recipe.toml of a run"}
        one["title"], one["properties"]["schema"] = f"bertworks recipe: {name}", number
    if kind:
        return {"$schema": DRAFT, **found[kind]}
    return {"$schema": DRAFT, "title": "bertworks recipe", "anyOf": list(found.values())}


def results_schema() -> dict[str, Any]:
    """The schema of results.json of runs, of several runs, and of studies."""
    from ..reporting.schemas import DRAFT
    from ..training.identity import FORMAT

    number, text = {"type": ["number", "null"]}, {"type": "string"}
    numbers = {"type": "object", "additionalProperties": number}
    properties = {
        "format": {"type": "integer", "minimum": 1, "maximum": FORMAT, "description": "of the run folder"},
        "kind": {**text, "description": "finetune, pretrain, distill, study, ..."},
        "task": {**text, "description": "name of the task; table: a table of the user's own"},
        "metrics": {**numbers, "description": "on development rows or held-out text, as fractions; losses in nats"},
        "std": {**numbers, "description": "standard deviation of each metric over the seeds"},
        "runs": {"type": "array", "description": "the metrics of each seed"},
        "seed": {"type": "integer"},
        "seeds": {"type": "array", "items": {"type": "integer"}},
        "steps": {"type": "integer", "description": "optimizer updates"},
        "tokens": {"type": "integer", "description": "tokens trained on, padding not counted"},
        "seconds": {"type": "number", "description": "of training, over all run segments"},
        "data": {**text, "description": "folder, table or tables of the rows"},
        "encoding": {**text, "description": "of the table or tables, unless it is utf-8"},
        "sheet": {**text, "description": "of a table in a workbook, if it was named"},
        "header_row": {"type": "integer", "description": "row with the names of a table's columns, if it was given"},
        "examples": {"description": "rows to train on and to evaluate on"},
        "dev_texts": {**text, "description": "hash of the texts of the development rows, in their order"},
        "truncation": {"type": "object", "description": "rows that were cut, and by how many tokens"},
        "notes": {"type": "array", "items": text, "description": "what was found in the training rows"},
        "recipe": {"description": "hash of recipe and inputs, which identifies the run"},
        "machine": {"type": "object", "description": "processor, versions, commit"},
    }
    single = {"required": ["metrics", "seconds", "machine"]}
    return {
        "$schema": DRAFT,
        "title": "bertworks results.json",
        "type": "object",
        "properties": properties,
        "if": {"properties": {"kind": {"enum": ["finetune", "pretrain", "distill"]}}, "required": ["kind"]},
        "then": single,
    }


def predictions_schema() -> dict[str, Any]:
    """The schema of a line that `bertworks predict` writes, for every kind of task."""
    from ..reporting.schemas import DRAFT, schema_of
    from ..tasks.choice import Chosen
    from ..tasks.classification import Classified
    from ..tasks.span import Answered
    from ..tasks.tagging import Entity

    name = {
        "line": {"type": "integer", "minimum": 1, "description": "of the file"},
        "id": {"description": "of a question"},
    }
    listed = {
        key: {"type": "array", "items": schema_of(cls)} for key, cls in (("entities", Entity), ("answers", Answered))
    }
    tokens = {"tokens": {"type": "integer", "description": "that the model read"}}
    whole = [
        *(schema_of(cls) for cls in (Classified, Answered, Chosen)),
        _closed({"entities": listed["entities"], **tokens}),
        _closed({"answers": listed["answers"]}),
        _closed({"empty": {"const": True, "description": "the input has no text and was not predicted"}}),
    ]
    for one in whole:
        one["properties"] |= name
    return {"$schema": DRAFT, "title": "a line of bertworks predict", "anyOf": whole}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
