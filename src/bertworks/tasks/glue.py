"""GLUE tasks (paper, section 4.1) from the official TSV files: columns are found by the names in their headers.

Metrics are GLUE's; the first is the one of the paper's table 1. Labels are in the order of the original code, or of the
numbers in the files. No test file has labels: experiments/submission.py makes what the leaderboard judges.
"""

from .base import Task

COLA = Task(
    name="cola",
    header=("source", "label", "mark", "sentence"),  # train and dev begin without it; test has one of its own
    text=("sentence",),
    labels=("unacceptable", "acceptable"),
    written=("0", "1"),
    metrics=("matthews", "accuracy"),
)
SST2 = Task(
    name="sst2",
    text=("sentence",),
    labels=("negative", "positive"),
    written=("0", "1"),
)
MRPC = Task(
    name="mrpc",
    text=("#1 String", "#2 String"),
    label="Quality",
    labels=("not_equivalent", "equivalent"),
    written=("0", "1"),
    metrics=("f1", "accuracy"),
)
STSB = Task(
    name="stsb",
    kind="regression",
    text=("sentence1", "sentence2"),
    label="score",
    metrics=("spearman", "pearson"),
)
QQP = Task(
    name="qqp",
    text=("question1", "question2"),
    label="is_duplicate",
    labels=("not_duplicate", "duplicate"),
    written=("0", "1"),
    metrics=("f1", "accuracy"),
)
MNLI = Task(
    name="mnli",
    text=("sentence1", "sentence2"),
    label="gold_label",
    labels=("contradiction", "entailment", "neutral"),
    dev="dev_matched.tsv",
    test="test_matched.tsv",
    more={"mm": "dev_mismatched.tsv"},
)
QNLI = Task(
    name="qnli",
    text=("question", "sentence"),
    labels=("entailment", "not_entailment"),
)
RTE = Task(
    name="rte",
    text=("sentence1", "sentence2"),
    labels=("entailment", "not_entailment"),
)
WNLI = Task(
    name="wnli",
    text=("sentence1", "sentence2"),
    labels=("not_entailment", "entailment"),
    written=("0", "1"),
)
AX = Task(  # MNLI's model answers it; there is nothing to train on
    name="ax",
    text=("sentence1", "sentence2"),
    labels=MNLI.labels,
    metrics=("matthews",),
    train="",
    dev="",
    test="diagnostic.tsv",
)
GLUE = {task.name: task for task in (COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI, AX)}
