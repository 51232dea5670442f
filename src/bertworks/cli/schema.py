"""`bertworks schema`: JSON Schemas of recipes, results and predictions."""

from dataclasses import dataclass
from typing import Any, Literal

from ..files import InputError
from .arguments import Positional, parse

Recipes = Literal["pretrain", "finetune", "distill", "study"]


@dataclass(frozen=True)
class Arguments:
    """Print the JSON Schema of recipes, of results.json, or of a line of predictions.

    Example:
        bertworks schema recipe --kind finetune > finetune.schema.json

    An editor completes a recipe that begins with #:schema ./finetune.schema.json
    """

    what: Positional[Literal["recipe", "results", "predictions"]]  # what the schema is of
    kind: Recipes | None = None  # kind of recipe; none: any of them


def schema(argv: list[str]) -> None:
    """Print the schema as JSON."""
    arguments = parse(Arguments, argv, "schema", "--what")
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
