"""A tiny recipe of pre-training, tiny official files of tasks, and a look-up in results, for the tests of studies."""

import random
from pathlib import Path

from conftest import WORDS

PRETRAIN = """
snapshots = [2, 4]
eval_batches = 1
[model]
vocab_size = 100
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 32
[loop]
steps = 5
eval_every = 0
[[phases]]
length = 24
batch_size = 8
"""


def words(rng, n=5) -> str:
    return " ".join(rng.choices(WORDS, k=n))


BINARY, THREE = ("0", "1"), ("contradiction", "entailment", "neutral")
CHOICES = "\t".join(f"choice{i}" for i in range(1, 5))
TABLES = {  # folder: names of the training and the development file, header, and the fields of row number i
    "glue/SST-2": ("train.tsv dev.tsv", "sentence\tlabel", lambda r, i: (words(r), BINARY[i % 2])),
    "glue/QNLI": ("train.tsv dev.tsv", "index\tquestion\tsentence\tlabel",
                  lambda r, i: (str(i), words(r), words(r), ("entailment", "not_entailment")[i % 2])),
    "glue/MRPC": ("train.tsv dev.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
                  lambda r, i: (BINARY[i % 2], "1", "2", words(r), words(r))),
    "glue/RTE": ("train.tsv dev.tsv", "index\tsentence1\tsentence2\tlabel",
                 lambda r, i: (str(i), words(r), words(r), ("entailment", "not_entailment")[i % 2])),
    "glue/STS-B": ("train.tsv dev.tsv", "index\tsentence1\tsentence2\tscore",
                   lambda r, i: (str(i), words(r), words(r), str(float(i % 6)))),
    "glue/CoLA": ("train.tsv dev.tsv", "source\t1\t\twords", lambda r, i: ("source", BINARY[i % 2], "", words(r))),
    "glue/QQP": ("train.tsv dev.tsv", "question1\tquestion2\tis_duplicate",
                 lambda r, i: (words(r), words(r), BINARY[i % 2])),
    "glue/MNLI": ("train.tsv dev_matched.tsv", "sentence1\tsentence2\tgold_label",
                  lambda r, i: (words(r), words(r), THREE[i % 3])),
    "korean/kobest-hellaswag": ("train.tsv dev.tsv", f"context\t{CHOICES}\tlabel",
                                lambda r, i: (*(words(r) for _ in range(5)), str(i % 4))),
    "korean/nsmc": ("ratings_train.txt ratings_test.txt", "id\tdocument\tlabel",
                    lambda r, i: (str(i), words(r), BINARY[i % 2])),
    "korean/korsts": ("sts-train.tsv sts-dev.tsv", "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2",
                      lambda r, i: ("g", "f", "y", str(i), str(float(i % 6)), words(r), words(r))),
}  # fmt: skip


def write_task_files(folder: Path, names=tuple(TABLES)) -> None:
    """The files of these tasks, with texts of the tiny store's words: 40 training and 16 development examples each."""
    rng = random.Random(1)
    for name in names:
        files, header, row = TABLES[name]
        (folder / name).mkdir(parents=True)
        for file, count in zip(files.split(), (40, 16), strict=True):
            lines = [header, *("\t".join(row(rng, i)) for i in range(count))]
            (folder / name / file).write_text("\n".join(lines) + "\n")


def entry_of(results, row, column):
    """What a study has measured of a row in a column."""
    return next(e for e in results["measured"] if (e["row"], e["column"]) == (row, column))
