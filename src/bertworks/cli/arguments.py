"""How a verb reads its arguments, and the arguments that several verbs share.

A verb declares its arguments as a dataclass, whose comments are the texts of `--help`; `parse` fills it. In every verb
`--model` is a model folder or a run folder, `--out` is where results are written, `--data` is the rows or texts to
read, `--recipe` is the name or the file of a recipe. A positional argument may also be given as the flag of its name.
"""

import dataclasses
import difflib
import inspect
import sys
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Positional as Positional
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..config import find_recipe, load_recipe
from ..files import InputError
from ..tasks.selection import DevRows as DevRows
from ..tasks.selection import DividedRows as DividedRows
from ..tasks.selection import TrainRows as TrainRows
from ..tasks.selection import comma_separated as comma_separated
from ..tasks.selection import refuse_beside as refuse_beside
from ..training.config import without_late_snapshots
from .ending import WRONG_ARGUMENTS

T = TypeVar("T")
Flat = Annotated[T, tyro.conf.arg(name="")]  # the dataclass's fields are flags without the name of the field in front


def required(name: str) -> Any:
    """How --help shows a positional argument of one or more values."""
    return tyro.conf.arg(metavar=f"{name} ...", help_behavior_hint="(required)")


POSITIONAL = get_args(Positional[str])[1]  # the mark of a positional argument in a dataclass

Texts = Annotated[tuple[str, ...], Positional, required("DATA")]
"""Files, folders, globs or archives of text."""

LEAST_LIKENESS = 0.7  # of an unknown flag and the known one that is named to the user

CASES = {"--cased": "--lowercase=False", "--uncased": "--lowercase=True"}

ENCODING = {"--encoding": "--input.encoding"}

ALIASES: dict[str, dict[str, str]] = {
    "corpus build": {**CASES, **ENCODING},
    "tokenizer train": {"--model": "--algorithm", **CASES, **ENCODING},
    "tokenizer check": {**CASES, **ENCODING},
    "convert": {
        "--cased": "--do-lower-case=False",
        "--uncased": "--do-lower-case=True",
        "--do-lower-case": "--do-lower-case=True",
        "--normalize": "--normalize=True",
        "--no-normalize": "--normalize=False",
    },
    "probe neighbours": {"--corpus": "--data", **ENCODING},
    "probe particles": ENCODING,
}
"""For each verb: an earlier name of a flag and its name today, or a short form and the flag with its value."""


def parse(
    arguments: type[T], argv: list[str], verb: str, *positionals: str, start: T | None = None, more: str = ""
) -> T:
    """Return the verb's `arguments`, read from the words behind the verb; `start` holds other defaults.

    more: lines of --help below the description.
    `positionals` are the flags of the positional arguments, in order: "--model"; "--data..." for one or
    more words. Raises InputError for a value that the arguments' own checks refuse; exits with status 2 for an unknown
    flag.
    """
    kinds = get_type_hints(arguments, include_extras=True).values()
    only = sum(POSITIONAL in get_args(kind) for kind in kinds) == len(positionals)
    words = positionals_first(replace_aliases(argv, verb), positionals, only)
    refuse_unknown_flags(words, flags_of(arguments, start), verb)
    try:
        return tyro.cli(
            arguments,
            args=words,
            default=tyro.MISSING_NONPROP if start is None else start,
            prog=f"bertworks {verb}",
            description=inspect.cleandoc(arguments.__doc__ or "") + more,
            config=(tyro.conf.PositionalMetavarFromFieldName,),
            registry=_readable_types(),
        )
    except ValueError as error:  # from a dataclass that checks its values
        raise InputError(str(error)) from None


def refuse_unknown_flags(words: list[str], known: set[str], verb: str) -> None:
    """Exit with status 2 and a line for each unknown flag, unless the words ask for help."""
    if {"-h", "--help"} & set(words):
        return
    if lines := flag_hints(words, known | ALIASES.get(verb, {}).keys()):
        print(*lines, f"`bertworks {verb} --help` lists the flags", sep="\n", file=sys.stderr)
        raise SystemExit(WRONG_ARGUMENTS)


def flag_hints(words: list[str], known: set[str]) -> list[str]:
    """Return a line for each unknown flag, with the known one that has its meaning or resembles it most, if any."""
    lines = []
    for flag in sorted(flags_in(words) - known - {"--"}):
        longer = [name for name in known if name.startswith(f"{flag}-")]
        meant = longer if len(longer) == 1 else []
        near = meant or sorted(known, key=lambda name: (-likeness(flag, name), name))
        alike = bool(meant) or likeness(flag, near[0]) >= LEAST_LIKENESS
        lines.append(f"unknown flag {flag}" + (f"; did you mean {near[0]}?" if alike else ""))
    return lines


