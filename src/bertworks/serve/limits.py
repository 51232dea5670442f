"""What keeps a small request from much work: checks of counts and lengths before anything is multiplied."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from .errors import Refusal
from .models import ServedModel

MASKS = 128  # masks of a request: each has a score for every token of the vocabulary
CANDIDATES = 1_000  # tokens returned for all masks of a request: each comes with the whole text
TEMPLATE = 1_000  # characters of a hypothesis template
SEQUENCES = 2_000_000  # characters of a fill-mask answer: each candidate comes with the whole text

Count = Annotated[int, Field(strict=True, ge=1)]  # neither true nor "3"


def check_once(names: Iterable[str], what: str) -> None:
    """Raises Refusal (422) if a name comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refusal(422, f"{what}: {name[:80]!r} comes twice; name each once", param=what)
        seen.add(name)


def check_product(texts: int, labels: int, most: int) -> None:
    """Raises Refusal (413) if the pairs of texts and labels are more inputs than a request may have."""
    if texts * labels > most:
        raise Refusal(
            413,
            f"{texts:,} texts with {labels:,} labels each; expected at most {most} pairs a request; send fewer texts, "
            "or fewer candidate_labels",
        )


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


def check_characters(characters: int, most: int) -> None:
    """Raises Refusal (413) if the inputs have more characters than a body: one of them was joined to many others."""
    if characters > most:
        raise Refusal(
            413,
            f"inputs of {characters:,} characters together, each pair with both its texts; expected at most {most:,}; "
            "send several requests",
        )
