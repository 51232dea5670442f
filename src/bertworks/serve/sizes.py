"""How large a request is: its texts, token ids, and the least tokens that it can have."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from .errors import Refusal


def numbers_in(scores: Any) -> int:
    """How many numbers there are to decode; none in an explanation, which is ready."""
    return scores.numel() if isinstance(scores, Tensor) else 0


def is_ids(row: Any) -> bool:
    """Whether a row is the token ids of a text."""
    return isinstance(row, list | tuple) and bool(row) and isinstance(row[0], int)


def texts_in(rows: Any) -> Iterator[str]:
    """All texts of rows, which may be texts, or nest them; token ids are none."""
    if isinstance(rows, str):
        yield rows
    elif isinstance(rows, list | tuple) and not is_ids(rows):
        for row in rows:
            yield from texts_in(row)


def size_of(rows: Sequence[Any]) -> tuple[int, int]:
    """The characters of all texts, and the token ids beside them."""
    return sum(len(text) for text in texts_in(rows)), sum(len(row) for row in rows if is_ids(row))


def least_tokens(rows: Sequence[Any]) -> int:
    """Tokens that the texts have at least, whatever the vocabulary.

    WordPiece splits at spaces, and each word with a letter or digit is one token or more.
    """
    return sum(any(map(str.isalnum, word)) for text in texts_in(rows) for word in text.split())


def check_size(tokens: int, most: int, least: str = "") -> None:
    """Raises Refusal (413) if a request has more tokens than the server takes."""
    if tokens > most:
        raise Refusal(413, f"{least}{tokens:,} tokens; expected at most {most:,} a request; send fewer")


def check_rows(rows: Sequence[Any], most: int) -> None:
    """Raises Refusal: 400 if there is no row or a text is blank, 413 if there are too many rows."""
    if not rows:
        raise Refusal(400, "no input; expected one text or more", error_type="Empty")
    if len(rows) > most:
        raise Refusal(413, f"{len(rows):,} inputs; expected at most {most} a request; send several requests")
    for i, row in enumerate(rows):
        if not row or not all(text.strip() for text in texts_in(row)):
            raise Refusal(400, f"input {i} has no text; leave it out", error_type="Empty")
