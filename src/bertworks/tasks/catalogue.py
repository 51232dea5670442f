"""Every task that bertworks knows by name. A new task is one more literal here, and needs no other code.

Columns are found by the names in the files' headers. Labels are in the order of the original code, or of the numbers in
the files. The first metric is the one to choose by: of a paper's task, the one of its table.
"""

import difflib
from dataclasses import replace

from ..files import InputError
from .base import Task

_MULTIPLE_CHOICE = {"epochs": 3.0, "optim.lr": 2e-5, "batch_size": 16}  # the paper's for SWAG

_KORQUAD = Task(
    name="korquad",
    dataset="KorQuAD/squad_kor_v1",
    text=("question", "context"),
    label="answer",
    kind="span",
    metrics=("character_f1", "character_exact"),  # what its official program reports
    train="KorQuAD_v1.0_train.json",
    dev="KorQuAD_v1.0_dev.json",
    test="KorQuAD_v1.0_test.json",
    defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0},
)
_KLUE_NER = Task(
    name="klue-ner",
    dataset="klue/klue",
    kind="tagging",
    header=("character", "tag"),
    text=("character",),
    label="tag",
    metrics=("f1", "precision", "recall", "accuracy"),
    train="klue-ner-v1.1_train.tsv",
    dev="klue-ner-v1.1_dev.tsv",
    test="",  # never published
)

_ALL = (
    # GLUE (paper, section 4.1), from the official TSV files; experiments/submission.py answers those without labels
    Task(
        name="cola",
        dataset="nyu-mll/glue",
        header=("source", "label", "mark", "sentence"),  # train and dev begin without it; test has one of its own
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        written=("0", "1"),
        metrics=("matthews", "accuracy"),
    ),
    Task(
        name="sst2",
        dataset="nyu-mll/glue",
        text=("sentence",),
        labels=("negative", "positive"),
        written=("0", "1"),
    ),
    Task(
        name="mrpc",
        dataset="nyu-mll/glue",
        text=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        written=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    Task(
        name="stsb",
        dataset="nyu-mll/glue",
        kind="regression",
        text=("sentence1", "sentence2"),
        label="score",
        metrics=("spearman", "pearson"),
    ),
    Task(
        name="qqp",
        dataset="nyu-mll/glue",
        text=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        written=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    Task(
        name="mnli",
        dataset="nyu-mll/glue",
        text=("sentence1", "sentence2"),
        label="gold_label",
        labels=("contradiction", "entailment", "neutral"),
        dev="dev_matched.tsv",
        test="test_matched.tsv",
        more={"mm": "dev_mismatched.tsv"},
    ),
    Task(
        name="qnli",
        dataset="nyu-mll/glue",
        text=("question", "sentence"),
        labels=("entailment", "not_entailment"),
    ),
    Task(
        name="rte",
        dataset="nyu-mll/glue",
        text=("sentence1", "sentence2"),
        labels=("entailment", "not_entailment"),
    ),
    Task(
        name="wnli",
        dataset="nyu-mll/glue",
        text=("sentence1", "sentence2"),
        labels=("not_entailment", "entailment"),
        written=("0", "1"),
    ),
    Task(  # MNLI's model answers it; there is nothing to train on
        name="ax",
        dataset="nyu-mll/glue",
        text=("sentence1", "sentence2"),
        labels=("contradiction", "entailment", "neutral"),
        metrics=("matthews",),
        train="",
        dev="",
        test="diagnostic.tsv",
    ),
    # Question answering (paper, sections 4.2 and 4.3), from the official JSON files
    Task(
        name="squad1",
        dataset="rajpurkar/squad",
        text=("question", "context"),
        label="answer",
        kind="span",
        metrics=("f1", "exact"),
        train="train-v1.1.json",
        dev="dev-v1.1.json",
        test="test-v1.1.json",
        defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0},
    ),
    Task(
        name="squad2",
        dataset="rajpurkar/squad_v2",
        text=("question", "context"),
        label="answer",
        kind="span",
        metrics=("f1", "exact"),
        train="train-v2.0.json",
        dev="dev-v2.0.json",
        test="test-v2.0.json",
        defaults={"max_seq_length": 384, "optim.lr": 5e-5, "batch_size": 48, "epochs": 2.0},
    ),
    _KORQUAD,
    replace(  # where its development file is the only one: a fifth of the articles is dev
        _KORQUAD,
        name="korquad-divided",
        train="KorQuAD_v1.0_dev.json#train",
        dev="KorQuAD_v1.0_dev.json#dev",
        test="",
    ),
    # Multiple choice (paper, section 4.4)
    Task(
        name="swag",
        dataset="allenai/swag",
        kind="choice",
        text=("sent1", "sent2"),
        choices=("ending0", "ending1", "ending2", "ending3"),
        train="train.csv",
        dev="val.csv",
        test="test.csv",
        defaults=_MULTIPLE_CHOICE,
    ),
    Task(  # one file and no official division in it: a fifth of the prompts is dev
        name="codah",
        dataset="jaredfern/codah",
        kind="choice",
        header=("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label"),
        text=("prompt",),
        choices=("ending0", "ending1", "ending2", "ending3"),
        train="full_data.tsv#train",
        dev="full_data.tsv#dev",
        test="",
        defaults=_MULTIPLE_CHOICE,
    ),
    # Named entities (paper, section 5.3), from the official files
    Task(
        name="conll2003",
        dataset="eriktks/conll2003",
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
    ),
    _KLUE_NER,
    replace(  # where its development file is the only one: a fifth of the sentences is dev
        _KLUE_NER,
        name="klue-ner-divided",
        train="klue-ner-v1.1_dev.tsv#train",
        dev="klue-ner-v1.1_dev.tsv#dev",
    ),
    # Korean sentences: film reviews, similarity, which sentence follows
    Task(
        name="nsmc",
        dataset="e9t/nsmc",
        text=("document",),
        labels=("negative", "positive"),
        written=("0", "1"),
        train="ratings_train.txt",
        dev="ratings_test.txt",  # the official division has no other
        test="",
    ),
    Task(
        name="korsts",
        dataset="kakaobrain/kor_nlu",
        kind="regression",
        text=("sentence1", "sentence2"),
        label="score",
        metrics=("spearman", "pearson"),
        train="sts-train.tsv",
        dev="sts-dev.tsv",
        test="sts-test.tsv",
        more={"test": "sts-test.tsv"},  # it has labels
    ),
    Task(
        name="kobest-hellaswag",
        dataset="skt/kobest_v1",
        kind="choice",
        text=("context",),
        choices=("choice1", "choice2", "choice3", "choice4"),
        more={"test": "test.tsv"},  # it has labels
        defaults=_MULTIPLE_CHOICE,
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def find_task(name: str) -> Task:
    """The task of that name in any spelling, such as MNLI, SST-2 or sst2. Raises InputError if there is none."""
    plain = plain_name(name)
    found = next((task for key, task in TASKS.items() if plain_name(key) == plain), None)
    if found is None:
        near = difflib.get_close_matches(name.lower(), TASKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(TASKS)}."
        raise InputError(f"no task {name!r}; {hint} For data of your own: --train, --dev, --text, --label")
    return found


def plain_name(name: str) -> str:
    """A task's name in one spelling: small letters, no hyphens."""
    return name.lower().replace("-", "").replace("_", "")
