"""Korean sentences: NSMC (film reviews), KorSTS (similarity), KoBEST's HellaSwag (which sentence goes on)."""

from .base import Task
from .swag import DEFAULTS

NSMC = Task(
    name="nsmc",
    text=("document",),
    labels=("negative", "positive"),
    written=("0", "1"),
    train="ratings_train.txt",
    dev="ratings_test.txt",  # the official division has no other
    test="",
)
KORSTS = Task(
    name="korsts",
    kind="regression",
    text=("sentence1", "sentence2"),
    label="score",
    metrics=("spearman", "pearson"),
    train="sts-train.tsv",
    dev="sts-dev.tsv",
    test="sts-test.tsv",
    more={"test": "sts-test.tsv"},  # it has labels
)
HELLASWAG_KO = Task(
    name="kobest-hellaswag",
    kind="choice",
    text=("context",),
    choices=("choice1", "choice2", "choice3", "choice4"),
    more={"test": "test.tsv"},  # it has labels
    defaults=DEFAULTS,
)
KOREAN = {task.name: task for task in (NSMC, KORSTS, HELLASWAG_KO)}
