"""How large a request is, and checks before it is computed, because a small body can mean much work."""

from collections.abc import Iterator, Sequence
from typing import Any

from .errors import Refusal
from .models import ServedModel

TEMPLATE = 1_000  # characters of a hypothesis template
FILLED = 2_000_000  # characters of a fill-mask answer: each candidate comes with the whole text


def is_ids(row: Any) -> bool:
    """Whether a row is the token ids of a text."""
    return isinstance(row, list | tuple) and bool(row) and isinstance(row[0], int)


def texts_in(rows: Any) -> Iterator[str]:
    """All texts of rows, which may be texts, or nest them; token ids are skipped."""
    if isinstance(rows, str):
        yield rows
    elif isinstance(rows, list | tuple) and not is_ids(rows):
        for row in rows:
            yield from texts_in(row)


def size_of(rows: Sequence[Any]) -> tuple[int, int]:
    """The number of characters of all texts, and of the token ids beside them."""
    return sum(len(text) for text in texts_in(rows)), sum(len(row) for row in rows if is_ids(row))


def check_rows(rows: Sequence[Any]) -> None:
    """Raises Refusal (400) if there is no row or a text is blank."""
    if not rows:
        raise Refusal(400, "no input; expected one text or more", error_type="Empty")
    for i, row in enumerate(rows):
        if not row or not all(text.strip() for text in texts_in(row)):
            raise Refusal(400, f"input {i} has no text; leave it out", error_type="Empty")


def check_characters(characters: int, most: int) -> None:
    """Raises Refusal (413) if the inputs have more characters than a body: one of them was joined to many others."""
    if characters > most:
        raise Refusal(
            413,
            f"inputs of {characters:,} characters together, each pair with both its texts; expected at most {most:,}; "
            "send several requests",
        )


def check_size(tokens: int, most: int, least: str = "") -> None:
    """Raises Refusal (413) if a request has more tokens than the server takes. least: "at least " of an estimate."""
    if tokens > most:
        message = f"{least}{tokens:,} tokens in a request; expected at most {most:,}; send several requests"
        raise Refusal(413, message, code="max_tokens_per_request")


def check_template(template: str) -> None:
    """Raises Refusal (422) unless a hypothesis has one place for its label, and is a sentence."""
    found = template.count("{}")
    if found != 1 or len(template) > TEMPLATE:
        raise Refusal(
            422,
            f"hypothesis_template has {found:,} {{}} and {len(template):,} characters; expected one {{}}, at the "
            f"label's position, and at most {TEMPLATE:,} characters",
            param="parameters",
        )


def check_filled(model: ServedModel, texts: Sequence[str], top_k: int) -> None:
    """Raises Refusal (413) if the texts with their masks filled are too long together."""
    tokenizer = model.predictor.tokenizer
    top_k = min(top_k, tokenizer.vocab_size)
    characters = sum(len(text) * text.count(tokenizer.roles["mask"]) * top_k for text in texts)
    if characters > FILLED:
        raise Refusal(
            413,
            f"the filled texts would have {characters:,} characters; expected at most {FILLED:,}; lower top_k, or "
            "send shorter texts or fewer masks",
        )
