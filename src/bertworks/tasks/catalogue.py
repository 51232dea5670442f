"""Every task that bertworks knows by name. A new task is one more literal here, and needs no other code.

Columns are found by the names in the files' headers. Labels are in the order of the original code, or of the numbers in
the files. The first metric is the one to choose by: of a paper's task, the one of its table.
"""

import difflib
from dataclasses import replace

from ..files import InputError
from .base import Task

_ENTITY_SCORES = ("f1", "precision", "recall", "accuracy")
_SIMILARITY = Task("similarity", ("sentence1", "sentence2"), "score", "regression", metrics=("spearman", "pearson"))
_GLUE = Task("glue", ("sentence1", "sentence2"), dataset="nyu-mll/glue")
_GLUE_SINGLE = replace(_GLUE, text=("sentence",), kind="single", labels=("0", "1"), raw_labels=("0", "1"))
_INFERENCE = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_PAPER = {"optim.lr": 5e-5, "batch_size": 32, "epochs": 3.0}  # settings
_QUESTIONS = Task(
    "questions",
    ("question", "context"),
    "answer",
    "span",
    metrics=("f1", "exact"),
    defaults={"max_seq_length": 384, **_PAPER},
)
_KORQUAD = replace(
    _QUESTIONS,
    dataset="KorQuAD/squad_kor_v1",
    metrics=("character_f1", "character_exact"),  # what its official program reports
    dev="KorQuAD_v1.0_dev.json",
)
_ENDINGS = Task(
    "endings",
    ("sent1", "sent2"),
    kind="choice",
    choices=("ending0", "ending1", "ending2", "ending3"),
    defaults={"epochs": 3.0, "optim.lr": 2e-5, "batch_size": 16},  # the paper's
)
_KLUE_NER = Task(
    "klue-ner",
    ("character",),
    "tag",
    "tagging",
    dataset="klue/klue",
    header=("character", "tag"),
    metrics=_ENTITY_SCORES,
    train="klue-ner-v1.1_train.tsv",
    dev="klue-ner-v1.1_dev.tsv",
    test="",  # never published
)


def _divided(task: Task, file: str) -> Task:
    """A task with one labelled file, a fifth of which is dev."""
    return replace(task, train=f"{file}#train", dev=f"{file}#dev", test="")


_ALL = (
    # GLUE (paper, section 4.1), from the official TSV files
    replace(
        _GLUE_SINGLE,
        name="cola",
        header=("source", "label", "mark", "sentence"),  # train and dev begin without it; test has one of its own
        labels=("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"),
    ),
    replace(_GLUE_SINGLE, name="sst2", labels=("negative", "positive")),
    replace(
        _GLUE,
        name="mrpc",
        text=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        raw_labels=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    replace(_SIMILARITY, name="stsb", dataset=_GLUE.dataset),
    replace(
        _GLUE,
        name="qqp",
        text=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        raw_labels=("0", "1"),
        metrics=("f1", "accuracy"),
    ),
    replace(
        _GLUE,
        name="mnli",
        label="gold_label",
        labels=_INFERENCE,
        dev="dev_matched.tsv",
        test="test_matched.tsv",
        more={"mm": "dev_mismatched.tsv"},
    ),
    replace(_GLUE, name="qnli", text=("question", "sentence"), labels=_ENTAILMENT),
    replace(_GLUE, name="rte", labels=_ENTAILMENT),
    replace(_GLUE, name="wnli", labels=("not_entailment", "entailment"), raw_labels=("0", "1")),
    # MNLI's model answers it; there is nothing to train on
    replace(_GLUE, name="ax", labels=_INFERENCE, metrics=("matthews",), train="", dev="", test="diagnostic.tsv"),
    # Question answering (paper, sections 4.2 and 4.3), from the official JSON files
    replace(
        _QUESTIONS,
        name="squad1",
        dataset="rajpurkar/squad",
        train="train-v1.1.json",
        dev="dev-v1.1.json",
        test="test-v1.1.json",
    ),
    replace(
        _QUESTIONS,
        name="squad2",
        dataset="rajpurkar/squad_v2",
        train="train-v2.0.json",
        dev="dev-v2.0.json",
        test="test-v2.0.json",
        defaults={**_QUESTIONS.defaults, "batch_size": 48, "epochs": 2.0},
    ),
    replace(_KORQUAD, name="korquad", train="KorQuAD_v1.0_train.json", test="KorQuAD_v1.0_test.json"),
    _divided(replace(_KORQUAD, name="korquad-divided"), _KORQUAD.dev),  # where its development file is the only one
    # Multiple choice (paper, section 4.4)
    replace(_ENDINGS, name="swag", dataset="allenai/swag", train="train.csv", dev="val.csv", test="test.csv"),
    _divided(
        replace(
            _ENDINGS,
            name="codah",
            dataset="jaredfern/codah",
            header=("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label"),
            text=("prompt",),
        ),
        "full_data.tsv",
    ),
    # Named entities (paper, section 5.3), from the official files
    Task(
        "conll2003",
        ("word",),
        "tag",
        "tagging",
        dataset="eriktks/conll2003",
        header=("word", "part_of_speech", "syntactic_chunk", "tag"),
        metrics=_ENTITY_SCORES,
        train="eng.train",
        dev="eng.testa",
        test="eng.testb",
        more={"test": "eng.testb"},
        defaults={"max_seq_length": 128, **_PAPER},
    ),
    _KLUE_NER,
    _divided(replace(_KLUE_NER, name="klue-ner-divided"), _KLUE_NER.dev),  # where its development file is the only one
    # Korean sentences: film reviews, similarity, which sentence follows
    Task(
        "nsmc",
        ("document",),
        dataset="e9t/nsmc",
        labels=("negative", "positive"),
        raw_labels=("0", "1"),
        train="ratings_train.txt",
        dev="ratings_test.txt",  # the official division has no other
        test="",
    ),
    replace(
        _SIMILARITY,
        name="korsts",
        dataset="kakaobrain/kor_nlu",
        train="sts-train.tsv",
        dev="sts-dev.tsv",
        test="sts-test.tsv",
        more={"test": "sts-test.tsv"},  # it has labels
    ),
    replace(
        _ENDINGS,
        name="kobest-hellaswag",
        dataset="skt/kobest_v1",
        text=("context",),
        choices=("choice1", "choice2", "choice3", "choice4"),
        more={"test": "test.tsv"},  # it has labels
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def find_task(name: str) -> Task:
    """The task of that name in any spelling, such as MNLI, SST-2 or sst2. Raises InputError if there is none."""
    plain = plain_name(name)
    for task in _ALL:
        if plain_name(task.name) == plain:
            return task
    near = difflib.get_close_matches(name.lower(), TASKS, 1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(TASKS)}."
    raise InputError(f"no task {name!r}; {hint} For data of your own: --train, --dev, --text, --label")


def plain_name(name: str) -> str:
    """A task's name in one spelling: small letters, no hyphens."""
    return name.lower().replace("-", "").replace("_", "")
