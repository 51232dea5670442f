"""Every task that bertworks knows by name. A new task is one more literal here, and needs no other code.

Columns are found by the names in the files' headers. Labels are in the order of the original code, or of the numbers in
the files. The first metric is the one to choose by: of a paper's task, the one of its table.
"""

import difflib
from dataclasses import replace

from ..files import InputError
from .base import Task

_GLUE = Task("glue", ("sentence",), written=("0", "1"), labels=("0", "1"), dataset="nyu-mll/glue")
_GLUE_PAIRS = Task("glue", ("sentence1", "sentence2"), dataset="nyu-mll/glue")
_INFERENCE = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_SQUAD = Task(
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
)
_KORQUAD = replace(
    _SQUAD,
    name="korquad",
    dataset="KorQuAD/squad_kor_v1",
    metrics=("character_f1", "character_exact"),  # what its official program reports
    train="KorQuAD_v1.0_train.json",
    dev="KorQuAD_v1.0_dev.json",
    test="KorQuAD_v1.0_test.json",
)
_CHOICES = Task(
    name="swag",
    dataset="allenai/swag",
    kind="choice",
    text=("sent1", "sent2"),
    choices=("ending0", "ending1", "ending2", "ending3"),
    train="train.csv",
    dev="val.csv",
    test="test.csv",
    defaults={"epochs": 3.0, "optim.lr": 2e-5, "batch_size": 16},  # the paper's
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
    replace(
        _GLUE,
        name="cola",
        header=("source", "label", "mark", "sentence"),  # train and dev begin without it; test has one of its own
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"),
    ),
    replace(_GLUE, name="sst2", text=("sentence",), labels=("negative", "positive")),
    replace(
        _GLUE_PAIRS,
        name="mrpc",
        text=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        written=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    replace(_GLUE_PAIRS, name="stsb", kind="regression", label="score", metrics=("spearman", "pearson")),
    replace(
        _GLUE_PAIRS,
        name="qqp",
        text=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        written=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    replace(
        _GLUE_PAIRS,
        name="mnli",
        label="gold_label",
        labels=_INFERENCE,
        dev="dev_matched.tsv",
        test="test_matched.tsv",
        more={"mm": "dev_mismatched.tsv"},
    ),
    replace(_GLUE_PAIRS, name="qnli", text=("question", "sentence"), labels=_ENTAILMENT),
    replace(_GLUE_PAIRS, name="rte", labels=_ENTAILMENT),
    replace(_GLUE_PAIRS, name="wnli", labels=("not_entailment", "entailment"), written=("0", "1")),
    # MNLI's model answers it; there is nothing to train on
    replace(_GLUE_PAIRS, name="ax", labels=_INFERENCE, metrics=("matthews",), train="", dev="", test="diagnostic.tsv"),
    # Question answering (paper, sections 4.2 and 4.3), from the official JSON files
    _SQUAD,
    replace(
        _SQUAD,
        name="squad2",
        dataset="rajpurkar/squad_v2",
        train="train-v2.0.json",
        dev="dev-v2.0.json",
        test="test-v2.0.json",
        defaults={**_SQUAD.defaults, "batch_size": 48, "epochs": 2.0},
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
    _CHOICES,
    replace(  # one file and no official division in it: a fifth of the prompts is dev
        _CHOICES,
        name="codah",
        dataset="jaredfern/codah",
        header=("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label"),
        text=("prompt",),
        train="full_data.tsv#train",
        dev="full_data.tsv#dev",
        test="",
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
    replace(
        _CHOICES,
        name="kobest-hellaswag",
        dataset="skt/kobest_v1",
        text=("context",),
        choices=("choice1", "choice2", "choice3", "choice4"),
        train="train.tsv",
        dev="dev.tsv",
        test="test.tsv",
        more={"test": "test.tsv"},  # it has labels
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
