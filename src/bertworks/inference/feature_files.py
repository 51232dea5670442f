"""Features of a whole file, written as safetensors or Parquet, in constant memory (docs/features.md).

Parquet has one row per text. A safetensors file has a few large arrays whose sizes are known only at the end: they grow
in nameless files beside the target and are copied into it, so they need twice the disk space while writing.

Shapes: N texts, R vectors of all texts, W their width.
"""

import contextlib
import itertools
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, atomic_write, safetensors_header
from ..reporting.outputs import check_output, naming
from ..tasks.table import TABLES, ending_of, part_of
from .features import Chunk, Extractor, Text
from .file_inputs import Columns, read_inputs

Write = Callable[[Chunk, list[int]], None]  # a chunk, and the line of each of its texts
Facts = dict[str, str]  # metadata in the file


class Written(NamedTuple):
    """What went into a file."""

    texts: int
    vectors: int
    width: int
    windowed: int  # texts that did not fit into one window


def write_features(extractor: Extractor, file: Any, columns: Columns, out: Path, facts: Facts | None = None) -> Written:
    """The features of every input of `file`, in its order; `out` is replaced when all is done.

    file: lines of text ("-": standard input), a table with one or two text columns (tasks/table.py), or data in memory
    (`read_inputs`). out: its ending decides, see WRITERS. facts: kept in the file beside the extractor's settings.
    Raises InputError with file and line if an input is damaged, or if there is no writer for the ending.
    """
    writer = writer_for(out, [file])
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
    total = np.zeros(3, np.int64)
    with writer(out, extractor, pairs, settings | (facts or {})) as write:
        for chunk in extractor.chunks(texts()):
            N = len(chunk.edges) - 1
            write(chunk, [lines.popleft() for _ in range(N)])
            total += N, chunk.edges[-1], chunk.windowed
    return Written(int(total[0]), int(total[1]), extractor.width, int(total[2]))


def read_texts(data: Any, columns: Columns) -> Iterator[tuple[int, Text]]:
    """(line or row counted from 1, text or pair) of each input. Raises InputError like `read_inputs`."""
    for given in read_inputs(data, "tagging" if columns.words else "", columns):
        if len(given.texts) not in (1, 2):
            raise InputError(f"row {given.name['line']}: {len(given.texts)} texts; expected one, or two for pairs")
        yield given.name["line"], given.texts[0] if len(given.texts) == 1 else (given.texts[0], given.texts[1])


def writer_for(
    out: Path, data: Iterable[Any] = (), folders: Iterable[Any] = ()
) -> Callable[[Path, Extractor, bool, Facts], AbstractContextManager[Write]]:
    """What writes files of this ending. Raises InputError if nothing does, or as `check_output`."""
    if ending_of(out) not in WRITERS:
        raise InputError(f"{out}: no known ending; expected one of {', '.join(WRITERS)}")
    check_output(out, data, folders)
    return WRITERS[ending_of(out)]


# ---- Parquet


@contextlib.contextmanager
def _parquet(out: Path, extractor: Extractor, pairs: bool, facts: Facts) -> Iterator[Write]:
    """A row a text; vectors and what they belong to are lists. A chunk is a row group."""
    import pyarrow
    from pyarrow import parquet

    vector = pyarrow.list_(pyarrow.from_numpy_dtype(extractor.config.dtype), extractor.width)
    fields = [("line", pyarrow.int64())]
    if extractor.config.pool:
        fields.append(("vector", vector))
    else:
        named = [("start", "int32"), ("end", "int32"), ("word", "int32"), *([("segment", "uint8")] * pairs)]
        fields.append(("words" if extractor.config.words else "pieces", pyarrow.list_(pyarrow.string())))
        fields += [(name, pyarrow.list_(pyarrow.type_for_alias(kind))) for name, kind in named]
        fields.append(("vectors", pyarrow.list_(vector)))
    schema = pyarrow.schema(fields, metadata=facts)
    vocab = pyarrow.array(extractor.tokenizer.vocab)

    def columns(chunk: Chunk) -> Iterator[Any]:
        features = chunk.features
        flat = pyarrow.FixedSizeListArray.from_arrays(features.vectors.reshape(-1), extractor.width)
        if features.offsets is None or features.words is None:
            yield flat
            return
        begins = pyarrow.array(chunk.edges.astype(np.int32))
        texts = vocab.take(pyarrow.array(features.ids)) if chunk.strings is None else chunk.strings
        numbers = [*features.offsets.T, features.words, *([features.segments] * pairs)]
        for part in (texts, *map(np.ascontiguousarray, numbers), flat):
            yield pyarrow.ListArray.from_arrays(begins, part)

    def write(chunk: Chunk, lines: list[int]) -> None:
        writer.write_table(pyarrow.Table.from_arrays([pyarrow.array(lines), *columns(chunk)], schema=schema))

    # compression is off: vectors do not shrink, and nothing else is large
    with atomic_write(out) as file, parquet.ParquetWriter(file, schema, compression="none") as writer:
        yield write


# ---- safetensors


@contextlib.contextmanager
def _safetensors(out: Path, extractor: Extractor, pairs: bool, facts: Facts) -> Iterator[Write]:
    """`vectors` (R, W), `lines` (N,), and where a text has several vectors `edges` (N + 1,) and their names."""
    config = extractor.config
    rows: dict[str, tuple[str, tuple[int, ...]]] = {
        "vectors": (config.dtype, (extractor.width,)),
        "lines": ("int64", ()),
    }
    if not config.pool:
        rows |= {"edges": ("int64", ()), "offsets": ("int32", (2,)), "words": ("int32", ())}
        rows |= ({} if config.words else {"ids": ("int32", ())}) | ({"segments": ("uint8", ())} if pairs else {})
    with naming(out), contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=out.parent)) for name in rows}
        if "edges" in files:
            files["edges"].write(np.zeros(1, np.int64).tobytes())
        written = 0

        def write(chunk: Chunk, lines: list[int]) -> None:
            nonlocal written
            parts: dict[str, NDArray[Any] | None] = chunk.features._asdict()
            parts |= {"lines": np.array(lines, np.int64), "edges": chunk.edges[1:] + written}
            for name, file in files.items():
                file.write(np.ascontiguousarray(parts[name], rows[name][0]).data)
            written += int(chunk.edges[-1])

        target = stack.enter_context(atomic_write(out))
        yield write
        _save(target, files, rows, facts)


def _save(
    target: IO[bytes], files: Mapping[str, IO[bytes]], rows: Mapping[str, tuple[str, tuple[int, ...]]], facts: Facts
) -> None:
    """The file that `safetensors.numpy.save_file` would write, which needs a path of its own: a header, then arrays."""
    kinds = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8"}
    order = sorted(files, key=lambda name: -np.dtype(rows[name][0]).itemsize)  # the wider types first
    sizes = {name: files[name].tell() for name in order}
    shapes = {}
    for name, (dtype, row) in rows.items():
        shapes[name] = (sizes[name] // (np.dtype(dtype).itemsize * int(np.prod(row, dtype=np.int64))), *row)
    target.write(safetensors_header(facts, [(name, kinds[rows[name][0]], shapes[name], sizes[name]) for name in order]))
    for name in order:
        files[name].seek(0)
        shutil.copyfileobj(files[name], target, 1 << 20)


WRITERS = {".safetensors": _safetensors, ".parquet": _parquet}
