"""Writing files so that a killed process never leaves half of one in place, and the one error class for bad input.

Every file of a store, a run or a model folder goes through `atomic_write`: temporary name in the same folder, flushed
to disk, renamed. A reader therefore sees the old file or the new one, nothing between.

What is read is not believed: `read_json` and `parse_json` limit size, nesting and numbers, `shorten` keeps a hostile
value from filling the screen.
"""

import contextlib
import glob
import hashlib
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

READ_BYTES = 1 << 30  # the largest file that is read whole; the questions of SQuAD have 40 MB
PIPE_BYTES = 1 << 26  # the same of what is no file: a pipe, a device without an end
TABLE_BYTES = 1 << 24  # the largest JSON file of settings
_DEPTH = 100  # lists and tables inside each other; ours and Hugging Face's have fewer than ten
_DIGITS = 100  # of an integer; tokenizer_config.json may have one of 31
_MESSAGE = 1_900  # characters of an error message: a screen


class InputError(Exception):
    """What the user gave cannot be used. The message says what was found, what was expected, and what to do.

    The command line prints the message alone and exits with status 1; library users can catch it. A message of more
    than 1,900 characters is cut in its middle.
    """

    def __init__(self, message: str = ""):
        super().__init__(clip(message, _MESSAGE))


class Diverged(InputError):
    """A training whose loss or gradient was not finite for so long that it was ended."""


class NotWritten(InputError):
    """A file could not be written, for want of room or of rights: nothing that was given is to blame."""


def clip(text: str, limit: int = 80) -> str:
    """`text` in at most `limit` characters: beginning and end stay, dots stand for what is between them."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[: limit - 3 - half]}...{text[len(text) - half :]}"


def shorten(value: object, limit: int = 80) -> str:
    """`repr(value)` in at most `limit` characters, for error messages; works for values of any size and nesting."""
    if isinstance(value, str):  # repr first would copy a text of any length
        whole = repr(value if len(value) <= limit else value[:limit] + value[-limit:])
        return whole if len(value) <= limit and len(whole) <= limit else clip(whole, limit)
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length():,} bits"
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 4, limit, limit
    short.maxdict = short.maxlist = short.maxtuple = 8
    try:
        return clip(short.repr(value), limit)
    except ValueError:  # a huge integer inside a list
        return f"a {type(value).__name__}"


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "wb", clean: bool = True) -> Iterator[IO[Any]]:
    """Write a temporary file beside `path`; on success flush it to disk and rename it, on failure remove it.

    Temporary files of the same `path` that killed processes left are removed first, unless `clean` is false: looking
    for them takes long in folders of thousands of files, which have a lock and `remove_temporaries` instead.
    In text, the bytes of a file name that are not UTF-8 are escaped: JSON gives the same name back when it is read.
    An OSError names `path`: that of a full disk names no file of its own.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n"}
    if clean:
        _remove_abandoned(path)
    try:
        with open(temporary, mode, **text) as file:  # type: ignore[call-overload]
            _locked(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of `path` that nobody writes any more."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        process = left.name.removeprefix(f".{path.name}.").removesuffix(".tmp")
        with contextlib.suppress(OSError):  # another process has removed or renamed it, or Windows has it open
            if process.isdecimal() and _abandoned(left, int(process)):
                left.unlink()


def _abandoned(temporary: Path, process: int) -> bool:
    with open(temporary, "rb") as file:
        if not _locked(file):
            return False
        # An empty file may have been opened just now, and not be locked yet.
        return os.fstat(file.fileno()).st_size > 0 or not psutil.pid_exists(process)


def _locked(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; whether that could be done. Windows locks every open file by itself."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has the lock, or this file system has none
        return False
    return True


def remove_temporaries(folder: Path | str) -> None:
    """Remove what `atomic_write` left in `folder` when its process was killed. Hold the folder's lock meanwhile."""
    for path in Path(folder).glob(".*.tmp"):
        if re.fullmatch(r"\..+\.\d+\.tmp", path.name) and path.is_file():
            with contextlib.suppress(OSError):
                path.unlink()


def flush_folder(folder: Path | str) -> None:
    """Flush a folder's entries to disk, so that renames in it survive a power cut. Windows cannot, and need not."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(path: Path | str) -> Iterator[bool]:
    """Try to lock the file `path` (made if it is missing), without waiting; gives whether this process has the lock.

    The lock ends with the block, or with the process, however that ends. The file stays: removing it would let two
    processes hold locks of the same name.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path, "w") as file:
        file.write(text)


def to_json(value: Any, indent: int | None = None) -> str:
    """`value` as JSON text. Numbers that are not finite become null: JSON has no word for them."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, atomically; numbers that are not finite as null."""
    write_text(path, to_json(value, indent=1) + "\n")


def read_json(path: Path | str, finite: bool = True, limit: int = READ_BYTES) -> Any:
    """Read a UTF-8 JSON file of at most `limit` bytes. Raises InputError that names the file; see `parse_json`."""
    return parse_json(read_bytes(path, "a JSON file", limit), str(path), finite)


def read_table(path: Path | str) -> dict[str, Any]:
    """Read a small JSON file that holds settings by their names. Raises InputError, see `read_json`, if it does not."""
    table = read_json(path, limit=TABLE_BYTES)
    if not isinstance(table, dict):
        raise InputError(f"{path}: found a {type(table).__name__}; expected a table of settings")
    return table


def parse_json(data: bytes | str, where: str, finite: bool = True) -> Any:
    """The value of a JSON text. `where`, a file or file:line, opens every error message.

    Raises InputError if it is not JSON, has NaN or Infinity (allowed with `finite=False`, for files from before they
    were refused), an integer of more than 100 digits, or more than 100 lists and tables inside each other.
    """
    try:
        value = (_STRICT if finite else _LENIENT).decode(data if isinstance(data, str) else data.decode("utf-8"))
        if not _deeper_than(_DEPTH, value):
            return value
    except _Refused as error:
        raise InputError(f"{where}: {error}") from None
    except ValueError as error:  # of JSON, or of UTF-8
        raise InputError(f"{where}: not valid JSON ({error})") from None
    except RecursionError:
        pass
    raise InputError(f"{where}: more than {_DEPTH} lists and tables inside each other; expected fewer")


class _Refused(Exception):
    """A number that JSON or we do not allow."""


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise _Refused(f"an integer of {len(text):,} digits; expected at most {_DIGITS}")
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise _Refused(f"the number {clip(text, 40)} is too large; expected a 64-bit floating-point number")
    return value


def _constant(text: str) -> float:
    raise _Refused(f"the value {text} is not JSON; expected a finite number or null")


_STRICT = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_constant)
_LENIENT = json.JSONDecoder(parse_int=_integer)


