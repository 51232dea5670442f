"""The texts of a Parquet file, as bytes: Parquet says that its strings are UTF-8, and no reader checks it."""

from collections.abc import Iterator
from typing import BinaryIO

from ..files import InputError
from .kinds import named


def text_cells(name: str, file: BinaryIO, text_field: str) -> Iterator[bytes]:
    """The cells of column `text_field` as they are stored, some at a time; of a cell without a value b"".

    name: of the file, for errors. Raises InputError if there is no such column, or it holds no text, and pyarrow's
    errors, OSError or UnicodeDecodeError (of names) for a damaged file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    schema = table.schema_arrow
    if text_field not in schema.names:
        raise InputError(f"{name}: no column {text_field!r}; found {named(schema.names)}; set --input.text-field")
    kind = schema.field(text_field).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_null(plain)):
        raise InputError(f"{name}: column {text_field!r} holds {kind}; expected text; set --input.text-field")
    for batch in table.iter_batches(batch_size=64, columns=[text_field]):
        column = batch.column(0).cast(plain) if plain != kind else batch.column(0)
        yield from (value or b"" for value in column.cast(pa.large_binary()).to_pylist())
