"""Writing files so that a killed process never leaves half of one in place, and the one error class for bad input.

Every file of a store, a run or a model folder goes through `atomic_write`: temporary name in the same folder, flushed
to disk, renamed. A reader therefore sees the old file or the new one, nothing between.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class InputError(Exception):
    """What the user gave cannot be used. The message says what was found, what was expected, and what to do.

    The command line prints the message alone and exits with status 1; library users can catch it.
    """


class Diverged(InputError):
    """A training whose loss or gradient was not finite for so long that it was ended."""


class NotWritten(InputError):
    """A file could not be written, for want of room or of rights: nothing that was given is to blame."""


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "wb") -> Iterator[IO[Any]]:
    """Write a temporary file beside `path`; on success flush it to disk and rename it, on failure remove it."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    encoding = None if "b" in mode else "utf-8"
    try:
        with open(temporary, mode, encoding=encoding, newline=None if "b" in mode else "\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path, "w") as file:
        file.write(text)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file. Raises InputError that names the file if it is missing or is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None


def read_lines(path: Path | str, expected: str) -> list[str]:
    """The lines of a UTF-8 file, split at newlines alone; what follows the last newline is one more if it is not blank.

    Raises InputError, which says what was `expected`, if the file is missing or is not UTF-8.
    """
    try:
        lines = Path(path).read_bytes().decode("utf-8").split("\n")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected {expected}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected {expected}") from None
    return lines if lines[-1].strip() else lines[:-1]


def checksum(path: Path | str) -> str:
    """BLAKE2b-128 of a file's bytes, as hex; reads in pieces, so memory stays constant."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
