"""Features of a whole file, written as safetensors, in constant memory (docs/features.md).

The arrays' sizes are known only at the end: they grow in nameless files beside the target and are copied into it, so
they need twice the disk space while writing.

Shapes: N texts, R vectors of all texts, W their width.
"""

import contextlib
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, atomic_write, safetensors_header
from ..reporting.outputs import check_output
from ..tasks.table import suffix_of
from .features import Extractor, Text
from .file_inputs import Columns, read_inputs

SUFFIX = ".safetensors"
_FORMS = {"lines": "i8", "edges": "i8", "offsets": "2i4", "words": "i4", "ids": "i4", "segments": "u1"}  # of a row
_NAMES = {"float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8"}  # of number types in the file


class Written(NamedTuple):
    """What went into a file."""

    texts: int
    vectors: int
    width: int
    windowed: int  # texts that did not fit into one window


def write_features(
    extractor: Extractor, file: Any, columns: Columns, out: Path, facts: dict[str, str] | None = None
) -> Written:
    """The features of every input of `file`, in its order; `out` is replaced when all is done.

    file: lines of text ("-": standard input), a table with one or two text columns (tasks/table.py), or data in memory
    (`read_inputs`). facts: kept in the file beside the extractor's settings. Raises InputError with file and line if an
    input is damaged, or if `out` is no .safetensors.
    """
    check_out(out, [file])
    lines: deque[int] = deque()  # of the texts that were read but not yet written
    pairs = len(columns.text) == 2

    def texts() -> Iterator[Text]:
        nonlocal pairs
        for line, text in read_texts(file, columns):
            lines.append(line)
            pairs = pairs or not isinstance(text, str)
            yield text

    settings = {name: str(value) for name, value in vars(extractor.config).items() if value not in (None, False)}
    texts_written = vectors = windowed = 0
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(atomic_write(out))  # first: it names `out` in errors of the others too
        arrays = _arrays(extractor)
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=out.parent)) for name in arrays}
        if "edges" in files:
            files["edges"].write(bytes(8))  # the first one, 0
        for chunk in extractor.chunks(texts()):
            N = len(chunk.edges) - 1
            parts: dict[str, NDArray[Any] | None] = chunk.features._asdict()
            parts |= {"lines": np.array([lines.popleft() for _ in range(N)]), "edges": chunk.edges[1:] + vectors}
            for name, part in files.items():
                part.write(np.ascontiguousarray(parts[name], arrays[name].base).data)
            texts_written += N
            vectors += int(chunk.edges[-1])
            windowed += chunk.windowed
        if not pairs:
            files.pop("segments", None)
        _save(target, files, arrays, settings | (facts or {}))
    return Written(texts_written, vectors, extractor.width, windowed)


def read_texts(data: Any, columns: Columns) -> Iterator[tuple[int, Text]]:
    """(line or row counted from 1, text or pair) of each input. Raises InputError like `read_inputs`."""
    for given in read_inputs(data, "tagging" if columns.words else "", columns):
        yield given.name["line"], given.texts[0] if len(given.texts) == 1 else tuple(given.texts)  # type: ignore[misc]


def check_out(out: Path, data: Iterable[Any] = (), folders: Iterable[Any] = ()) -> None:
    """Raises InputError if the file has another ending, or as `check_output`."""
    if suffix_of(out) != SUFFIX:
        raise InputError(f"{out}: expected a name that ends in {SUFFIX}")
    check_output(out, data, folders)


def _arrays(extractor: Extractor) -> dict[str, np.dtype[Any]]:
    """Number type and shape of a row of each array: several vectors of a text have `edges` (N + 1,), and names."""
    config = extractor.config
    names = [] if config.pool else ["edges", "offsets", "words", "segments", *([] if config.words else ["ids"])]
    vectors = np.dtype(("f4", (extractor.width,)))
    return {"vectors": vectors, **{name: np.dtype(_FORMS[name]) for name in ("lines", *names)}}


def _save(
    target: IO[bytes], files: Mapping[str, IO[bytes]], rows: Mapping[str, np.dtype[Any]], facts: dict[str, str]
) -> None:
    """The file that `safetensors.numpy.save_file` would write, which needs them in memory: a header, then arrays."""
    order = sorted(files, key=lambda name: -rows[name].base.itemsize)  # the wider types first
    arrays = []
    for name in order:
        row, size = rows[name], files[name].tell()
        arrays.append((name, _NAMES[row.base.name], (size // row.itemsize, *row.shape), size))
    target.write(safetensors_header(facts, arrays))
    for name in order:
        files[name].seek(0)
        shutil.copyfileobj(files[name], target, 1 << 20)
