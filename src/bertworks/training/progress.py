"""How far a run has come. Importing this file loads no torch."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..files import parse_json
from ..typed import check_fields


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
        """What `json.dumps(asdict(progress))` wrote; fields that an older version did not know keep their defaults.

        Raises InputError or TypeError for anything else.
        """
        progress = cls(**parse_json(text, "progress"))
        form: dict[str, Any] = {
            name: range(1 << 62) if type(default) is int else {str: float} if isinstance(default, dict) else float
            for name, default in asdict(cls()).items()
        }
        check_fields(asdict(progress), form | {"best": (float, None), "kernels": str}, "progress")
        return progress
