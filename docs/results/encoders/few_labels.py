"""Film reviews without fine-tuning: logistic regression on vectors of a published encoder, and on TF-IDF of words.

    python docs/results/encoders/few_labels.py all-MiniLM-L6-v2 DATA

writes docs/results/encoders/published/few-labels.json, with the rows that published-study.toml draws. DATA: the folder
with glue/SST-2. The regularization is chosen on a fifth of the training rows.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression

import bertworks
from bertworks.experiments.baselines import STRENGTHS, BaselineConfig, fit_baseline
from bertworks.files import write_json
from bertworks.tasks.base import Data
from bertworks.tasks.sampling import draw_rows, hold_out_rows
from bertworks.tasks.selection import TrainRows
from bertworks.training.machine import facts

COUNTS, SEEDS = (200, 1_000, 10_000), (1, 2, 3, 4, 5)


def on_vectors(predictor: bertworks.Predictor, train: Sequence[Any], dev: Sequence[Any], seed: int) -> float:
    """The accuracy of a logistic regression on the vectors of the texts."""
    texts = [row.text for row in (*train, *dev)]
    vectors = dict(zip(texts, predictor.embed(texts), strict=True))

    def accuracy(strength: float, fitted: Sequence[Any], scored: Sequence[Any]) -> float:
        model = LogisticRegression(C=strength, max_iter=1000)
        model.fit([vectors[row.text] for row in fitted], [row.label for row in fitted])
        return float(model.score([vectors[row.text] for row in scored], [row.label for row in scored]))

    part, held_out = hold_out_rows(train, seed)
    return accuracy(max(STRENGTHS, key=lambda strength: accuracy(strength, part, held_out)), train, dev)


def main(folder: str, data: str) -> None:
    """Score each draw of training rows, and write the file."""
    predictor = bertworks.Predictor(folder, precision="auto")
    task, rows = TrainRows("sst2", Path(data) / "glue/SST-2").read_data()

    def on_words(train: Sequence[Any], seed: int) -> float:
        return float(fit_baseline(task, Data(train, rows.dev), BaselineConfig(seed))["metrics"]["accuracy"])

    ways: dict[str, Callable[[Sequence[Any], int], float]] = {
        "logistic regression on vectors": lambda train, seed: on_vectors(predictor, train, rows.dev, seed),
        "linear model": on_words,
    }
    found = []
    for name, score in ways.items():
        for count in COUNTS:
            values = {seed: score(draw_rows(rows.train, count, seed), seed) for seed in SEEDS}
            mean, sd = statistics.fmean(values.values()), statistics.stdev(values.values())
            found.append({"row": name, "column": f"SST-2 {count:,}", "mean": mean, "sd": sd, "n": 5, "values": values})
            print(found[-1])
    out = Path(__file__).parent / "published/few-labels.json"
    write_json(out, {"model": "all-MiniLM-L6-v2", "measured": found, "machine": facts()})


if __name__ == "__main__":
    main(*sys.argv[1:])
