"""Official files: every literal reads its whole, with labels by name; one literal is all that a task needs."""

from collections import Counter
from dataclasses import replace

import pytest

from bertworks.config import from_dict
from bertworks.files import InputError
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.tasks.base import Example
from bertworks.tasks.catalogue import TASKS, find_task
from bertworks.tasks.kinds import kind_of, load_data, read_rows
from support.shared_data import shared

FOLDERS = {  # rows of train, dev and test, as ../shared/data/README.md counts them; 0: the file is not there
    "cola": ("glue/CoLA", 8551, 1043, 1063),
    "sst2": ("glue/SST-2", 67349, 872, 1821),
    "mrpc": ("glue/MRPC", 3668, 408, 1725),
    "stsb": ("glue/STS-B", 5749, 1500, 1379),
    "qqp": ("glue/QQP", 38235, 4000, 0),
    "mnli": ("glue/MNLI", 9888, 8717, 0),
    "qnli": ("glue/QNLI", 4538, 925, 5463),
    "rte": ("glue/RTE", 2490, 277, 3000),
    "wnli": ("glue/WNLI", 635, 71, 146),
    "ax": ("glue/AX", 0, 0, 1104),
    "codah": ("codah", 2225, 551, 0),
    "nsmc": ("korean/nsmc", 40000, 5000, 0),
    "korsts": ("korean/korsts", 5749, 1500, 1379),
    "kobest-hellaswag": ("korean/kobest-hellaswag", 2029, 500, 500),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_official_files_are_read_whole(name):
    folder, *counts = FOLDERS[name]
    folder, task = shared(f"data/{folder}"), TASKS[name]
    files = [(task.train, True), (task.dev, True), (task.test, False)]
    for (file, labelled), count in zip(files, counts, strict=True):
        if count:
            rows = read_rows(task if labelled else replace(task, header=()), folder / file, labelled)
            assert len(rows) == count and len({row.line for row in rows}) == count
            assert all((row.label is not None) == labelled for row in rows)
    if task.labels and task.train:
        assert {row.label for row in read_rows(task, folder / task.dev)} == set(task.labels)


def test_labels_have_the_right_names():
    dev = {name: read_rows(TASKS[name], shared("data/glue") / name.upper() / "dev.tsv") for name in ("rte", "wnli")}
    assert Counter(row.label for row in dev["rte"]) == {"entailment": 146, "not_entailment": 131}
    assert Counter(row.label for row in dev["wnli"]) == {"not_entailment": 40, "entailment": 31}
    mrpc, sst2, cola = (load_data(TASKS[n], shared(f"data/{FOLDERS[n][0]}")).dev for n in ("mrpc", "sst2", "cola"))
    assert mrpc[0].text.startswith("He said the foodservice") and mrpc[0].pair.startswith('" The foodservice')
    assert mrpc[0].label == "equivalent" and mrpc[1].label == "not_equivalent"
    assert sst2[0] == Example("it 's a charming and often affecting journey . ", None, "positive", 2)
    assert cola[0] == Example("The sailors rode the breeze clear of the rocks.", None, "acceptable", 1)
    assert Counter(row.label for row in cola) == {"acceptable": 721, "unacceptable": 322}


def test_further_development_sets():
    korsts = load_data(TASKS["korsts"], shared("data/korean/korsts"))
    assert len(korsts.more["test"]) == 1379
    assert not load_data(TASKS["mnli"], shared("data/glue/MNLI")).more  # dev_mismatched.tsv is not there


def test_every_literal_is_sound():
    for name, task in TASKS.items():
        assert name == task.name == find_task(name).name
        assert kind_of(task).metrics and task.metrics[0] in kind_of(task).metrics
        config = FinetuneConfig.for_task(task)
        assert config == from_dict(FinetuneConfig, {}, "") or task.defaults
    assert FinetuneConfig.for_task(TASKS["swag"]).optim.lr == 2e-5
    assert FinetuneConfig.for_task(TASKS["swag"]).batch_size == 16


def test_names_as_people_write_them():
    for name in ("STS-B", "sts_b", "stsb", "STSB"):
        assert find_task(name).name == "stsb"
    assert find_task("KoBEST_HellaSwag").name == "kobest-hellaswag"
    with pytest.raises(InputError, match="no task 'mnlii'; expected one of cola, "):
        find_task("mnlii")


def test_there_is_nothing_to_train_on_for_ax(tmp_path):
    with pytest.raises(InputError, match=r"ax has only diagnostic\.tsv, without labels; .* bertworks predict"):
        load_data(TASKS["ax"], tmp_path)
