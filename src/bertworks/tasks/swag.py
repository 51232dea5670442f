"""Multiple choice: which ending goes on as the text begins (paper, section 4.4)."""

from .base import Task

DEFAULTS = {"epochs": 3.0, "optim.lr": 2e-5, "batch_size": 16}  # the paper's for SWAG

SWAG = Task(
    name="swag",
    kind="choice",
    text=("sent1", "sent2"),
    choices=("ending0", "ending1", "ending2", "ending3"),
    train="train.csv",
    dev="val.csv",
    test="test.csv",
    defaults=DEFAULTS,
)
CODAH = Task(  # one file and no official division in it: a fifth of the prompts is dev
    name="codah",
    kind="choice",
    header=("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label"),
    text=("prompt",),
    choices=("ending0", "ending1", "ending2", "ending3"),
    train="full_data.tsv#train",
    dev="full_data.tsv#dev",
    test="",
    defaults=DEFAULTS,
)
CHOICES = {task.name: task for task in (SWAG, CODAH)}
