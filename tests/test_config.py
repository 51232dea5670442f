"""Recipes: every mistake is one error that names file, key and what would be right."""

import hashlib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from bertworks.config import (
    RECIPE_BYTES,
    RECIPES,
    SCHEMA,
    added,
    differences,
    find_recipe,
    from_dict,
    identities,
    load_recipe,
    load_resolved,
    recipe_names,
    to_toml,
)
from bertworks.files import InputError
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.pretraining.recipe import DistillConfig, PretrainConfig

FIRST_FIELDS = {  # hashes of their names
    PretrainConfig: "bc4f517ca12df604",
    DistillConfig: "3a57d2b2f505c557",
    FinetuneConfig: "49d12806b06e8233",
}


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


def test_the_resolved_form_is_read_back_as_the_same(tmp_path):
    recipe = Outer("ä", Inner(rate=1e-4, on=False), (Inner(kind="b"),), None)
    assert load(tmp_path, to_toml(recipe)) == recipe


@pytest.mark.parametrize(
    "text, said",
    [
        ("name = 'x'\n[inner]\nrat = 1.0", "unknown key inner.rat; did you mean inner.rate?"),
        ("nam = 'x'", "unknown key nam; did you mean name?"),
        ("zzz = 1", "unknown key zzz; known keys: name, inner, parts, path"),
        ("name = 'x'\n[[parts]]\n[[parts]]\nsise = 1", "unknown key parts[1].sise; did you mean parts[1].size?"),
        ("name = 'x'\n[inner]\nsize = 1.5", "inner.size = 1.5 is of type float; expected int"),
        ("name = 'x'\n[inner]\nsize = true", "inner.size = True is of type bool; expected int"),
        ("name = 'x'\n[inner]\non = 1", "inner.on = 1 is of type int; expected bool"),
        ("name = 'x'\n[inner]\nrate = '0.1'", "inner.rate = '0.1' is of type str; expected float"),
        ("name = 'x'\n[inner]\nrate = inf", "inner.rate = inf; expected a finite number"),
        ("name = 'x'\n[inner]\nrate = nan", "inner.rate = nan; expected a finite number"),
        ("name = 'x'\n[inner]\nkind = 'c'", "inner.kind = 'c'; expected one of 'a', 'b'"),
        ("name = 'x'\ninner = 3", "inner = 3; expected a table of Inner fields"),
        ("name = 'x'\n[inner]\nrate = -1.0", "inner: rate = -1.0; expected at least 0"),
        ("[inner]\nsize = 2", "missing 1 required positional argument: 'name'"),
        ("name = 'x", "not valid TOML: "),
    ],
)
def test_a_mistake_is_named(tmp_path, text, said):
    with pytest.raises(InputError) as error:
        load(tmp_path, text)
    assert str(tmp_path / "r.toml") in str(error.value) and said in str(error.value)


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "r.toml").write_bytes(b"\xef\xbb\xbfname = 'x'\r\n")
    assert load_recipe(tmp_path / "r.toml", Outer) == Outer("x")


