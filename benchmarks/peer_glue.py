"""GLUE by transformers, as its run_glue does it: single sentences and pairs, classes or a number."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from scipy import stats
from sklearn import metrics as sklearn_metrics

from bertworks.tasks.catalogue import find_task
from finetuning_settings import Settings
from peer_job import Feature, Job, Metrics, outputs


@dataclass(frozen=True)
class Glue:
    """Where the official files of a task have texts and label, and what its labels are; none: a number."""

    folder: str
    text: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    header: tuple[str, ...] | None = None


GLUE = {
    "cola": Glue(
        "CoLA", ("sentence",), "label", ("0", "1"), ("matthews", "accuracy"), ("source", "label", "star", "sentence")
    ),
    "sst2": Glue("SST-2", ("sentence",), "label", ("0", "1")),
    "mrpc": Glue("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("f1", "accuracy")),
    "stsb": Glue("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
    "rte": Glue("RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment")),
    "qnli": Glue("QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment")),
}
GLUE_METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": sklearn_metrics.accuracy_score,
    "f1": sklearn_metrics.f1_score,
    "matthews": sklearn_metrics.matthews_corrcoef,
    "pearson": lambda true, found: stats.pearsonr(true, found).statistic,
    "spearman": lambda true, found: stats.spearmanr(true, found).statistic,
}


def read_tsv(path: Path, header: tuple[str, ...] | None) -> list[dict[str, str]]:
    """The rows of an official file: quotes are ordinary characters."""
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = header or tuple(next(lines))
        return [dict(zip(names, line, strict=True)) for line in lines]


def glue_job(name: str, settings: Settings, tokenizer: Any) -> Job:
    """Single sentences and pairs; classes or a number."""
    task = GLUE[name]
    names = find_task(name).labels or (task.label,)  # the other side finds the head's rows by them

    def load(file: str, rows: int | None) -> list[Feature]:
        examples = read_tsv(settings.data / "glue" / task.folder / file, task.header)[:rows]
        texts = [[example[column] for example in examples] for column in task.text]
        features = tokenizer(*texts, truncation=True, max_length=settings.max_seq_length, padding=settings.padding)
        labels = [task.labels.index(e[task.label]) if task.labels else float(e[task.label]) for e in examples]
        return [{**{k: v[i] for k, v in features.items()}, "labels": label} for i, label in enumerate(labels)]

    train, dev = load("train.tsv", settings.rows), load("dev.tsv", settings.dev_rows)
    true = np.array([feature["labels"] for feature in dev])

    def evaluate(model: Any) -> Metrics:
        logits = np.stack(outputs(model, tokenizer, dev, ["logits"])[0])
        found = logits.argmax(-1) if task.labels else logits[:, 0]
        return {metric: float(GLUE_METRICS[metric](true, found)) for metric in task.metrics}

    return Job(
        transformers.AutoModelForSequenceClassification,
        {"id2label": dict(enumerate(names)), "label2id": {label: i for i, label in enumerate(names)}},
        transformers.DataCollatorWithPadding(tokenizer),
        train,
        {"train": len(train), "dev": len(dev)},
        evaluate,
    )
