"""Read and write files safely: atomic writing, JSON, locks, and the one error class for bad input.

Every file of a store, a run or a model folder goes through `atomic_write`: temporary name in the same folder, flushed
to disk, renamed. A reader therefore sees the old file or the new one, even if the writer is killed. Files are not
trusted: readers limit their size, and `shorten` the values that a message shows.
"""

import contextlib
import glob
import hashlib
import json
import math
import os
import platform
import re
import reprlib
import stat
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import psutil

READ_BYTES = 1 << 30  # the largest file that is read whole; the questions of SQuAD have 40 MB
PIPE_BYTES = 1 << 26  # the same for a pipe or a device, which may have no end
TABLE_BYTES = 1 << 24  # the largest JSON file of settings
DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")  # folders of devices; /dev/stdout may be a link to a file
_MESSAGE = 1_900  # characters of an error message: a screen


class InputError(Exception):
    """An input cannot be used. The message says what was found, what was expected, and what to do.

    The command line prints the message alone and exits with status 1; library users can catch it. A message of more
    than 1,900 characters is cut in its middle.
    """

    def __init__(self, message: str = ""):
        super().__init__(clip(message, _MESSAGE))


class Diverged(InputError):
    """Training was ended because its loss or gradient was not finite for too long."""


class OtherRun(InputError):
    """A run folder belongs to a run with other settings, data or model."""


class NotWritten(InputError):
    """A file could not be written: disk full or permission denied. The input is not at fault."""


class NewerVersion(InputError):
    """A file was written by a newer bertworks than this one."""


def clip(text: str, limit: int = 80) -> str:
    """`text` in at most `limit` characters: its beginning and its end, with dots between them if it is longer."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[: limit - 3 - half]}...{text[len(text) - half :]}"


def shorten(value: object, limit: int = 80) -> str:
    """`repr(value)` in at most `limit` characters, for error messages; works for values of any size and nesting."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxlong, short.maxother = 4, limit, limit, limit
    short.maxdict = short.maxlist = short.maxtuple = 8
    try:
        return clip(short.repr(value).replace("\n", " "), limit)  # some tables have a line for each column
    except ValueError:  # an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def not_found(path: Path | str, what: Literal["file", "folder", "file or folder"] = "file") -> str:
    """What was found in place of an expected file or folder, for a message."""
    if not os.path.exists(path):  # unlike the method, no error for a name that is too long
        return f"no such {what}"
    existing = "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else "pipe or device"
    return f"a {existing}; expected a {what}"


@contextlib.contextmanager
def atomic_write(path: Path | str, mode: str = "wb", shared: Path | None = None) -> Iterator[IO[Any]]:
    """Write a temporary file beside `path`; on success flush it to disk and rename it, on failure remove it.

    Temporary files of the same `path` that killed processes left are removed first.
    shared: a folder for the temporary file where several machines write the same file; whoever made it removes it.
    An OSError names `path`. Raises InputError for text that UTF-8 cannot hold, and for a device or a pipe.
    """
    path = Path(path)
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    special = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    if special or str(path.parent) in DEVICES:  # a rename would replace it
        raise InputError(f"{path}: a pipe or a device; expected the name of a file to write")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    if shared:  # processes of two machines may have the same number, and two threads of one process the same task
        temporary = shared / f".{path.name}.{platform.node()}.{threading.get_native_id()}.{os.getpid()}.tmp"
    else:
        remove_temporaries(path.parent, path.name)
    try:
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, UnicodeEncodeError):
            raise InputError(
                f"{path}: not written, its text has a lone surrogate ({shorten(error.object[error.start])}); expected "
                "text that UTF-8 can hold; rename the file that has it in its name, or remove the character"
            ) from None
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def remove_temporaries(folder: Path | str, name: str = "") -> None:
    """Remove the temporary files in `folder` whose `atomic_write` was killed: all, or those of one file `name`.

    The file of a process that still runs stays. Only one machine at a time may write a file (see `atomic_write`).
    """
    for path in Path(folder).glob(f".{glob.escape(name) or '*'}.*.tmp"):
        match = re.fullmatch(r"\..+\.([0-9]+)\.tmp", path.name)
        if match and ended(int(match[1])):
            with contextlib.suppress(OSError):  # another process has removed it, or it is a folder
                path.unlink()


