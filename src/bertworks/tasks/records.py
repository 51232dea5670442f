"""Data that a caller has in memory, as the rows of a table.

    a pandas or polars DataFrame, a pyarrow Table    the columns that the task names
    a datasets.Dataset                               the same; class labels are read as their names
    a list of dictionaries                           one row each

None of the libraries is imported: their objects are recognised by their class. The rows become what the same table in
a file would give (table.py). Messages name a row as Python does, counted from 0: `train.iloc[3]`, `train[3]`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.parsers import list_names
from ..files import InputError, shorten
from ..tokenizer import normalize

EXPECTED = "a path, a pandas or polars DataFrame, a datasets.Dataset, or a list of dictionaries"


@dataclass(frozen=True)
class Records:
    """Rows in memory, each of them a dictionary. `str` gives the name that messages have."""

    name: str  # of the argument: train, dev
    form: str  # a pandas DataFrame, for results.json
    accessor: str  # expression that an index in brackets selects a row of: train.iloc in train.iloc[3]
    columns: tuple[str, ...]  # composed names of all columns; (): every row has its own
    texts: tuple[str, ...]  # composed names of the columns whose cells must not be missing
    read: Callable[[Sequence[str]], Iterable[Any]]  # the rows, with the columns of these names at least

    def __str__(self) -> str:
        return self.name

    def location(self, line: int) -> str:
        """The expression of a row, counted from 1."""
        return f"{self.accessor}[{line - 1}]"

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(row counted from 1, its cells). Cells are plain Python; a missing one (None, NaN, NA) is None.

        names: composed; rows may lack them. Raises InputError for what is no row, and for a missing text.
        """
        line = 0
        for line, row in enumerate(self.read([name for name in names if name in self.columns]), 1):
            if not isinstance(row, Mapping):
                expected = ", ".join(f"{name!r}: ..." for name in names)
                found = f"{self.location(line)} is a {type(row).__name__} ({shorten(row)})"
                raise InputError(f"{found}; expected a dictionary, such as {{{expected}}}")
            cells = {normalize("NFC", str(name)): _cell(cell) for name, cell in row.items()}
            missing = [name for name in self.texts if name in cells and cells[name] is None]
            if missing:
                name = shorten(missing[0])
                advice = f"leave the row out (pandas: .dropna(subset=[{name}])), or give it an empty one"
                raise InputError(f"{self.location(line)}: {name} is missing; expected a text; {advice}")
            yield line, cells
        if not line:
            raise InputError(f"{self.name} has no rows; expected one or more")


Source = Path | Records


def source_of(data: Any, name: str, texts: Sequence[str] = ()) -> Source | None:
    """What `read_table` reads: the path, or rows in memory; None for rows that are the named tuples of a kind.

    name: of the argument, for messages. texts: columns whose cells must not be missing. Raises InputError for data of
    another form.
    """
    if isinstance(data, str | Path):
        if not could_be_path(data):
            raise InputError(f"{name} is a text of {len(str(data)):,} characters, which no file's name has; "
                             f"expected {EXPECTED}")  # fmt: skip
        return Path(data)
    texts = tuple(normalize("NFC", column) for column in texts)
    for (library, kind), (form, read) in _FRAMES.items():
        if _is(data, library, kind):
            ours = _composed(getattr(data, "column_names", None) or data.columns, name)
            accessor = f"{name}.iloc" if library == "pandas" else name
            return Records(name, form, accessor, (*ours,), texts, lambda names: read(data, ours, names))  # noqa: B023
    refuse_no_rows(data, name, EXPECTED)
    rows = data if isinstance(data, Sequence) else [*data]
    if rows and hasattr(rows[0], "_fields"):
        return None
    return Records(name, "a list of dictionaries", name, (), texts, lambda names: rows)


def could_be_path(text: str | Path) -> bool:
    """Whether the system would look for a file of this name; a name that is too long is an error of its own."""
    try:
        Path(text).exists()
    except OSError:
        return False
    return True


