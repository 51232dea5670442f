"""Question answering (paper, sections 4.2 and 4.3) from the official JSON files."""

from .base import Task

SQUAD1 = Task(
    name="squad1",
    text=("question", "context"),
    label="answer",
    kind="span",
    metrics=("f1", "exact"),
    train="train-v1.1.json",
    dev="dev-v1.1.json",
    test="test-v1.1.json",
    defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0},
)
SQUAD2 = Task(
    name="squad2",
    text=("question", "context"),
    label="answer",
    kind="span",
    metrics=("f1", "exact"),
    train="train-v2.0.json",
    dev="dev-v2.0.json",
    test="test-v2.0.json",
    defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 48, "epochs": 2.0},
)
KORQUAD = Task(
    name="korquad",
    text=("question", "context"),
    label="answer",
    kind="span",
    metrics=("character_f1", "character_exact"),  # what its official program reports
    train="KorQuAD_v1.0_train.json",
    dev="KorQuAD_v1.0_dev.json",
    test="KorQuAD_v1.0_test.json",
    defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0},
)
SQUAD = {task.name: task for task in (SQUAD1, SQUAD2, KORQUAD)}
