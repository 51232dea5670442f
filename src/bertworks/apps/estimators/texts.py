"""What the estimators share: texts or pairs of texts as input, pickles without the model, and the errors they raise."""

import abc
import contextlib
from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator

from ...files import InputError
from ...tasks.rows import text_rows_of

EXPECTED = "expected a list of texts, a column of texts, or a table of one or two columns of texts"


class TextEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator of texts. `fit` keeps what `_load` returns in `_loaded`; a pickle leaves it out."""

    @abc.abstractmethod
    def _load(self) -> Any:
        """The model, read from its folder."""

    def _model(self) -> Any:
        """What `_load` returned in `fit`, or returns now."""
        return self.__dict__.get("_loaded") or self._load()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Raise ValueError, as scikit-learn's callers expect, in place of InputError."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def rows_of(X: Any) -> list[tuple[str, ...]]:
    """One or two texts for each row of X. Raises ValueError for anything else, with the row."""
    with value_errors():
        if hasattr(X, "toarray"):
            raise InputError(f"X is a sparse {type(X).__name__}; {EXPECTED}")
        if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
            raise InputError(f"X is a {type(X).__name__}; {EXPECTED}")
        shape = getattr(X, "shape", (len(X),))
        if len(shape) not in (1, 2):
            raise InputError(f"X has {len(shape)} dimensions; {EXPECTED}")
        if not len(X):
            raise InputError(f"X has 0 samples; {EXPECTED}, with one row or more")
        values = getattr(X, "values", X) if len(shape) == 2 else X  # of a DataFrame, whose rows are not its items
        rows = [*text_rows_of(values.tolist() if hasattr(values, "tolist") else list(values), "X")]
        widths = {len(row) for row in rows}
        if len(widths) > 1 or not widths <= {1, 2}:
            found = " and ".join(map(str, sorted(widths)))
            raise InputError(f"X has rows of {found} texts; expected one text each, or two each")
        return rows
