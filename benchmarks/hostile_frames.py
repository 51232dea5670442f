"""Data in memory for hostile.py: DataFrames, Datasets and lists with odd cells, names, types and shapes.

`call_with_odd_data(seed)` makes one and hands it to `bertworks.finetune`, `evaluate`, `predict` or `features`. Either
the call refuses it with an InputError, or every row counts: results are as many as rows and in their order, and a text
that was not touched is read as it is.
"""

import datetime
import decimal
import enum
import fractions
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Column = list[Any]
ROWS = 12
LABELS = ("good", "bad")


class Name(str):
    """A text of another class."""


class Kind(enum.Enum):
    """A value that is none of the table's types."""

    GOOD = "good"


def odd_cells() -> list[Any]:
    """What a cell may hold and no text is, or hardly one."""
    import numpy as np
    import pandas

    missing = [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT, np.datetime64("NaT")]
    numbers = [0, 1, -1, 2.5, float("inf"), True, 10**400, 3 + 4j, np.int64(3), np.float16(0.5), np.bool_(True)]
    numbers += [decimal.Decimal("1.10"), decimal.Decimal("NaN"), fractions.Fraction(1, 3)]
    texts = [
        "",
        "  ",
        "\x00",
        "\ud800",
        "a\ud800b",
        "x" * 100_000,
        "\u0301" * 999,
        "😀" * 99,
        Name("good"),
        np.str_("bad"),
    ]
    other = [b"bytes", b"\xff", bytearray(b"a"), [], ["a", None], ("a",), {}, {"a": 1}, {"good"}, object(), len, str]
    other += [np.array(["a", "b"]), np.array(1.5), np.zeros((2, 2)), Path("a"), Kind.GOOD, iter("ab"), range(2)]
    dates = [datetime.date(2020, 2, 2), datetime.datetime(2020, 2, 2, 3), pandas.Timestamp(0), datetime.timedelta(1)]
    itself: list[Any] = []
    itself.append(itself)
    return [*missing, *numbers, *texts, *other, *dates, itself]


ODD_NAMES: list[Any] = [
    "", "text", "label", "Text", "text ", "\ufefftext", "te\u0301xt", "line", "empty", "input", "text,label",
    0, 1.5, None, float("nan"), True, ("text", ""), ("text", "label"), b"text", "\ud800", "x" * 5_000, "a\nb",
]  # fmt: skip


def clean() -> dict[Any, Column]:
    """Columns that any table of one text and a label has."""
    texts = [f"{LABELS[i % 2]} film {'abc'[i % 3]} {i}" for i in range(ROWS)]
    return {"text": texts, "label": [LABELS[i % 2] for i in range(ROWS)], "more": [i / 2 for i in range(ROWS)]}


def spoiled(rng: random.Random) -> dict[Any, Column]:
    """The columns with some cells, or all cells of a column, replaced; or with other names."""
    columns = clean()
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(("text", "label", "label", "more"))
        cell, how = rng.choice(odd_cells()), rng.random()
        if name in columns and how < 0.6:
            columns[name][rng.randrange(ROWS)] = cell
        elif name in columns and how < 0.8:
            columns[name] = [cell] * ROWS
        else:
            columns[rng.choice(ODD_NAMES) if rng.random() < 0.7 else name] = columns.pop(name, [cell] * ROWS)
    if rng.random() < 0.15:
        size = rng.choice((0, 0, 1, 2))
        columns = {name: cells[:size] for name, cells in columns.items()}
    return columns


