"""What several verbs do with their arguments."""

from pathlib import Path

from ..files import InputError


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


def taken(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of `flag VALUE` or `flag=VALUE`, and the other arguments."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1], [*argv[:i], *argv[i + 2 :]]
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :], [*argv[:i], *argv[i + 1 :]]
    return None, argv
