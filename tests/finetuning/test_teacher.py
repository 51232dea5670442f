"""A fine-tuned teacher in fine-tuning: its loss by hand, labels by name, the run folder, exact resume, bad input."""

import random
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.files import InputError
from bertworks.finetuning.job import ExampleFeed, Job
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune
from bertworks.finetuning.teacher import score_with_teacher
from bertworks.model.build import build_model
from bertworks.reporting.log import read_log
from bertworks.tokenizer import Tokenizer
from bertworks.training.config import LoopConfig, OptimConfig, TrainerState
from bertworks.training.task_objectives import ClassificationObjective
from support.loops import ALONE, killed_at
from support.tiny_task import TINY, tiny_place, tiny_rows

CONFIG = FinetuneConfig(
    max_seq_length=24, optim=OptimConfig(lr=2e-3, warmup=0.1), batch_size=8, epochs=2.0, loop=LoopConfig(log_every=1)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A student's folder, tables, and a teacher fine-tuned on them."""
    folder = tiny_place(tmp_path_factory.mktemp("taught"), 48, 20, seed=1)
    assert finetune(CONFIG, *tiny_rows(folder), folder / "model", folder / "teacher", quiet=True)
    return folder


def with_teacher(teacher, **more):
    return replace(CONFIG, teacher=str(teacher), **more)


def batch(labels):
    ids = torch.randint(5, 40, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(9) < torch.tensor([9, 4, 6])[:, None]
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids), "labels": labels}


@pytest.mark.parametrize("classes", [1, 3])
def test_both_terms_by_hand(classes):
    generator = torch.Generator().manual_seed(2)
    labels = torch.tensor([0.5, 3.0, 2.0]) if classes == 1 else torch.tensor([2, 0, 1])
    model = build_model(TINY, ("classifier",), classes, seed=1).eval()
    known = torch.randn(3, classes, generator=generator)
    whole, objective = batch(labels) | {"teacher_scores": known}, ClassificationObjective(temperature=3.0)
    assert objective.counts(whole) == {"task": 3, "soft": 3}
    terms = objective(model, whole)
    gradients = torch.autograd.grad(terms["soft"].loss + terms["task"].loss, list(model.parameters()))
    logits = model.heads["classifier"](model.encode(whole).pooled)
    if classes == 1:
        soft, hard = ((logits - known) ** 2).sum(), ((logits[:, 0] - labels) ** 2).sum()
    else:
        wanted, found = (known / 3).softmax(-1), (logits / 3).softmax(-1)
        soft, hard = 9 * (wanted * (wanted / found).log()).sum(), F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(terms["soft"].loss, soft)
    torch.testing.assert_close(terms["task"].loss, hard)
    expected = torch.autograd.grad(soft + hard, list(model.parameters()))
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_teacher_is_met_by_the_names_of_its_labels(place, tmp_path):
    """The same head with its rows in another order, and a label more, gives the same scores."""
    task, data = tiny_rows(place)
    job = Job.of(with_teacher(place / "teacher"), task, data, place / "model", ALONE, True)
    model, names = load_model(place / "teacher" / "model"), list(job.task.labels)
    head = model.heads["classifier"]
    wide = build_model(model.config, ("classifier",), 3, seed=1)
    wide.load_state_dict(model.state_dict() | {
        "heads.classifier.weight": torch.cat([head.weight.flip(0), torch.ones(1, 32)]),
        "heads.classifier.bias": torch.cat([head.bias.flip(0), torch.ones(1)]),
    })  # fmt: skip
    tokenizer = Tokenizer.load(place / "model")
    save_folder(tmp_path / "wide", wide, tokenizer, labels=[*names[::-1], "neither"])
    again = score_with_teacher(tmp_path / "wide", job.task, job.kind, data, CONFIG, ALONE)
    torch.testing.assert_close(again.scores, job.teacher.scores)
    assert again.facts["metrics"] == job.teacher.facts["metrics"]
    group = ExampleFeed(job.train, CONFIG.resolved(48, 1), ALONE, job.teacher.scores)(TrainerState(), 0.0)
    found, _ = group.micro_batches[0]
    with torch.no_grad():  # each row has its own scores
        said = model.eval().heads["classifier"](model.encode(found).pooled)
    torch.testing.assert_close(found["teacher_scores"], said, rtol=1e-4, atol=1e-5)


def test_a_stopped_run_goes_on_to_the_same_bytes_and_only_with_its_teacher(place, tmp_path):
    task, data = tiny_rows(place)
    config = with_teacher(place / "teacher")
    config = replace(config, loop=LoopConfig(log_every=1, save_every=2))
    results = finetune(config, task, data, place / "model", tmp_path / "whole", quiet=True)
    assert results["teacher"]["name"] == "teacher" and set(results["teacher"]["metrics"]) <= set(results["metrics"])
    log = [record for record in read_log(tmp_path / "whole") if record["kind"] == "train"]
    assert all({"task_loss", "soft_loss"} <= record.keys() for record in log)
    with killed_at(random.Random(1).randint(5, 9), ExampleFeed):
        finetune(config, task, data, place / "model", tmp_path / "run", quiet=True)
    model = build_model(TINY, ("classifier",), 2, seed=9)
    save_folder(tmp_path / "other", model, Tokenizer.load(place / "model"), labels=["bad", "good"])
    other = with_teacher(tmp_path / "other", loop=config.loop)
    with pytest.raises(InputError, match="belongs to a run with other settings"):
        finetune(other, task, data, place / "model", tmp_path / "run", quiet=True)
    assert finetune(config, task, data, place / "model", tmp_path / "run", quiet=True)
    one, two = ((tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "run"))
    assert one == two


def test_a_teacher_that_does_not_fit_is_refused(place, tmp_path):
    task, data = tiny_rows(place)
    tokenizer = Tokenizer.load(place / "model")
    save_folder(tmp_path / "names", build_model(TINY, ("classifier",), 2, seed=9), tokenizer, labels=["bad", "fine"])
    save_folder(tmp_path / "number", build_model(TINY, ("classifier",), 1, seed=9), tokenizer, labels=["score"])
    for teacher, said in (
        (place / "model", "has no classifier; expected a teacher fine-tuned on table"),
        (tmp_path / "names", "knows the labels bad, fine; the data of table has good besides"),
        (tmp_path / "number", "was fine-tuned for the kind regression; expected one for single"),
        (tmp_path / "none", "no such folder"),
    ):
        with pytest.raises(InputError, match=said):
            finetune(with_teacher(teacher), task, data, place / "model", tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
