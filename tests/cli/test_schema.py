"""The schemas fit what bertworks writes and ships, and refuse what it refuses."""

import contextlib
import io
import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from bertworks.cli import main
from bertworks.cli.recipes import predictions_schema, recipe_schema, results_schema
from bertworks.config import RECIPES, load_recipe, to_toml
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.pretraining.recipe import PretrainConfig
from support.tiny_task import tiny_folder, tiny_table

ROOT = Path(__file__).parents[2]
KINDS = ("pretrain", "finetune", "distill", "study")


def validator(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def shown(*words):
    with contextlib.redirect_stdout(io.StringIO()) as told:
        main(["recipes", "schema", *words])
    return json.loads(told.getvalue())


@pytest.fixture(scope="module")
def validators():
    return {kind: validator(recipe_schema(kind)) for kind in KINDS}


def test_every_shipped_recipe_is_valid(validators):
    any_kind = validator(recipe_schema())
    for path in RECIPES.rglob("*.toml"):
        table = tomllib.loads(path.read_text("utf-8"))
        validators[path.relative_to(RECIPES).parts[0]].validate(table)
        any_kind.validate(table)


def test_resolved_recipes_are_valid(validators):
    for kind, config in (("pretrain", PretrainConfig()), ("finetune", FinetuneConfig())):
        validators[kind].validate(tomllib.loads(to_toml(config)))


@pytest.mark.parametrize(
    "toml",
    ["epoch = 3.0", "epochs = 'three'", "[optim]\nlearning_rate = 1e-4", "[loop]\nprecision = 'half'", "seeds = 1"],
)
def test_mistakes_are_found(validators, toml, tmp_path):
    assert not validators["finetune"].is_valid(tomllib.loads(toml))
    (tmp_path / "r.toml").write_text(toml)
    with pytest.raises(Exception, match=r"r\.toml"):
        load_recipe(tmp_path / "r.toml", FinetuneConfig)


def test_fields_are_described_with_their_defaults():
    found = shown("recipe", "--kind", "finetune")["properties"]
    assert found["epochs"]["description"].startswith("passes over the training rows")  # a comment behind the field
    assert found["teacher"]["description"].startswith("fine-tuned model folder whose scores")  # one above it
    assert found["max_seq_length"]["default"] == 128 and found["optim"]["properties"]["lr"]["default"] == 5e-5
    assert "google" in found["optim"]["properties"]["schedule"]["enum"]
    for kind in ("pretrain", "finetune", "distill"):
        for name, one in recipe_schema(kind)["properties"].items():
            assert one.get("description") or one["items"]["description"], (kind, name)


def test_a_recipe_may_begin_with_the_line_of_its_schema(tmp_path):
    (tmp_path / "r.toml").write_text("#:schema ./finetune.schema.json\nepochs = 2.0\n")
    assert load_recipe(tmp_path / "r.toml", FinetuneConfig).epochs == 2


def test_results_and_predictions_are_valid(tmp_path):
    results, lines = validator(shown("results")), validator(shown("predictions"))
    for path in (ROOT / "docs/results").rglob("results.json"):
        results.validate(json.loads(path.read_text("utf-8")))
    assert not results.is_valid({"kind": "finetune"}) and not results.is_valid({"kind": 3})
    tiny_folder(tmp_path / "model")
    for name, seed in (("a", 1), ("b", 2)):
        tiny_table(tmp_path / f"{name}.csv", 12, seed)
    line = f"finetune {tmp_path}/model --train {tmp_path}/a.csv --dev {tmp_path}/b.csv --out {tmp_path}/run"
    with contextlib.redirect_stdout(io.StringIO()):
        main(f"{line} --loop.steps 2 --max-seq-length 16".split())
        main(f"predict {tmp_path}/run {tmp_path}/b.csv --all-scores --out {tmp_path}/p.jsonl".split())
    results.validate(json.loads((tmp_path / "run/results.json").read_text("utf-8")))
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text("utf-8").splitlines()]
    for one in found:
        lines.validate(one)
    assert not lines.is_valid(found[0] | {"labels": []}) and lines.is_valid({"line": 3, "empty": True})
    assert predictions_schema()["anyOf"] and results_schema()["properties"]


def test_a_kind_beside_results_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["recipes", "schema", "results", "--kind", "study"])
    assert "--kind is of recipes" in capsys.readouterr().err
