"""GLUE tasks (paper, section 4.1) from the official TSV files: columns are found by the names in their headers."""

from .base import Task

SST2 = Task(
    name="sst2",
    text=("sentence",),
    label="label",
    labels=("negative", "positive"),
    written=("0", "1"),
)
MRPC = Task(
    name="mrpc",
    text=("#1 String", "#2 String"),
    label="Quality",
    labels=("not_equivalent", "equivalent"),
    written=("0", "1"),
    metrics=("accuracy", "f1"),
)
GLUE = {task.name: task for task in (SST2, MRPC)}
