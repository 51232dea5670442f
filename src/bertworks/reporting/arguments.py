"""Error messages of functions called in Python: they name arguments where the command line's messages name flags."""

import contextlib
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from ..files import InputError

P = ParamSpec("P")
T = TypeVar("T")

ELSEWHERE = {  # arguments of other libraries' functions, which are no fields of a recipe
    "inputs": ("data",),
    "pooling": ("pool",),
    "return_all_scores": ("all_scores",),
    "sentences": ("data",),
    "texts": ("data",),
    "top_k": ("all_scores", "n_best"),
}
_COMMAND = r"bertworks [a-z][^`;\n]*"  # a command line in a message, whose flags stay
_QUOTED = r"""(?<!\w)'(?:[^'\\\n]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\\n]|\\.)*"(?!\w)"""  # of the user: cells, labels, names
_FLAG = r"(?<![^\s(`'])--([a-z][a-z0-9.-]*[a-z0-9])"


def hinted(function: Callable[P, T]) -> Callable[P, T]:
    """A function that names the argument that may be meant where a call has one that it does not know."""
    signature = inspect.signature(function)
    known = [name for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD]

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            pairs = ((name, _meant(name, known)) for name in named if name not in known)
            if hints := [f"{near} in place of {name}" for name, near in pairs if near]:
                raise TypeError(f"{function.__name__}(): {error}; did you mean {', '.join(hints)}?") from None
        return function(*args, **named)

    return call


def _meant(name: str, known: Sequence[str]) -> str:
    """The argument that is called `name` elsewhere, or is spelt most like it; "" if there is none."""
    names = [other for other in ELSEWHERE.get(name, ()) if other in known]
    return next(iter(names or difflib.get_close_matches(name, known, 1)), "")


@contextlib.contextmanager
def argument_names() -> Iterator[None]:
    """Let messages name arguments as a call in Python writes them: `out` and `batch_size`, not --out, --batch-size.

    Command lines and quoted text, which may be the user's, stay as they are.
    """
    try:
        yield
    except InputError as error:
        error.args = (with_argument_names(str(error)),)
        raise


def with_argument_names(message: str) -> str:
    """The message with arguments in place of flags; see `argument_names`."""
    return re.sub(f"{_COMMAND}|{_QUOTED}|{_FLAG}", _argument, message)


def _argument(found: re.Match[str]) -> str:
    return found[1].replace("-", "_") if found[1] else found[0]