def test_a_recipe_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: no such file; expected a recipe"):
        load_recipe(tmp_path / "none.toml", Outer)
    (tmp_path / "long.toml").write_bytes(b"# " + b"a" * RECIPE_BYTES)
    with pytest.raises(InputError, match=r"long\.toml: more than 1,048,576 bytes; expected a recipe"):
        load_recipe(tmp_path / "long.toml", Outer)
    (tmp_path / "r.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(InputError, match="not valid TOML"):
        load_recipe(tmp_path / "r.toml", Outer)


def test_dictionaries_are_checked_in_the_same_way():
    assert from_dict(Outer, {"name": "x"}) == Outer("x")
    with pytest.raises(InputError, match=r"there: name = 3 is of type int; expected str"):
        from_dict(Outer, {"name": 3}, "there")


@dataclass(frozen=True)
class Part:
    """A table that got a field, whose default is not what older runs had."""

    size: int = 1
    way: str = added("new", since=3, before="old")


@dataclass(frozen=True)
class Grown:
    """A recipe that got fields: one before schemas had numbers, then one in each of two schemas."""

    name: str
    part: Part = Part()
    parts: tuple[Part, ...] = ()
    more: int = added(1, since=1, before=1)
    rate: float = added(0.5, since=2, before=0.0)


@pytest.fixture
def schema_3(monkeypatch):
    monkeypatch.setattr("bertworks.config.SCHEMA", 3)


def test_the_identity_has_every_field_and_the_schema(schema_3):
    found = identities(Grown("x"))
    assert [*found] == [3] and found[3] == to_toml(Grown("x"))
    assert "schema = 3" in found[3] and "more = 1" in found[3] and 'way = "new"' in found[3]


def test_a_recipe_has_a_text_in_each_schema_that_could_express_it(schema_3):
    old, texts = Part(way="old"), {}
    for name, recipe in {
        "all old": Grown("x", old, (old,), rate=0.0),
        "more": Grown("x", old, more=2, rate=0.0),
        "rate": Grown("x", old),
        "way": Grown("x", rate=0.0),
    }.items():
        texts[name] = identities(recipe)
    assert {name: [*found] for name, found in texts.items()} == {
        "all old": [3, 2, 1],
        "more": [3, 2, 1],
        "rate": [3, 2],
        "way": [3],
    }
    assert texts["all old"][1] == 'name = "x"\nparts = [\n    { size = 1 },\n]\n\n[part]\nsize = 1\n'
    assert "more = 2" in texts["more"][1] and "schema" not in texts["more"][1]
    assert "rate = 0.5" in texts["rate"][2] and "more = 1" in texts["rate"][2] and "way" not in texts["rate"][2]


def test_an_older_runs_recipe_stands_for_the_values_that_it_had(tmp_path, schema_3):
    path, text = tmp_path / "recipe.toml", 'name = "x"\nparts = [{size = 2}]\n[part]\nsize = 1\n'
    path.write_text(text)
    old = Part(way="old")
    assert load_resolved(path, Grown) == Grown("x", old, (Part(2, "old"),), 1, 0.0)
    assert load_recipe(path, Grown) == Grown("x", Part(), (Part(2),))  # a person's recipe has today's defaults
    path.write_text("schema = 2\nmore = 1\nrate = 0.25\n" + text)
    assert load_resolved(path, Grown) == load_recipe(path, Grown) == Grown("x", old, (Part(2, "old"),), 1, 0.25)
    path.write_text(to_toml(Grown("x")))
    assert load_resolved(path, Grown) == load_recipe(path, Grown) == Grown("x")


@pytest.mark.parametrize("schema, message", [
    ("4", r"r\.toml: written by a newer bertworks \(recipe schema 4; this version reads up to 3\); install"),
    ("0", "recipe schema 0, older .*; expected 1 or newer; correct"),
    ("true", "recipe schema is True; expected a number from 1 to 3; correct"),
    ("'x'", "recipe schema is 'x'; expected a number from 1 to 3; correct"),
])  # fmt: skip
def test_a_newer_or_wrong_schema_is_refused_by_name(tmp_path, schema_3, schema, message):
    with pytest.raises(InputError, match=message):
        load(tmp_path, f"schema = {schema}\nname = 'x'\n")


def test_differences_are_named():
    one, other = Grown("x", parts=(Part(),)), Grown("x", Part(size=2), (Part(), Part()), rate=0.25)
    assert differences(one, other) == [
        ("part.size", 1, 2), ("rate", 0.5, 0.25), ("parts[1].size", None, 1), ("parts[1].way", None, "new"),
    ]  # fmt: skip
    assert differences(one, one) == []


@pytest.mark.parametrize("recipe", [PretrainConfig, DistillConfig, FinetuneConfig])
def test_a_field_that_is_not_marked_as_added_is_of_the_first_schema(recipe):
    """A new field needs `added` and a new SCHEMA. Else older runs would not be recognised."""
    found = sorted(key for key, since, _ in fields_of(recipe) if since is None)
    assert hashlib.sha256(" ".join(found).encode()).hexdigest()[:16] == FIRST_FIELDS[recipe], found
    assert max(since or 1 for _, since, _ in fields_of(recipe)) <= SCHEMA


@pytest.mark.parametrize("recipe", [PretrainConfig, DistillConfig, FinetuneConfig])
def test_a_field_that_may_be_none_is_none_by_default(recipe):
    """TOML has no null, so a missing key must mean None."""
    assert all(default is None for _, _, (kind, default) in fields_of(recipe) if type(None) in get_args(kind))


def fields_of(cls, prefix=""):
    """Dotted key, schema since which it is there (None: the first), type and default of every field."""
    kinds = get_type_hints(cls)
    for one in fields(cls):
        kind, key = kinds[one.name], f"{prefix}{one.name}"
        inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
        if is_dataclass(inner):
            yield from fields_of(inner, f"{key}.")
        else:
            yield key, one.metadata.get("since"), (kind, one.default)


def test_recipes_that_come_with_bertworks_are_found_by_name(tmp_path, monkeypatch):
    """From any folder; a file of one's own comes first, and an unknown name gets the nearest one."""
    monkeypatch.chdir(tmp_path)
    assert find_recipe("cpu", "pretrain") == RECIPES / "pretrain/cpu.toml"
    assert find_recipe("paper/masking", "study").is_file() and find_recipe("distill/cpu").is_file()
    assert {"cpu", "base"} <= {*recipe_names("pretrain")} and "study/masking" in recipe_names()
    assert find_recipe("pretrain/cpu", "pretrain") == find_recipe("cpu", "pretrain")  # as `recipes` prints it
    assert find_recipe("study/masking", "study") == find_recipe("masking", "study")
    with pytest.raises(InputError, match="no recipe of that name"):
        find_recipe("finetune/glue", "pretrain")
    (tmp_path / "cpu").write_text("")
    assert find_recipe("cpu", "pretrain") == Path("cpu")
    for wrong in ("gpt-cpi", "recipes/pretrain/gpt-cpu.tml", "pretrain/gpt-cpi"):
        with pytest.raises(InputError, match=r"no such file, and no recipe.*did you mean gpt-cpu\?"):
            find_recipe(wrong, "pretrain")
    with pytest.raises(InputError, match=r"known names: albert, .*study"):
        find_recipe("zzz", "pretrain")
    for folder in ("model", "base"):
        (tmp_path / folder).mkdir()
    with pytest.raises(InputError, match=r"^model: a folder; expected a recipe, .* --init to pre-train it further"):
        find_recipe("model", "pretrain")
    assert find_recipe("base", "pretrain").is_file()  # a folder of that name is no recipe


def test_a_name_that_toml_cannot_hold_is_refused_before_anything_is_written():
    """By the recipe's hash, too, which comes first: what is in recipe.toml can be read back."""
    for recipe, key in ((Outer("x", path=Path("tr\udcff")), "path"), (Outer("tr\udcff"), "name")):
        for write in (to_toml, identities):
            with pytest.raises(InputError, match=rf"^{key} = 'tr\\udcff'; expected .* UTF-8, .*; rename the file"):
                write(recipe)


def test_a_flag_that_is_not_finite_is_refused_before_anything_is_written():
    for write in (to_toml, identities):
        with pytest.raises(InputError, match=r"^inner\.rate = inf; expected a finite number"):
            write(Outer("x", Inner(rate=float("inf"))))
    with pytest.raises(ValueError, match="epochs = inf; expected a finite number above 0"):
        FinetuneConfig(epochs=float("inf"))
