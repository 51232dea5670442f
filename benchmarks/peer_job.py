"""What transformers' side of every task consists of: features, a head, a collator, an evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Feature = dict[str, Any]
Metrics = dict[str, float]


@dataclass
class Job:
    """What the Trainer needs of a task, and how its model is evaluated: `evaluate(model)` gives the metrics."""

    head: Any  # a class of transformers: AutoModelFor...
    arguments: dict[str, Any]
    collator: Callable[..., Any]
    features: list[Feature]
    rows: dict[str, int]
    evaluate: Callable[[Any], Metrics]


def outputs(model: Any, tokenizer: Any, features: Sequence[Feature], names: Sequence[str]) -> list[list[np.ndarray]]:
    """For each of the `names` of the model's outputs, a row's array in the order of `features`, without padding."""
    made: list[list[Any]] = [[None] * len(features) for _ in names]
    order = sorted(range(len(features)), key=lambda i: -len(features[i]["input_ids"]))
    for first in range(0, len(order), 32):
        rows = order[first : first + 32]
        columns = ("input_ids", "token_type_ids", "attention_mask")
        batch = tokenizer.pad([{name: features[i][name] for name in columns} for i in rows], return_tensors="pt")
        with torch.inference_mode():
            result = model(**batch)
        for target, name in zip(made, names, strict=True):
            for i, values in zip(rows, result[name].float().numpy(), strict=True):
                target[i] = values
    return made