def likeness(flag: str, name: str) -> float:
    """How much two flags resemble each other, 0 to 1; flags with one last part in two sections resemble each other."""
    whole = difflib.SequenceMatcher(None, flag[2:], name[2:]).ratio()
    last = difflib.SequenceMatcher(None, flag[2:].rpartition(".")[2], name[2:].rpartition(".")[2]).ratio()
    return (max(whole, last) * 9 + whole) / 10


def flags_of(arguments: type[Any], start: Any = None, prefix: str = "--") -> set[str]:
    """The flags of the fields of a dataclass, as --help writes them; `start` holds other defaults."""
    kinds, found = get_type_hints(arguments, include_extras=True), set()
    for field in dataclasses.fields(arguments):
        kind, *markers = (
            get_args(kinds[field.name]) if get_origin(kinds[field.name]) is Annotated else [kinds[field.name]]
        )
        name = field.name.replace("_", "-")
        made = field.default_factory() if callable(field.default_factory) else field.default
        value = made if start is None else getattr(start, field.name)
        if dataclasses.is_dataclass(kind):
            flat = any(getattr(marker, "name", None) == "" for marker in markers)
            inner = value if dataclasses.is_dataclass(value) else None
            found |= flags_of(kind, inner, prefix if flat else f"{prefix}{name}.")  # type: ignore[arg-type]  # a class
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):  # --phases.0.length
            found |= {flag for i, one in enumerate(value) for flag in flags_of(type(one), one, f"{prefix}{name}.{i}.")}
        else:
            found |= {f"{prefix}{name}", f"{prefix}no-{name}"} if kind is bool else {f"{prefix}{name}"}
    return found


def parse_recipe(
    arguments: type[T],
    config: type[Any],
    argv: list[str],
    verb: str,
    adapted: Callable[[Any, list[str]], Any] = lambda recipe, argv: recipe,
) -> T:
    """As `parse`, for a verb with the fields `recipe` and `config`: the recipe's values are the defaults of the flags.

    The recipe is given first or as --recipe. adapted: changes it by other flags, before its own flags do. Raises
    InputError if neither recipe nor flags set a training budget.
    """
    if argv and not argv[0].startswith("-"):
        refuse_with_flag(argv[0], argv, ("--recipe",))
        argv = ["--recipe", *argv]
    name, _ = take_flag(argv, "--recipe")
    base = load_recipe(find_recipe(name[0], verb), config) if name else config()
    base = adapted(base, argv)
    steps, _ = take_flag(argv, "--loop.steps")
    if steps and steps[0].isdecimal() and "--snapshots" not in flags_in(argv) and hasattr(base, "snapshots"):
        base, left_out = without_late_snapshots(base, int(steps[0]))
        print(*filter(None, [left_out]), sep="\n", end="\n" if left_out else "", file=sys.stderr)
    parsed = parse(arguments, argv, verb, start=with_defaults(arguments, config=base))
    loop = parsed.config.loop  # type: ignore[attr-defined]
    if not (name or loop.steps or loop.tokens or loop.hours):
        raise InputError(
            f"no recipe and no training budget; write `bertworks {verb} RECIPE ...` (`bertworks recipes` lists them), "
            "or give one of --loop.steps, --loop.tokens, --loop.hours"
        )
    return parsed


def with_defaults(arguments: type[T], **values: Any) -> T:
    """An instance of `arguments` with these values as defaults; required fields stay required."""
    needed = {f.name for f in dataclasses.fields(arguments) if f.default is f.default_factory}  # type: ignore[arg-type]  # both missing
    return arguments(**{**dict.fromkeys(needed, tyro.MISSING), **values})


def replace_aliases(argv: list[str], verb: str) -> list[str]:
    """The words with today's flags in place of aliases. Raises InputError if two short forms contradict each other."""
    table, words = ALIASES.get(verb, {}), []
    set_by: dict[str, str] = {}  # flag -> the short form that sets it
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        flag, equals, value = word.partition("=")
        new = table.get(flag.replace("_", "-"), flag)
        if "=" not in new:
            words.append(new + equals + value)
        elif equals or following in ("True", "False"):  # not a short form, it has a value: --normalize=False
            words.append(word)
        else:
            other = set_by.setdefault(new.partition("=")[0], flag)
            if other != flag:
                raise InputError(f"{other} and {flag}; expected one of them; leave the other out")
            words.append(new)
    return words


