"""Data that a caller has in memory, as the rows of a table.

    a pandas or polars DataFrame, a pyarrow Table    the columns that the task names
    a datasets.Dataset                               the same; class labels are read as their names
    a list of dictionaries                           one row each
    hub:org/name                                     a data set of the Hugging Face Hub, as a datasets.Dataset

None of the libraries is imported: their objects are recognised by their class. The rows become what the same table in
a file would give (table.py). Messages refer to a row as Python does, counted from 0: `train.iloc[3]`, `train[3]`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import InputError, shorten
from ..pretrained.data import from_hub
from ..tokenizer import normalize

EXPECTED = "a path, a pandas or polars DataFrame, a datasets.Dataset, or a list of dictionaries"
LONGEST_NAME = 255  # bytes of a file's name; the system refuses longer ones
FRAMES = {  # by library and class
    ("pandas", "DataFrame"): "a pandas DataFrame",
    ("polars", "DataFrame"): "a polars DataFrame",
    ("pyarrow", "Table"): "a pyarrow Table",
    ("datasets", "Dataset"): "a datasets.Dataset",
}


@dataclass(frozen=True)
class MemoryTable:
    """Rows in memory, each of them a dictionary. `str` gives the name that messages have."""

    name: str  # of the argument: train, dev
    data: Any
    form: str  # a pandas DataFrame, for results.json
    columns: Mapping[str, Any]  # the frame's names of its columns by their composed form; {}: each row has its own
    texts: tuple[str, ...]  # composed names of the columns whose values must not be missing

    def __str__(self) -> str:
        return self.name

    def location(self, line: int) -> str:
        """The expression of a row, counted from 1."""
        return f"{self.name}{'.iloc' * ('pandas' in self.form)}[{line - 1}]"

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(row counted from 1, its values). Values are plain Python; a missing one (None, NaN, NA) is None.

        names: composed; rows may lack them. Raises InputError for a row that is not a dictionary, and a missing text.
        """
        line = 0
        for line, row in enumerate(self._dictionaries(names), 1):
            if not isinstance(row, Mapping):
                problem = f"{self.location(line)} is a {type(row).__name__} ({shorten(row)})"
                raise InputError(f"{problem}; expected a dictionary, such as {{{names[0]!r}: ...}}")
            values = {normalize("NFC", str(name)): _plain(value) for name, value in row.items()}
            if missing := [name for name in self.texts if name in values and values[name] is None]:
                advice = "leave the row out, or give it an empty text"
                raise InputError(f"{self.location(line)}: {shorten(missing[0])} is missing; expected a text; {advice}")
            yield line, values
        if not line:
            raise InputError(f"{self.name} has no rows; expected one or more")

    def _dictionaries(self, names: Sequence[str]) -> Iterable[Any]:
        """The rows, of a frame with the columns of these names, or with all columns if none of them exists."""
        selected = [self.columns[name] for name in dict.fromkeys(names) if name in self.columns] or [
            *self.columns.values()
        ]
        if "pandas" in self.form:
            return self.data[selected].to_dict("records")
        if "polars" in self.form:
            return self.data.select(selected).iter_rows(named=True)
        if "pyarrow" in self.form:
            return self.data.select(selected).to_pylist()
        if "datasets" not in self.form:
            return self.data
        labels = {name: _class_names(self.data.features[name]) for name in selected}
        rows = self.data.with_format(None).select_columns(selected)
        return ({name: _named(value, labels[name]) for name, value in row.items()} for row in rows)


Source = Path | MemoryTable


def source_of(data: Any, name: str, texts: Sequence[str] = ()) -> Source | None:
    """The path or MemoryTable that `read_table` reads; None for rows that are the named tuples of a task type.

    name: of the argument, for messages. texts: columns whose values must not be missing. Raises InputError for data of
    another form.
    """
    data = from_hub(data)
    if isinstance(data, str | Path):
        if any(len(name.encode(errors="replace")) > LONGEST_NAME for name in str(data).split("/")):
            raise InputError(f"{name} is a text of {len(str(data)):,} characters; expected {EXPECTED}")
        return Path(data)
    texts = tuple(normalize("NFC", column) for column in texts)
    if form := _frame(data):
        columns = getattr(data, "column_names", None) or data.columns
        composed = {normalize("NFC", str(column)): column for column in columns}
        if len(composed) < len(columns):
            raise InputError(f"{name}: several columns of one name among {shorten([*columns])}; rename one of them")
        return MemoryTable(name, data, form, composed, texts)
    refuse_no_rows(data, name, EXPECTED)
    rows = data if isinstance(data, Sequence) else [*data]
    return (
        None if rows and hasattr(rows[0], "_fields") else MemoryTable(name, rows, "a list of dictionaries", {}, texts)
    )


def refuse_no_rows(data: Any, name: str, expected: str) -> None:
    """Raises InputError for data whose items are not rows: columns, splits, a lazy frame."""
    if isinstance(data, Mapping | bytes) or not isinstance(data, Iterable) or type(data).__name__ == "LazyFrame":
        raise InputError(f"{name} is a {type(data).__name__}; expected {expected}")


def is_table(data: Any) -> bool:
    """Whether data has named columns: a DataFrame, a Dataset, or a sequence that begins with a dictionary."""
    return bool(_frame(data)) or (isinstance(data, Sequence) and bool(data) and isinstance(data[0], Mapping))


def as_sequence(data: Any) -> Any:
    """The data, as a list if it can be read only once, such as a generator."""
    return [*data] if isinstance(data, Iterator) else data


def described(data: Any) -> str:
    """A phrase for results.json: the path of a file, or the form and number of rows."""
    if isinstance(data, str | Path):
        return str(data)
    source = source_of(data, "rows")
    form = source.form if isinstance(source, MemoryTable) else "a list of rows"
    return f"{form} of {len(data):,} rows" if hasattr(data, "__len__") else form


def _frame(data: Any) -> str:
    """The value of FRAMES for data of one of these classes, or of one derived from it; "" for other data."""
    classes = ((kind.__module__.split(".")[0], kind.__name__) for kind in type(data).__mro__)
    return next((FRAMES[name] for name in classes if name in FRAMES), "")


def _class_names(feature: Any) -> Sequence[str]:
    """The names of a ClassLabel, or of a list of them; () of any other column."""
    feature = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
    return getattr(feature, "names", None) or ()


def _named(value: Any, names: Sequence[str]) -> Any:
    """A class label as its name; -1, which means no label, as None."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if not names or not isinstance(value, int):
        return value
    return names[value] if value >= 0 else None


def _plain(value: Any) -> Any:
    """A value as plain Python: numbers and arrays of NumPy too; a missing value is None."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
