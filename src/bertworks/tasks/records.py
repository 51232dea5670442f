"""Data that a caller has in memory, as the rows of a table.

    a pandas or polars DataFrame, a pyarrow Table    the columns that the task names
    a datasets.Dataset                               the same; class labels are read as their names
    a list of dictionaries                           one row each

None of the libraries is imported: their objects are recognised by their class. The rows become what the same table in
a file would give (table.py). Messages name a row as Python does, counted from 0: `train.iloc[3]`, `train[3]`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.parsers import list_names
from ..files import InputError, shorten
from ..tokenizer import normalize

EXPECTED = "a path, a pandas or polars DataFrame, a datasets.Dataset, or a list of dictionaries"
FRAMES = {  # by library and class
    ("pandas", "DataFrame"): "a pandas DataFrame",
    ("polars", "DataFrame"): "a polars DataFrame",
    ("pyarrow", "Table"): "a pyarrow Table",
    ("datasets", "Dataset"): "a datasets.Dataset",
}


@dataclass(frozen=True)
class Records:
    """Rows in memory, each of them a dictionary. `str` gives the name that messages have."""

    name: str  # of the argument: train, dev
    data: Any
    form: str  # a pandas DataFrame, for results.json
    own: Mapping[str, Any]  # the data's names of all columns by their composed form; {}: every row has its own
    texts: tuple[str, ...]  # composed names of the columns whose cells must not be missing

    def __str__(self) -> str:
        return self.name

    def location(self, line: int) -> str:
        """The expression of a row, counted from 1."""
        return f"{self.name}{'.iloc' * ('pandas' in self.form)}[{line - 1}]"

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(row counted from 1, its cells). Cells are plain Python; a missing one (None, NaN, NA) is None.

        names: composed; rows may lack them. Raises InputError for what is no row, and for a missing text.
        """
        line = 0
        for line, row in enumerate(self._dictionaries(names), 1):
            if not isinstance(row, Mapping):
                found = f"{self.location(line)} is a {type(row).__name__} ({shorten(row)})"
                raise InputError(f"{found}; expected a dictionary, such as {{{names[0]!r}: ...}}")
            cells = {normalize("NFC", str(name)): _plain(cell) for name, cell in row.items()}
            missing = [name for name in self.texts if name in cells and cells[name] is None]
            if missing:
                advice = "leave the row out, or give it an empty text"
                raise InputError(f"{self.location(line)}: {shorten(missing[0])} is missing; expected a text; {advice}")
            yield line, cells
        if not line:
            raise InputError(f"{self.name} has no rows; expected one or more")

    def _dictionaries(self, names: Sequence[str]) -> Iterable[Any]:
        """The rows with the columns of these names, all columns if there is none of them."""
        wanted = [self.own[name] for name in dict.fromkeys(names) if name in self.own] or [*self.own.values()]
        if "pandas" in self.form:
            rows: Iterable[Any] = self.data[wanted].to_dict("records")
        elif "polars" in self.form:
            rows = self.data.select(wanted).iter_rows(named=True)
        elif "pyarrow" in self.form:
            rows = self.data.select(wanted).to_pylist()
        elif "datasets" in self.form:
            classes = {name: _class_names(self.data.features[name]) for name in wanted}
            plain = self.data.with_format(None).select_columns(wanted)
            rows = ({name: _named(cell, classes[name]) for name, cell in row.items()} for row in plain)
        else:
            rows = self.data
        return rows


Source = Path | Records


def source_of(data: Any, name: str, texts: Sequence[str] = ()) -> Source | None:
    """What `read_table` reads: the path, or rows in memory; None for rows that are the named tuples of a kind.

    name: of the argument, for messages. texts: columns whose cells must not be missing. Raises InputError for data of
    another form.
    """
    if isinstance(data, str | Path):
        if not could_be_path(data):
            found = f"{name} is a text of {len(str(data)):,} characters, which no file's name has"
            raise InputError(f"{found}; expected {EXPECTED}")
        return Path(data)
    texts = tuple(normalize("NFC", column) for column in texts)
    if form := _frame(data):
        columns = getattr(data, "column_names", None) or data.columns
        own = {normalize("NFC", str(column)): column for column in columns}
        if len(own) < len(columns):
            found = f"several columns of one name; found {list_names([*map(str, columns)])}"
            raise InputError(f"{name}: {found}; rename one")
        return Records(name, data, form, own, texts)
    refuse_no_rows(data, name, EXPECTED)
    rows = data if isinstance(data, Sequence) else [*data]
    return None if rows and hasattr(rows[0], "_fields") else Records(name, rows, "a list of dictionaries", {}, texts)


def could_be_path(text: str | Path) -> bool:
    """Whether the system would look for a file of this name; a name that is too long is an error of its own."""
    try:
        Path(text).exists()
    except OSError:
        return False
    return True


def refuse_no_rows(data: Any, name: str, expected: str) -> None:
    """Raises InputError for data whose items are no rows: columns, splits, a lazy frame."""
    if isinstance(data, Mapping | bytes) or not isinstance(data, Iterable) or type(data).__name__ == "LazyFrame":
        raise InputError(f"{name} is a {type(data).__name__}; expected {expected}")


def is_table(data: Any) -> bool:
    """Whether data has named columns: a DataFrame, a Dataset, or a sequence that begins with a dictionary."""
    return bool(_frame(data)) or (isinstance(data, Sequence) and bool(data) and isinstance(data[0], Mapping))


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


def _frame(data: Any) -> str:
    """The words of FRAMES for data of one of these classes, or of one derived from it; "" for other data."""
    classes = ((kind.__module__.split(".")[0], kind.__name__) for kind in type(data).__mro__)
    return next((FRAMES[one] for one in classes if one in FRAMES), "")


def _class_names(feature: Any) -> Sequence[str]:
    """The names of a ClassLabel, or of a list of them; () of any other column."""
    feature = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
    return getattr(feature, "names", None) or ()


def _named(cell: Any, names: Sequence[str]) -> Any:
    """A class label as its name; -1, which is no label, as None."""
    if isinstance(cell, list):
        return [_named(one, names) for one in cell]
    if not names or not isinstance(cell, int):
        return cell
    return names[cell] if cell >= 0 else None


def _plain(value: Any) -> Any:
    """A cell as plain Python: numbers and arrays of NumPy too; a missing value is None."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