def positionals_first(argv: list[str], positionals: Sequence[str], only: bool = False) -> list[str]:
    """The words with the values of positional arguments in front, also where they were given as flags.

    Values wait at the end if an argument before them stands behind other flags. only: whether the verb has no other
    positional arguments. Raises InputError for values of one argument that are given both with its flag and without it.
    """
    given: dict[str, list[str]] = {}
    for name in positionals:
        given[name], argv = take_flag(argv, name.removesuffix("..."), several=name.endswith("..."))
    front: list[str] = []
    late: list[str] = []
    missing = False
    for name, values in given.items():
        leading = bool(argv) and not is_flag(argv[0])
        if values and leading and name.endswith("...") and not missing:
            flag = name.removesuffix("...")
            raise InputError(f"found {argv[0]} without a flag, and {flag} {values[0]}; give all of them with {flag}")
        if missing:
            late += values
        elif values:
            front += values
        elif leading and not name.endswith("..."):
            front, argv = [*front, argv[0]], argv[1:]
        else:
            missing = True
    if only and argv and not is_flag(argv[0]) and not positionals[-1].endswith("..."):
        refuse_with_flag(argv[0], [name for name, values in given.items() if values], positionals)
    return [*front, *argv, *late]


def refuse_with_flag(word: str, argv: Sequence[str], flags: Sequence[str]) -> None:
    """Raises InputError if one of the `flags` in argv gives what `word` gives without a flag."""
    if also := sorted(flags_in([*argv]) & {*flags}):
        raise InputError(f"found {word} without a flag, and {also[0]}; expected one of them; leave the other out")


def refuse_repeated(argv: list[str], verb: str) -> None:
    """Raises InputError for a flag that is given twice: only one of its values would count."""
    flags = [flag for word in replace_aliases(argv, verb) for flag in flags_in([word])]
    if again := [flag for i, flag in enumerate(flags) if flag in flags[:i]]:
        raise InputError(f"{again[0]} is given twice; expected once; leave one out, or put several values behind one "
                         "flag that takes them")  # fmt: skip


def to_write(out: Path | None) -> Path | None:
    """The file of --out, None for standard output, which may be given as `-` too."""
    return None if out == Path("-") else out


def is_flag(word: str) -> bool:
    """Whether the word is a flag; `-` alone is standard input."""
    return word.startswith("-") and word != "-"


def take_flag(argv: list[str], flag: str, several: bool = False) -> tuple[list[str], list[str]]:
    """The values of `flag VALUE` or `flag=VALUE`, or all words up to the next flag, and the other words."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            ends = (j for j in range(i + 1, len(argv)) if is_flag(argv[j]))
            end = next(ends, len(argv)) if several else i + 2
            return argv[i + 1 : end], [*argv[:i], *argv[end:]]
        if word.startswith(f"{flag}="):
            return [word[len(flag) + 1 :]], [*argv[:i], *argv[i + 1 :]]
    return [], argv


def flags_in(argv: list[str]) -> set[str]:
    """The flags among the words, as --help writes them: {"--optim.lr", "--batch-size"}."""
    return {word.partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")}


def dev_rows(rows: DevRows, model: Path, argv: list[str]) -> DevRows | None:
    """Rows as the flags say, else with the columns that the model's folder remembers; None if no rows are named."""
    from ..inference.evaluation import remembered

    if not (rows.task or rows.dev):
        return None
    return remembered(rows, model, {flag.removeprefix("--") for flag in flags_in(argv)})


def _readable_types() -> ConstructorRegistry:
    """Types as --help shows them: `PATH` for an optional path, `INT ...` for several numbers, `none`, `empty`."""
    registry = ConstructorRegistry()

    def inner(info: PrimitiveTypeInfo, kind: Any) -> Any:
        return ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, info.markers))

    @registry.primitive_rule
    def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        kinds = [kind for kind in get_args(info.type) if kind is not type(None)]
        if len(kinds) != 1 or type(None) not in get_args(info.type):
            return None
        spec = inner(info, kinds[0])
        if not isinstance(spec, PrimitiveConstructorSpec):  # a dataclass, for example
            return None
        absent = [["None"]] if kinds[0] in (str, Path) else [["None"], ["none"]]  # a file may have the name "none"
        return dataclasses.replace(
            spec,
            instance_from_str=lambda words: None if words in absent else spec.instance_from_str(words),
            is_instance=lambda value: value is None or spec.is_instance(value),
            str_from_instance=lambda value: ["none"] if value is None else spec.str_from_instance(value),
            choices=spec.choices and (*spec.choices, "None", "none"),
        )

    @registry.primitive_rule
    def several(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if get_origin(info.type) is not tuple or get_args(info.type)[1:] != (...,):
            return None
        spec = inner(info, get_args(info.type)[0])
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar=f"{spec.metavar} ...",
            instance_from_str=lambda words: tuple(spec.instance_from_str([word]) for word in words),
            is_instance=lambda value: isinstance(value, tuple) and all(map(spec.is_instance, value)),
            str_from_instance=lambda value: [one for item in value for one in spec.str_from_instance(item)] or ["none"],
            choices=spec.choices,
        )

    @registry.primitive_rule
    def text(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type is not str:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="TEXT",
            instance_from_str=lambda words: words[0],
            is_instance=lambda value: isinstance(value, str),
            str_from_instance=lambda value: [value or "empty"],
        )

    return registry
