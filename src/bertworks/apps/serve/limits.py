"""How large a request is, and checks before it is tokenized or multiplied, because small bodies can mean much work."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .errors import Refusal
from .models import ServedModel

DEPTH = 4  # levels of a body at which lists are counted; no field that is read has more
PAIR = 4  # tokens of a pair, at least
MASKS = 128  # masks of a request: each has a score for every token of the vocabulary
CANDIDATES = 1_000  # tokens returned for all masks of a request: each comes with the whole text
TEMPLATE = 1_000  # characters of a hypothesis template
SEQUENCES = 2_000_000  # characters of a fill-mask answer: each candidate comes with the whole text


# ---- sizes


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


# ---- every request


def check_lists(value: Any, most: int, depth: int = DEPTH) -> None:
    """Raises Refusal (413) if a list of a body has more elements; they are not looked at."""
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, list):
        if len(value) > most:
            raise Refusal(413, f"a list of {len(value):,} elements; expected at most {most:,}; send several requests")
        parts = value
    else:
        return
    if depth:
        for part in parts:
            if isinstance(part, dict | list):
                check_lists(part, most, depth - 1)


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


# ---- single tasks


def check_once(names: Iterable[str], what: str) -> None:
    """Raises Refusal (422) if a name comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refusal(422, f"{what}: {name[:80]!r} comes twice; name each once", param=what)
        seen.add(name)


def check_product(texts: int, labels: int, most: int) -> None:
    """Raises Refusal (413) if the pairs of texts and labels surely have more tokens than a request may have."""
    check_size(PAIR * texts * labels, most, f"{texts:,} texts with {labels:,} labels each: at least ")


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


def check_masks(model: ServedModel, texts: Sequence[str], top_k: int) -> None:
    """Raises Refusal (413) if texts have so many masks that scores and answers of a request become large."""
    mask = model.predictor.tokenizer.roles["mask"]
    each = [text.count(mask) for text in texts]
    masks = sum(each)
    if masks > MASKS or masks * top_k > CANDIDATES:
        raise Refusal(
            413,
            f"{masks:,} masks with {top_k:,} tokens each; expected at most {MASKS} masks and {CANDIDATES:,} tokens a "
            "request; send several requests",
        )
    check_sequences(sum(len(text) * count * top_k for text, count in zip(texts, each, strict=True)))


def check_sequences(characters: int) -> None:
    """Raises Refusal (413) if the texts with their masks filled are too long together."""
    if characters > SEQUENCES:
        raise Refusal(
            413,
            f"the filled texts would have {characters:,} characters; expected at most {SEQUENCES:,}; lower top_k, or "
            "send shorter texts or fewer masks",
        )
