"""What transformers' side of every task consists of: features, a head, a collator, an evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import common

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

    def run(rows: list[int]) -> list[tuple[np.ndarray, ...]]:
        columns = ("input_ids", "token_type_ids", "attention_mask")
        batch = tokenizer.pad([{name: features[i][name] for name in columns} for i in rows], return_tensors="pt")
        with torch.inference_mode():
            result = model(**batch)
        return [*zip(*(result[name].float().numpy() for name in names), strict=True)]

    rows = common.by_length(run, [len(feature["input_ids"]) for feature in features], 32)
    return [[*values] for values in zip(*rows, strict=True)]
