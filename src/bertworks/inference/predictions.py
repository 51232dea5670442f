"""What a Predictor gives: plain dictionaries, ready for JSON. (Entities of a text: tasks/tagging.py.)"""

from typing import TypedDict

from ..tasks.answers import Answer


class Candidate(TypedDict):
    """A piece that could stand at a mask."""

    token: str
    score: float  # its probability, 0 to 1
    text: str  # the caller's text with it, and with the best piece at every other mask


class Classified(TypedDict, total=False):
    """The likeliest label; of several at once, those above one half with | between them."""

    label: str
    score: float  # probability of the label, 0 to 1; of a regression, its value
    scores: dict[str, float]  # of all labels, if asked for
    windows: int  # how many windows were pooled; 1: the text fits
    cut: int  # tokens that did not fit


class Answered(TypedDict):
    """An answer in a context; an empty text says that there is none."""

    text: str  # context[start:end]
    start: int
    end: int
    score: float  # its probability among the best ones, 0 to 1
    cut: int  # tokens of the question that did not fit


class Chosen(TypedDict):
    """The choice that fits best."""

    choice: int  # counted from 0
    text: str
    score: float  # its probability, 0 to 1
    scores: list[float]  # of all choices
    cut: int


def answered(answer: Answer, context: str, cut: int) -> Answered:
    """An answer as it is told; `cut` tokens of its question did not fit."""
    start, end = answer.start, answer.end
    nothing = bool(answer.text) and start == end  # the original's word for it is "empty", with probability 1
    score = 0.0 if nothing else answer.probability
    return Answered(text=context[start:end], start=start, end=end, score=score, cut=cut)
