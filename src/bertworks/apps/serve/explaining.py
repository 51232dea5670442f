"""`explain` in the compute thread: what the route `/explain` returns and the page's tab draws.

An explanation is many passes of one sentence, so it is no batch of rows: it takes its turn in the queue as one sequence
whose cost is the tokens of all its passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from torch import Tensor

from ...checkpoint.locate import refuse_export
from ...inference.predictor import Predictor
from ...inference.steps import Steps
from ...tasks.inputs import Inputs
from ...tasks.sequences import Integers
from ..probing.explanation import LONGEST, Explained, explain, keep


@dataclass(frozen=True)
class ExplainedRows:
    """One sentence, cut to size. The queue takes it for inputs of one sequence."""

    kept: Explained

    @property
    def inputs(self) -> Inputs:
        return cast(Inputs, self.kept)

    @property
    def tokens(self) -> Integers:
        return np.array([len(self.kept.encoding.ids)])

    @property
    def cut(self) -> Integers:
        return np.array([self.kept.cut])

    def decode(self, scores: Any, *_: Any) -> list[dict[str, Any]]:
        """The explanation, as `explain` returns it."""
        return [scores | {"cut": self.kept.cut}]


class ExplainSteps(Steps[ExplainedRows]):
    """Explanations of one (text, pair or None) each, cut to LONGEST tokens."""

    def __init__(self, predictor: Predictor):
        """Raises InputError if the folder is an export."""
        super().__init__(predictor.loaded)
        refuse_export(predictor.folder)
        self.predictor = predictor
        self.limit = min(LONGEST, predictor.model.config.max_length)

    def prepare(self, rows: Sequence[tuple[str, str | None]]) -> ExplainedRows:
        ((a, b),) = rows
        return ExplainedRows(keep(self.predictor, a, b, self.limit))

    def costs(self, inputs: Inputs) -> Integers:
        """Every token is hidden in a pass of its own; the other passes are few."""
        T = len(cast(Explained, inputs).encoding.ids)
        return np.array([T * (T + 3)])

    def score_inputs(self, parts: Sequence[Inputs]) -> list[Tensor]:
        return [self.forward(part) for part in parts]

    def forward(self, inputs: Inputs) -> Tensor:
        """The dictionary of `explain`, which the queue hands on as it would scores."""
        kept = cast(Explained, inputs)
        return cast(Tensor, explain(self.predictor, kept.a, kept.b))