def refuse_no_rows(data: Any, name: str, expected: str) -> None:
    """Raises InputError for data whose items are no rows: columns, splits, a lazy frame."""
    if isinstance(data, Mapping | bytes) or not isinstance(data, Iterable) or _is(data, "polars", "LazyFrame"):
        raise InputError(f"{name} is a {type(data).__name__}; expected {expected}")


def is_table(data: Any) -> bool:
    """Whether data has named columns: a DataFrame, a Dataset, or a sequence that begins with a dictionary."""
    if any(_is(data, *known) for known in _FRAMES):
        return True
    return isinstance(data, Sequence) and bool(data) and isinstance(data[0], Mapping)


def as_sequence(data: Any) -> Any:
    """The data; what can be read only once, such as a generator, as a list."""
    return [*data] if isinstance(data, Iterator) else data


def described(data: Any) -> str:
    """What data is, for results.json: its path, or its form and number of rows."""
    if isinstance(data, str | Path):
        return str(data)
    source = source_of(data, "rows")
    form = source.form if isinstance(source, Records) else "a list of rows"
    return f"{form} of {len(data):,} rows" if hasattr(data, "__len__") else form


def _is(data: Any, library: str, name: str) -> bool:
    """Whether the data is of this class, or of one derived from it."""
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == library for kind in type(data).__mro__)


def _composed(columns: Iterable[Any], name: str) -> dict[str, Any]:
    """The columns by their composed names. Raises InputError for two of one name."""
    found: dict[str, Any] = {}
    for column in columns:
        key = normalize("NFC", str(column))
        if key in found:
            raise InputError(f"{name}: several columns {shorten(key)}; found {list_names([*map(str, columns)])}; "
                             "rename one of them")  # fmt: skip
        found[key] = column
    return found


def _of_pandas(frame: Any, ours: Mapping[str, Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    columns = {}
    for name in names:
        column = frame[ours[name]]
        missing = column.isna().tolist()
        columns[name] = [None if gone else cell for cell, gone in zip(column.tolist(), missing, strict=True)]
    return _as_rows(columns, len(frame))


def _of_polars(frame: Any, ours: Mapping[str, Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    return _as_rows({name: frame[ours[name]].to_list() for name in names}, len(frame))


def _of_arrow(table: Any, ours: Mapping[str, Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    return _as_rows({name: table[ours[name]].to_pylist() for name in names}, len(table))


def _as_rows(columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {name: column[i] for name, column in columns.items()}


def _of_dataset(dataset: Any, ours: Mapping[str, Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    classes = {name: _class_names(dataset.features[ours[name]]) for name in names}
    for row in dataset.with_format(None).select_columns([ours[name] for name in names]):
        yield {name: _named(row[ours[name]], classes[name]) for name in names}


_FRAMES = {
    ("pandas", "DataFrame"): ("a pandas DataFrame", _of_pandas),
    ("polars", "DataFrame"): ("a polars DataFrame", _of_polars),
    ("pyarrow", "Table"): ("a pyarrow Table", _of_arrow),
    ("datasets", "Dataset"): ("a datasets.Dataset", _of_dataset),
}


def _class_names(feature: Any) -> Sequence[str]:
    """The names of a ClassLabel, or of a list of them; () of any other column."""
    feature = feature[0] if isinstance(feature, list) else feature
    return getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None) or ()


def _named(cell: Any, names: Sequence[str]) -> Any:
    """A class label as its name; -1, which stands for none, as None."""
    if isinstance(cell, list):
        return [_named(one, names) for one in cell]
    if not names or not isinstance(cell, int):
        return cell
    return names[cell] if cell >= 0 else None


def _cell(value: Any) -> Any:
    """A cell as plain Python: numbers and arrays of NumPy too; what stands for a missing value is None."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, dict):
        return {key: _cell(item) for key, item in value.items()}
    return [_cell(item) for item in value] if isinstance(value, list | tuple) else value
