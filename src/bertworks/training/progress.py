"""How far a run has come. Importing this file loads no torch."""

from dataclasses import dataclass, field

from ..files import InputError, parse_json
from ..typed import convert


@dataclass
class TrainerState:
    """How far a run has come. `phase`, `group` and `offset` say which training instance comes next."""

    step: int = 0  # updates tried
    updates: int = 0  # updates made: fewer than steps if some were skipped as not finite
    phase: int = 0
    group: int = 0  # of the plan's blocks, counted over all epochs
    offset: int = 0
    tokens: int = 0  # real tokens read
    instances: int = 0
    seconds: float = 0.0  # of training, over all run segments
    skipped: int = 0  # updates skipped in a row
    best: float | None = None  # best score so far, where a run keeps its best weights
    since_best: int = 0  # evaluations since then
    loss_sums: dict[str, float] = field(default_factory=dict)  # of each term, since the last record of the log
    loss_counts: dict[str, float] = field(default_factory=dict)  # predictions of each term, since then
    lr: float = 0.0  # of the last update
    kernels: str = ""  # name of the compiled kernels that the last update used; empty: none

    @classmethod
    def parse(cls, text: str) -> "TrainerState":
        """What `json.dumps(asdict(progress))` wrote; fields that an older version did not have keep their defaults.

        Raises InputError for anything else.
        """
        progress: TrainerState = convert(cls, parse_json(text, "progress"), "progress", start=cls())
        if min(value for value in vars(progress).values() if isinstance(value, int)) < 0:
            raise InputError(f"progress has a negative number: {text}")
        return progress
