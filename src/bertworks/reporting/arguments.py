"""Error messages of functions called in Python: they name arguments where the command line's messages name flags."""

import contextlib
import re
from collections.abc import Iterator

from ..files import InputError

_COMMAND = r"bertworks [a-z][^`;\n]*"  # a command line in a message, whose flags stay
_QUOTED = r"""(?<!\w)'(?:[^'\\\n]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\\n]|\\.)*"(?!\w)"""  # of the user: cells, labels, names
_FLAG = r"(?<![^\s(`'])--([a-z][a-z0-9.-]*[a-z0-9])"


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
