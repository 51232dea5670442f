"""How large a request is, and checks before it is computed, because a small body can mean much work."""

from collections.abc import Iterator, Sequence
from typing import Any

from .errors import Refusal
from .models import ServedModel

FILLED = 2_000_000  # characters of a fill-mask answer: each candidate comes with the whole text
VALUES = 1 << 22  # numbers in the scores of a request: 16 MB


def texts_in(rows: Any) -> Iterator[str]:
    """All texts of rows, which may be texts, or nest them."""
    if isinstance(rows, str):
        yield rows
    elif isinstance(rows, list | tuple):
        for row in rows:
            yield from texts_in(row)


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
        message = f"inputs of {characters:,} characters together, each pair with both its texts; expected at most"
        raise Refusal(413, f"{message} {most:,}; send several requests")


def check_size(tokens: int, most: int, least: str = "") -> None:
    """Raises Refusal (413) if a request has more tokens than the server takes. least: "at least " of an estimate."""
    if tokens > most:
        message = f"{least}{tokens:,} tokens in a request; expected at most {most:,}; send several requests"
        raise Refusal(413, message, code="max_tokens_per_request")


def check_values(values: int) -> None:
    """Raises Refusal (413) if the scores have more than VALUES numbers, such as those of many masks."""
    if values > VALUES:
        raise Refusal(413, f"a result of {values:,} numbers; expected at most {VALUES:,}; send fewer or shorter inputs")


def check_filled(model: ServedModel, texts: Sequence[str], top_k: int) -> None:
    """Raises Refusal (413) if the texts with their masks filled are too long together."""
    tokenizer = model.predictor.tokenizer
    top_k = min(top_k, tokenizer.vocab_size)
    characters = sum(len(text) * text.count(tokenizer.roles["mask"]) * top_k for text in texts)
    if characters > FILLED:
        found = f"the filled texts would have {characters:,} characters; expected at most {FILLED:,}"
        raise Refusal(413, f"{found}; lower top_k, or send shorter texts or fewer masks")


def check_pairs(model: ServedModel, rows: Sequence[tuple[str, str | None]]) -> None:
    """Raises Refusal (422) for a pair, if the model was fine-tuned on single texts, or the other way round.

    Its answer would mean nothing.
    """
    count = model.predictor.loaded.texts_a_row
    unfit = [i for i, (_, second) in enumerate(rows) if {1: bool(second), 2: second is None}.get(count)]
    if unfit:
        found, trained, advice = (
            ("a pair", "single texts", "send each text as an input of its own")
            if count == 1
            else ("a single text", "pairs", "send two texts in every input")
        )
        message = f"input {unfit[0]} is {found}, but the model {model.name!r} was fine-tuned on {trained}; {advice}"
        raise Refusal(422, message, param="inputs", error_type="Validation")
