"""What a Predictor gives: plain dictionaries, ready for JSON. (All others are in the modules of the kinds of tasks.)"""

from typing import TypedDict


class Candidate(TypedDict):
    """A piece that could stand at a mask."""

    token: str
    score: float  # its probability, 0 to 1
    text: str  # the caller's text with it, and with the best piece at every other mask
