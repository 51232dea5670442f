"""Recipes: every mistake is one error that names file, key and what would be right."""

import re
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from bertworks.config import RECIPE_BYTES, RECIPES, SCHEMA, find_recipe, from_dict, load_recipe, recipe_names, to_toml
from bertworks.files import InputError
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.pretraining.distill_recipe import DistillConfig
from bertworks.pretraining.recipe import PretrainConfig


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    size: int = 3
    on: bool = True
    kind: Literal["a", "b"] = "a"

    def __post_init__(self):
        if self.rate < 0:
            raise ValueError(f"rate = {self.rate}; expected at least 0")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    parts: tuple[Inner, ...] = ()
    path: Path | None = None


def load(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    return load_recipe(tmp_path / "r.toml", Outer)


def test_a_recipe_is_filled_with_the_defaults_where_it_is_silent(tmp_path):
    recipe = load(tmp_path, 'name = "x"\npath = "a/b"\n[inner]\nrate = 1\n[[parts]]\nsize = 5\n[[parts]]\nkind = "b"')
    assert recipe == Outer("x", Inner(rate=1.0), (Inner(size=5), Inner(kind="b")), Path("a/b"))
    assert isinstance(recipe.inner.rate, float)
    assert load(tmp_path, "\ufeffname = 'x'\r\n") == Outer("x")  # a byte order mark


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"r\.toml: no such file; expected a recipe"),
        (b"# " + b"a" * RECIPE_BYTES, r"r\.toml: more than 1,048,576 bytes; expected a recipe"),
        (b"name = '\xff'", "not valid TOML"),
    ],
    ids=["missing", "long", "no text"],
)
def test_a_recipe_that_is_not_there_or_no_text(tmp_path, content, message):
    if content is not None:
        (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_recipe(tmp_path / "r.toml", Outer)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Outer("x", path=Path("tr\udcff")), r"^path = 'tr\\udcff'; expected .* UTF-8, .*; rename the file"),
        (Outer("x", Inner(rate=float("inf"))), r"^inner\.rate = inf; expected a finite number"),
    ],
    ids=["name", "number"],
)
def test_what_toml_cannot_hold_is_refused_before_anything_is_written(recipe, message):
    """By the recipe's hash, too, which comes first: what is in recipe.toml can be read back."""
    with pytest.raises(InputError, match=message):
        to_toml(recipe)


def test_the_resolved_form_is_read_back_as_the_same(tmp_path):
    recipe = Outer("ä", Inner(rate=1e-4, on=False), (Inner(kind="b"),), None)
    assert load(tmp_path, to_toml(recipe)) == recipe


@pytest.mark.parametrize(
    "text, message",
    [
        ("[inner]\nrat = 1.0", "unknown key inner.rat; did you mean inner.rate?"),
        ("[[parts]]\n[[parts]]\nsise = 1", "unknown key parts[1].sise; did you mean parts[1].size?"),
        ("[inner]\nsize = true", "inner.size = True; expected an integer"),
        ("[inner]\non = 1", "inner.on = 1; expected true or false"),
        ("[inner]\nrate = nan", "inner.rate = nan; expected a finite number"),
        ("[inner]\nkind = 'c'", "inner.kind = 'c'; expected one of 'a', 'b'"),
        ("inner = 3", "inner = 3; expected a table of Inner fields"),
        ("[inner]\nrate = -1.0", "inner: rate = -1.0; expected at least 0"),
        (f"schema = {SCHEMA + 1}", f"written by a newer bertworks (recipe schema {SCHEMA + 1}; "),
        (f"schema = {SCHEMA - 1}", f"recipe schema is {SCHEMA - 1}; expected {SCHEMA}"),
        ("schema = true", f"recipe schema is True; expected {SCHEMA}; remove the line"),
    ],
)
def test_a_mistake_is_named(tmp_path, text, message):
    with pytest.raises(InputError) as error:
        load(tmp_path, f"name = 'x'\n{text}")
    assert str(tmp_path / "r.toml") in str(error.value) and message in str(error.value)


@dataclass(frozen=True)
class Collections:
    betas: tuple[float, ...] = (0.9,)
    pairs: list[tuple[float, int]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    either: int | str = 0
    inner: Inner = field(default_factory=lambda: Inner(size=7))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"betas": [1, 0.5], "sums": {"a": 1}}, Collections((1.0, 0.5), sums={"a": 1.0})),
        ({"either": "x", "inner": {"rate": 1}}, Collections(either="x", inner=Inner(1.0, 7))),  # the field's default
        ({"betas": [1, "x"]}, "here: betas[1] = 'x'; expected a number"),
        ({"sums": {"a": float("nan")}}, "here: sums.a = nan; expected a finite number"),
        ({"either": 0.5}, "here: either = 0.5; expected an integer or a text"),
        ({"betas": {}}, "here: betas = {}; expected a list"),
        ({"pairs": [[0.5, 1], [2, 3]]}, Collections(pairs=[(0.5, 1), (2.0, 3)])),
        ({"pairs": [[0.5, 1], [2]]}, "here: pairs[1] = [2]; expected a list of 2"),
    ],
)
def test_collections_are_converted(table, expected):
    if isinstance(expected, str):
        with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
            from_dict(Collections, table, "here")
    else:
        found = from_dict(Collections, table)
        assert found == expected and all(type(value) is float for value in (*found.betas, *found.sums.values()))


@pytest.mark.parametrize("recipe", [PretrainConfig, DistillConfig, FinetuneConfig])
def test_a_field_that_may_be_none_is_none_by_default(recipe):
    """TOML has no null, so a missing key must mean None."""
    assert all(default is None for kind, default in fields_of(recipe) if type(None) in get_args(kind))


def fields_of(cls):
    """Type and default of every field, also of nested dataclasses."""
    kinds = get_type_hints(cls)
    for one in fields(cls):
        kind = kinds[one.name]
        inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
        if is_dataclass(inner):
            yield from fields_of(inner)
        else:
            yield kind, one.default


def test_recipes_that_come_with_bertworks_are_found_by_name(tmp_path, monkeypatch):
    """From any folder; a file of one's own comes first."""
    monkeypatch.chdir(tmp_path)
    assert find_recipe("cpu", "pretrain") == find_recipe("pretrain/cpu", "pretrain") == RECIPES / "pretrain/cpu.toml"
    assert find_recipe("paper/masking", "study").is_file() and find_recipe("distill/cpu").is_file()
    assert {"cpu", "base"} <= {*recipe_names("pretrain")} and "study/masking" in recipe_names()
    with pytest.raises(InputError, match="found no file and no recipe"):
        find_recipe("finetune/glue", "pretrain")
    (tmp_path / "cpu").write_text("")
    assert find_recipe("cpu", "pretrain") == Path("cpu")
    with pytest.raises(InputError, match=r"one of albert, .*study"):
        find_recipe("zzz", "pretrain")
