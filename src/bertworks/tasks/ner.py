"""Named entities: CoNLL-2003 (paper, section 5.3) and the Korean KLUE-NER, from the official files."""

from .base import Task

CONLL2003 = Task(
    name="conll2003",
    kind="tagging",
    header=("word", "part_of_speech", "syntactic_chunk", "tag"),
    text=("word",),
    label="tag",
    metrics=("f1", "precision", "recall", "accuracy"),
    train="eng.train",
    dev="eng.testa",
    test="eng.testb",
    more={"test": "eng.testb"},
    defaults={"max_seq_length": 128, "optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0},
)
KLUE_NER = Task(
    name="klue-ner",
    kind="tagging",
    header=("character", "tag"),
    text=("character",),
    label="tag",
    metrics=("f1", "precision", "recall", "accuracy"),
    train="klue-ner-v1.1_train.tsv",
    dev="klue-ner-v1.1_dev.tsv",
    test="",  # never published
)
NER = {task.name: task for task in (CONLL2003, KLUE_NER)}
