"""Features of a whole file, written as safetensors, in constant memory (docs/features.md).

The arrays' sizes are known only at the end: they grow in nameless files beside the target and are copied into it, so
they need twice the disk space while writing.

Shapes: N texts, R vectors of all texts, W their width.
"""

import contextlib
import itertools
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, atomic_write, safetensors_header
from ..reporting.outputs import check_output, naming
from ..tasks.table import TABLES, ending_of, part_of
from .features import Extractor, Text
from .file_inputs import Columns, read_inputs

ENDING = ".safetensors"
_ROWS: dict[str, tuple[str, tuple[int, ...]]] = {  # number type and shape of a row of each array but the vectors
    "lines": ("int64", ()),
    "edges": ("int64", ()),
    "offsets": ("int32", (2,)),
    "words": ("int32", ()),
    "ids": ("int32", ()),
    "segments": ("uint8", ()),
}
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
    if len(columns.text) > 2:
        raise InputError(f"{len(columns.text)} text columns; expected one, or two for pairs")
    if isinstance(file, str) and file != "-" and ending_of(file) not in TABLES and not part_of(file)[0].is_file():
        raise InputError(f"{file}: no such file")
    lines: deque[int] = deque()  # of the texts that were read but not yet written
    rows = read_texts(file, columns)
    first = next(rows, None)
    pairs = len(columns.text) == 2 if first is None else not isinstance(first[1], str)

    def texts() -> Iterator[Text]:
        for line, text in itertools.chain([] if first is None else [first], rows):
            lines.append(line)
            yield text

    settings = {name: str(value) for name, value in vars(extractor.config).items() if value not in (None, False)}
    texts_written = vectors = windowed = 0
    with _arrays(out, extractor, pairs, settings | (facts or {})) as files:
        for chunk in extractor.chunks(texts()):
            N = len(chunk.edges) - 1
            parts: dict[str, NDArray[Any] | None] = chunk.features._asdict()
            parts |= {"lines": np.array([lines.popleft() for _ in range(N)]), "edges": chunk.edges[1:] + vectors}
            for name, array in files.items():
                array.write(np.ascontiguousarray(parts[name], _ROWS.get(name, ("float32",))[0]).data)
            texts_written, vectors, windowed = (
                texts_written + N,
                vectors + int(chunk.edges[-1]),
                windowed + chunk.windowed,
            )
    return Written(texts_written, vectors, extractor.width, windowed)


def read_texts(data: Any, columns: Columns) -> Iterator[tuple[int, Text]]:
    """(line or row counted from 1, text or pair) of each input. Raises InputError like `read_inputs`."""
    for given in read_inputs(data, "tagging" if columns.words else "", columns):
        if len(given.texts) not in (1, 2):
            raise InputError(f"row {given.name['line']}: {len(given.texts)} texts; expected one, or two for pairs")
        yield given.name["line"], given.texts[0] if len(given.texts) == 1 else (given.texts[0], given.texts[1])


def check_out(out: Path, data: Iterable[Any] = (), folders: Iterable[Any] = ()) -> None:
    """Raises InputError if the file has another ending, or as `check_output`."""
    if ending_of(out) != ENDING:
        raise InputError(f"{out}: expected a name that ends in {ENDING}")
    check_output(out, data, folders)


@contextlib.contextmanager
def _arrays(out: Path, extractor: Extractor, pairs: bool, facts: dict[str, str]) -> Iterator[Mapping[str, IO[bytes]]]:
    """The nameless files of the arrays; at the end of the block they are copied into `out`.

    `vectors` (R, W), `lines` (N,), and where a text has several vectors `edges` (N + 1,) and their names.
    """
    names = ["vectors", "lines"]
    if not extractor.config.pool:
        names += ["edges", "offsets", "words", *(["ids"] if not extractor.config.words else [])]
        names += ["segments"] if pairs else []
    with naming(out), contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=out.parent)) for name in names}
        if "edges" in files:
            files["edges"].write(np.zeros(1, np.int64).tobytes())
        target = stack.enter_context(atomic_write(out))
        yield files
        _save(target, files, _ROWS | {"vectors": ("float32", (extractor.width,))}, facts)


def _save(
    target: IO[bytes],
    files: Mapping[str, IO[bytes]],
    rows: Mapping[str, tuple[str, tuple[int, ...]]],
    facts: dict[str, str],
) -> None:
    """The file that `safetensors.numpy.save_file` would write, which needs a path of its own: a header, then arrays."""
    order = sorted(files, key=lambda name: -np.dtype(rows[name][0]).itemsize)  # the wider types first
    arrays = []
    for name in order:
        dtype, row = rows[name]
        size = files[name].tell()
        count = size // (np.dtype(dtype).itemsize * int(np.prod(row, dtype=np.int64)))
        arrays.append((name, _NAMES[dtype], (count, *row), size))
    target.write(safetensors_header(facts, arrays))
    for name in order:
        files[name].seek(0)
        shutil.copyfileobj(files[name], target, 1 << 20)