def as_rows(columns: dict[Any, Column]) -> list[dict[Any, Any]]:
    """A dictionary for each row."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def pandas_frame(rng: random.Random, columns: dict[Any, Column]) -> Any:
    """A frame whose index, names and types are odd too."""
    import pandas

    frame = pandas.DataFrame({name: pandas.Series(cells, dtype=object) for name, cells in columns.items()})
    count, how = len(frame), rng.randrange(8)
    order = rng.sample(range(count), count)
    if how == 0:
        frame.index = pandas.Index(order)
    elif how == 1:
        frame.index = pandas.Index([None] * count)
    elif how == 2:
        frame.index = pandas.MultiIndex.from_tuples([(0, i) for i in order]) if count else frame.index
    elif how == 3:
        frame.columns = pandas.MultiIndex.from_tuples([(name, "") for name in frame.columns])
    elif how == 4:
        frame = pandas.concat([frame, frame.iloc[:, :1]], axis=1)
    elif how == 5:
        kind = rng.choice(("category", "string", "Int64", "boolean", "datetime64[ns]", "string[pyarrow]", "Float32"))
        name = rng.choice([*frame.columns])
        frame[name] = frame[name].astype(kind)
    elif how == 6:
        frame = frame.convert_dtypes()
    return frame


def is_fatal(cell: Any) -> bool:
    """Whether polars 2.1 dies of a cell: a list that holds itself, a decimal that is not a number."""
    return isinstance(cell, decimal.Decimal) or (isinstance(cell, list) and any(inner is cell for inner in cell))


def polars_frame(rng: random.Random, columns: dict[Any, Column]) -> Any:
    """A frame of polars, strict or not, with a type of its own now and then."""
    import polars

    tidy = {name: [None if is_fatal(cell) else cell for cell in cells] for name, cells in columns.items()}
    frame = polars.DataFrame(tidy, strict=rng.random() < 0.5)
    kinds = (polars.Categorical, polars.String, polars.Int8, polars.Binary, polars.Null, polars.Object, polars.Date)
    if rng.random() < 0.3:
        frame = frame.with_columns(polars.col(rng.choice(frame.columns)).cast(rng.choice(kinds), strict=False))
    return frame.lazy() if rng.random() < 0.1 else frame


def dataset(rng: random.Random, columns: dict[Any, Column]) -> Any:
    """A Dataset, now and then with class labels, in a dictionary of splits, or streamed."""
    import datasets

    found = datasets.Dataset.from_dict(columns)
    how = rng.randrange(6)
    if how == 0:
        return found.class_encode_column("label")
    if how == 1:
        return datasets.DatasetDict({"train": found})
    if how == 2:
        return found.to_iterable_dataset()
    return found.with_format(rng.choice((None, "numpy", "torch", "pandas", "arrow")))


def listed(rng: random.Random, columns: dict[Any, Column]) -> Any:
    """Dictionaries, some with other keys, or something that is none."""
    rows: list[Any] = as_rows(columns)
    for _ in range(rng.choice((0, 1, 3)) if rows else 0):
        i = rng.randrange(len(rows))
        row = rows[i] if isinstance(rows[i], dict) else {}
        odd: tuple[Any, ...] = (
            {},
            {**row, "extra": 1},
            {k: v for k, v in row.items() if k != "text"},
            tuple(row.values()),
            None,
            "text",
        )
        rows[i] = rng.choice((*odd, {rng.choice(ODD_NAMES): v for v in row.values()}, [row]))
    return rng.choice((rows, rows, tuple(rows), iter(rows), dict(enumerate(rows)), [rows]))


def other(rng: random.Random, columns: dict[Any, Column]) -> Any:
    """What is no table, or one of a library that is not read."""
    import numpy as np
    import pandas
    import pyarrow

    odd = odd_cells()
    values = (columns, pyarrow.table({"text": ["a"], "label": ["b"]}), pandas.Series(["a", "b"]), np.array(["a", "b"]))
    return rng.choice((*values, np.zeros(3, [("text", "U9"), ("label", "U9")]), rng.choice(odd), [rng.choice(odd)]))


def odd_data(rng: random.Random) -> Any:
    """Data of a form that is drawn. Libraries refuse some columns themselves: then dictionaries."""
    columns = spoiled(rng)
    form: Callable[..., Any] = rng.choice((pandas_frame, pandas_frame, polars_frame, dataset, listed, listed, other))
    try:
        return form(rng, columns)
    except Exception:  # of the library, before bertworks has the data
        return as_rows(columns)


def odd_columns(rng: random.Random) -> dict[str, Any]:
    """Names of columns that are there, are not there, or are none."""
    names: dict[str, Any] = {"text": rng.choice(("text", "text", "text", ["text"], ("text",)))}
    if rng.random() < 0.2:
        odd = [*ODD_NAMES, 5, ["text", "more"], ["text", "text"], [], [None], {"text": 1}, {"text"}]
        names[rng.choice(("text", "label"))] = rng.choice(odd)
    return names


def odd_settings(rng: random.Random) -> dict[str, Any]:
    """One argument of `finetune` with a value that is hardly ever right."""
    weights = ({"good": 2}, {"missing": 2}, {"good": float("nan")}, {"good": "x"}, {None: 1}, "balance", ["good=1"] * 2)
    odd: dict[str, Any] = {
        "class_weights": weights,
        "train_rows": (-1, "3", 1.5, None, 10**30),
        "dev_share": ("0.1", 1, -1, float("nan"), None),
        "group": (5, "missing", ["text"]),
        "split_seed": (-1, 2**70, 1.5, "a"),
        "restarts": ("2", -1, 1.5, None, True),
        "kind": (5, "", "embedding", "span", "regression", "multilabel", "tagging", "choice"),
        "recipe": (5, "missing", "small", "\x00", {}),
        "epochs": ("1", float("nan"), -1, 0, True, 10**400),
        "optim": (5, {"lr": "a"}, {"lr": float("inf")}, {"missing": 1}, None),
        "choices": (5, ["text"], "missing"),
        "seeds": ([1, 1], 1, ["a"], [-1], [2**64]),
        "task": (5, "mrpc", "missing"),
        "data": ("in", 5),
        "patience": (-1, 1, "a"),
        "frozen_layers": (-1, 99, "a"),
        "on_step": (5, print),
        "no_such_field": (1,),
    }
    name = rng.choice([*odd])
    return {name: rng.choice(odd[name])}


def call_with_odd_data(seed: int) -> None:
    """Call a function of bertworks. Raises InputError as it does, AssertionError for a result that is wrong."""
    import bertworks

    rng = random.Random(seed)
    sound = rng.random() < 0.3  # the data; then an argument is odd
    data, names = as_rows(clean()) if sound else odd_data(rng), odd_columns(rng)
    verb = rng.choice(("finetune", "evaluate", "predict", "predict", "features"))
    count = len(data) if hasattr(data, "__len__") and not isinstance(data, dict | str | bytes) else None
    if verb == "finetune":
        loop = {"steps": 2, "eval_every": 0, "precision": "float32"}
        how: dict[str, Any] = {"batch_size": 4, "max_seq_length": 24, "loop": loop, "quiet": True}
        tables = {"train": data, "dev": as_rows(clean()) if rng.random() < 0.7 else data}
        bertworks.finetune("in/model", "out/run", **{**tables, **names, **how, **(odd_settings(rng) if sound else {})})
    elif verb == "evaluate":
        found = bertworks.evaluate("in/run", data, **names)
        assert count is None or found.examples <= count, (found.examples, count)
    elif verb == "features":
        names.pop("label", None)
        vectors = bertworks.features("in/model", data, pool="mean", **names)
        assert count is None or len(vectors) == count, (len(vectors), count)
    else:
        names.pop("label", None)
        rows = bertworks.predict("in/run", data, **names)
        assert count is None or len(rows) == count, (len(rows), count)
        check_order(data, rows)


def check_order(data: Any, found: Any) -> None:
    """Raises AssertionError if a result is not that of the text in its row."""
    import bertworks

    texts = [*untouched(data)]
    if texts:
        again = bertworks.predict("in/run", [text for _, text in texts])
        for (i, text), one in zip(texts, again, strict=True):
            assert one["label"] == found[i].get("label"), (i, text, one, found[i])


def untouched(data: Any) -> Iterator[tuple[int, str]]:
    """The texts of a pandas frame that are as in `clean`, with the number of their row."""
    import pandas

    expected = clean()["text"]
    if isinstance(data, pandas.DataFrame) and [*data.columns].count("text") == 1:
        yield from (
            (i, text) for i, text in enumerate(data["text"].tolist()) if isinstance(text, str) and text in expected
        )
