"""What several verbs do with their arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import InputError

if TYPE_CHECKING:
    from ..tasks.base import Task


def words(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(word for word in text.split(",") if word)


def folder_of(task: str, folder: Path | None) -> Path:
    """The folder of a task's files. Raises InputError if there is none."""
    if folder is None:
        raise InputError(f"--task {task} needs --data DIR, the folder with its files")
    return folder


def own_files(*files: Path | None) -> list[Path]:
    """The tables that are given. Raises InputError if one is missing."""
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        raise InputError("give --task NAME with --data DIR, or tables of your own with --train and --dev")
    return found


def check_alone(what: str, beside: dict[str, object]) -> None:
    """Raises InputError if there is anything that would not be looked at beside `what`."""
    if beside:
        raise InputError(f"{what} cannot stand beside {', '.join(beside)}; leave one of them out")


def model_first(argv: list[str]) -> list[str]:
    """The arguments with the folder in front, for verbs that take FOLDER or --model FOLDER."""
    model, rest = taken(argv, "--model")
    return argv if model is None else [model, *rest]


def model_flag(argv: list[str]) -> list[str]:
    """The arguments with the folder as --model, for verbs that take --model FOLDER or FOLDER."""
    return ["--model", *argv] if argv and not argv[0].startswith("-") else argv


def taken(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of `flag VALUE` or `flag=VALUE`, and the other arguments."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1], [*argv[:i], *argv[i + 2 :]]
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :], [*argv[:i], *argv[i + 1 :]]
    return None, argv


def flags_in(argv: list[str]) -> set[str]:
    """The flags on a line, with hyphens, as --help writes them: {"--optim.lr", "--batch-size"}."""
    return {word.partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")}


@dataclass(frozen=True)
class DevRows:
    """The development rows of a known task, or a table of one's own: what a fine-tuned folder is judged on."""

    task: str = ""  # a task that bertworks knows (bertworks tasks lists them)
    data: Path | None = None  # folder of the task's files; the development file is read
    dev: Path | None = None  # a table of your own instead (.csv, .tsv, .jsonl, .parquet)
    kind: str = ""  # of your own table: single, pair, regression, multilabel, choice, tagging, span
    text: str = "text"  # its text column, or two of them with a comma between
    label: str = "label"  # its label column; multilabel: or several with commas between, of 0 and 1
    choices: str = ""  # its columns of a multiple choice, commas between

    def read(self) -> tuple["Task", Sequence[Any]]:
        """The task and its rows. Raises InputError if both or neither are given, or a file cannot be read."""
        from ..tasks.catalogue import find_task
        from ..tasks.kinds import own_task, read_rows

        if self.task:
            own = {"--dev": self.dev, "--kind": self.kind, "--choices": self.choices}
            check_alone("--task", {name: value for name, value in own.items() if value})
            known = find_task(self.task)
            return known, read_rows(known, folder_of(self.task, self.data) / known.dev)
        if self.dev is None:
            raise InputError("give --task NAME with --data DIR, or a table of your own with --dev")
        task = own_task(self.kind, words(self.text), self.label, words(self.choices))
        return task, read_rows(task, self.dev)


def parse_recipe(command: Any, recipe: Any, argv: list[str], verb: str) -> Any:
    """The arguments: the recipe first, if there is one; its values are the defaults of the other flags."""
    import dataclasses

    import tyro

    from ..config import find_recipe, load_recipe
    from ..files import InputError

    path = find_recipe(argv[0], verb) if argv and not argv[0].startswith("-") else None
    base = load_recipe(path, recipe) if path else recipe()
    needed = (f.name for f in dataclasses.fields(command) if f.default is dataclasses.MISSING)
    start = command(**{**dict.fromkeys(needed, tyro.MISSING), "recipe": base})
    try:
        parsed = tyro.cli(command, args=argv[1:] if path else argv, default=start, prog=f"bertworks {verb}")
    except ValueError as error:  # a value that the recipe's own checks refuse
        raise InputError(str(error)) from None
    loop = parsed.recipe.loop
    if not (path or loop.steps or loop.tokens or loop.hours):
        raise InputError(
            f"no RECIPE, and no budget; write `bertworks {verb} RECIPE ...` (`bertworks recipes` lists them), or give "
            "one of --loop.steps, --loop.tokens, --loop.hours"
        )
    return parsed