def ended(process: int) -> bool:
    """Whether no process with this number runs on this machine any more."""
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE  # killed, and not yet collected
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


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
def try_lock(path: Path | str) -> Iterator[bool]:
    """Try to lock the file `path` (made if it is missing) without waiting; yields whether this process has the lock.

    The lock ends with the block, or with the process, however that ends. The file stays: removing it would let two
    processes hold locks of the same name.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, blocking=False)
    with warnings.catch_warnings(), contextlib.suppress(Timeout):
        warnings.simplefilter("ignore", UserWarning)  # some file systems lock by the mere existence of a file
        lock.acquire()
    try:
        yield lock.is_locked
    finally:
        lock.release()


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path, "w") as file:
        file.write(text)


def to_json(value: Any, indent: int | None = None) -> str:
    """`value` as JSON text. Numbers that are not finite become null: JSON has no word for them.

    Bytes of file names that are not UTF-8 (lone surrogates) are escaped; JSON gives the same name back.
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON, atomically; see `to_json`."""
    write_text(path, to_json(value, indent=1) + "\n")


def safetensors_header(facts: Mapping[str, str], arrays: Iterable[tuple[str, str, Sequence[int], int]]) -> bytes:
    """The beginning of a .safetensors file. The bytes of the arrays follow it, in the same order.

    arrays: name, type ("F32"), shape and bytes of each; the wider types come first.
    """
    header: dict[str, Any] = {"__metadata__": dict(facts)}
    end = 0
    for name, kind, shape, size in arrays:
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays are aligned for their type
    return len(text).to_bytes(8, "little") + text


def read_json(path: Path | str, finite: bool = True, limit: int = READ_BYTES) -> Any:
    """Read a UTF-8 JSON file of at most `limit` bytes. Raises InputError that names the file; see `parse_json`."""
    return parse_json(read_bytes(path, "a JSON file", limit), str(path), finite)


def read_json_object(path: Path | str) -> dict[str, Any]:
    """Read a small JSON file that holds settings by their names. Raises InputError, see `read_json`, if it does not."""
    table = read_json(path, limit=TABLE_BYTES)
    if not isinstance(table, dict):
        raise InputError(f"{path}: found a {type(table).__name__}; expected a table of settings")
    return table


def parse_json(data: bytes | str, where: str, finite: bool = True) -> Any:
    """The value of a JSON text. `where`, a file or file:line, opens every error message.

    Raises InputError if it is not JSON, or has NaN or Infinity, which `finite=False` allows: files of other programs
    have them in fields that are not read.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant if finite else None)
    except RecursionError:
        raise InputError(f"{where}: too many lists and tables inside each other; expected fewer") from None
    except ValueError as error:  # of JSON, of UTF-8, or of an integer of thousands of digits
        raise InputError(f"{where}: not valid JSON ({error})") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number; expected one, or null")


def read_bytes(path: Path | str, expected: str, limit: int) -> bytes:
    """The bytes of a file. Raises InputError that names it if it is missing, too large or cannot be read."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            regular = stat.S_ISREG(about.st_mode)
            limit = limit if regular else min(limit, PIPE_BYTES)
            size = about.st_size if regular else limit  # pipes and devices have no size
            data = file.read(size + 1) if size <= limit else b""
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected {expected}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if size > limit or len(data) > limit:
        raise InputError(f"{path}: more than {limit:,} bytes; expected {expected} of at most that size")
    return data


def checksum(path: Path | str) -> str:
    """BLAKE2b-128 of a file's bytes, as hex, in constant memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def check_version(version: object, readable: range, where: str, advice: str, kind: str = "format") -> None:
    """Raise InputError unless the format version of a file is one that this version of bertworks reads.

    `advice` says what to do with a file that is too old or has no version. A newer one raises NewerVersion.
    """
    if type(version) is int and version in readable:
        return
    if type(version) is int and version > readable[-1]:
        newer = f"written by a newer bertworks ({kind} {version}; this version reads up to {readable[-1]})"
        raise NewerVersion(f"{where}: {newer}; install a newer one")
    expected = f"{readable[0]} to {readable[-1]}" if len(readable) > 1 else str(readable[0])
    value = "missing" if version is None else shorten(version)
    raise InputError(f"{where}: {kind} is {value}; expected {expected}; {advice}")