def _deeper_than(depth: int, value: Any) -> bool:
    """Whether lists and tables are nested deeper than `depth`; walks level by level, never by recursion."""
    level = [value]
    for _ in range(depth + 1):
        if not level:
            return False
        level = [item for item in level if isinstance(item, dict | list)]
        level = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
    return bool(level)


def read_bytes(path: Path | str, expected: str, limit: int) -> bytes:
    """The bytes of a file. Raises InputError that names it if it is missing, too large or cannot be read."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            regular = stat.S_ISREG(about.st_mode)
            limit = limit if regular else min(limit, PIPE_BYTES)
            size = about.st_size if regular else limit  # pipes and devices do not say theirs
            data = file.read(size + 1) if size <= limit else b""
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected {expected}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if size > limit or len(data) > limit:
        raise InputError(f"{path}: more than {limit:,} bytes; expected {expected} of at most that size")
    return data


def read_lines(path: Path | str, expected: str, limit: int = READ_BYTES) -> list[str]:
    """The lines of a UTF-8 file, split at newlines alone; what follows the last newline is one more if it is not blank.

    Raises InputError, which says what was `expected`, if the file is missing, larger than `limit` bytes, or not UTF-8.
    """
    try:
        lines = read_bytes(path, expected, limit).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected {expected}") from None
    return lines if lines[-1].strip() else lines[:-1]


def checksum(path: Path | str) -> str:
    """BLAKE2b-128 of a file's bytes, as hex; reads in pieces, so memory stays constant."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
