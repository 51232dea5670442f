"""What a recipe of pre-training may name as its objective. Importing this file loads no torch."""

from dataclasses import dataclass
from typing import Literal

from ..model.config import HeadName

ObjectiveName = Literal["mlm+nsp", "mlm+sop", "mlm", "ltr", "rtl"]
PairName = Literal["nsp", "sop"]


@dataclass(frozen=True)
class ObjectiveSpec:
    """What the rest of a recipe has to fit; objectives.py computes the losses."""

    heads: tuple[HeadName, ...]  # of the model
    terms: tuple[str, ...]  # of the loss
    pair: PairName | None = None  # what is predicted about the two segments
    direction: Literal["both", "left", "right"] = "both"  # what a token of the encoder sees
    masked: bool = True  # whether the batches are masked


OBJECTIVES: dict[ObjectiveName, ObjectiveSpec] = {
    "mlm+nsp": ObjectiveSpec(("mlm", "nsp"), ("mlm", "nsp"), pair="nsp"),
    "mlm+sop": ObjectiveSpec(("mlm", "sop"), ("mlm", "sop"), pair="sop"),
    "mlm": ObjectiveSpec(("mlm",), ("mlm",)),
    "ltr": ObjectiveSpec(("mlm",), ("ltr",), direction="left", masked=False),
    "rtl": ObjectiveSpec(("mlm",), ("rtl",), direction="right", masked=False),
}
