"""Distillation: three losses by hand, a student that begins as its teacher, the run folder, exact resume, bad input."""

import dataclasses
import json

import pytest
import torch
from torch.nn import functional as F

from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.cli import main
from bertworks.config import load_recipe
from bertworks.files import InputError
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.pretraining import distill as distilling
from bertworks.pretraining.distill import every_second, start_student, student_config
from bertworks.pretraining.distill_recipe import DistillConfig
from bertworks.reporting.log import read_log
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from bertworks.training import vocabulary_loss
from bertworks.training.objectives import Objective
from bertworks.training.task_objectives import DistillationObjective, linear_divergence
from bertworks.training.vocabulary_loss import OutputLayer, Term, used_slots
from support.batches import batch, problem
from support.loops import loop_of

TEACHER = ModelConfig(100, 16, 4, 2, 32, max_position_embeddings=40, initializer_range=0.3)
RECIPE = """
eval_batches = 2
[optim]
rule = "adamw"
lr = 2e-3
[loop]
steps = 24
log_every = 1
eval_every = 10
save_every = 3
precision = "float32"
compute = "eager"
[[phases]]
length = 24
budget_fraction = 0.5
batch_size = 32
micro_batch_size = 20
[[phases]]
length = 40
budget_fraction = 0.5
batch_size = 16
"""


@pytest.fixture(scope="module")
def teacher(tiny_store, tmp_path_factory):
    """A folder of random weights, large enough that what it says differs from token to token."""
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    save_folder(folder, build_model(TEACHER, seed=4), Tokenizer.load(tiny_store.path / "tokenizer"))
    return folder


def line(folder, tiny_store, teacher):
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE)
    argv = ["distill", recipe, "--teacher", teacher, "--corpus", tiny_store.path, "--out", folder / "run"]
    return [str(word) for word in argv]


# ---- losses


@pytest.mark.parametrize("rows", [4, 1024])
@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("gpu", [False, True])  # a GPU gets other numbers of words and rows
def test_value_and_gradients_of_the_divergence(rows, temperature, gpu, monkeypatch):
    monkeypatch.setattr(vocabulary_loss, "ROWS", rows)
    monkeypatch.setattr(vocabulary_loss, "SCORES_OF_GPU", 7 * 31)
    monkeypatch.setattr(vocabulary_loss, "_is_on_gpu", lambda x: gpu)
    tensors, labels = problem()
    generator, used = torch.Generator().manual_seed(8), labels >= 0
    theirs = [torch.randn(shape, generator=generator) for shape in ((23, 9), (31, 9), (31,))]  # another width
    found, known = ((F.linear(*side) / temperature).log_softmax(-1)[used] for side in (tensors, theirs))
    expected = temperature**2 * (known.exp() * (known - found)).sum()
    gradients = torch.autograd.grad(3 * expected, tensors)
    term = linear_divergence(OutputLayer(*tensors), OutputLayer(*theirs), used, temperature, used_slots(used))
    assert term.correct is None
    torch.testing.assert_close(term.loss, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(torch.autograd.grad(3 * term.loss, tensors), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        same = linear_divergence(OutputLayer(*tensors), OutputLayer(*theirs), used, temperature, used_slots(used)).loss
    torch.testing.assert_close(same, expected.detach(), rtol=1e-5, atol=1e-5)
    unused = torch.zeros(23, dtype=torch.bool)
    none = linear_divergence(OutputLayer(*tensors), OutputLayer(*theirs), unused, temperature, used_slots(unused))
    assert none.loss == 0
    none.loss.backward()


@pytest.mark.parametrize("every_token", [False, True])
def test_the_three_terms_by_hand(every_token):
    """Weights as the loop has them, on rectangles, with torch's own losses; gradients of every parameter."""
    known = build_model(dataclasses.replace(TEACHER, vocab_size=40), seed=2).eval()
    student = build_model(dataclasses.replace(TEACHER, vocab_size=40, num_hidden_layers=2), ("mlm",), seed=3).eval()
    objective, whole = DistillationObjective(known, 2.0, every_token), batch()
    mask, cells, labels = whole["attention_mask"].flatten(), whole["masked_positions"], whole["masked_labels"]
    counts = objective.counts(whole)
    assert counts == {"soft": 19 if every_token else 7, "mlm": 7, "cosine": 19}
    terms = objective(student, whole)
    scaled = {"soft": 5.0, "mlm": 2.0, "cosine": 1.0}
    sum(scaled[n] * terms[n].loss / counts[n] for n in terms).backward()
    found = {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}
    student.zero_grad(set_to_none=True)

    names = ("input_ids", "attention_mask", "token_type_ids")
    ours = student.encoder(*(whole[n] for n in names)).last_hidden_state.flatten(0, 1)
    with torch.no_grad():
        theirs = known.encoder(*(whole[n] for n in names)).last_hidden_state.flatten(0, 1)
    at = mask.nonzero()[:, 0] if every_token else cells[labels >= 0]
    scores = [model.masked_lm_logits(states[at]) / 2 for model, states in ((student, ours), (known, theirs))]
    logs = [one.log_softmax(-1) for one in scores]
    plain = {
        "soft": 4 * F.kl_div(logs[0], logs[1].detach(), reduction="sum", log_target=True),
        "mlm": F.cross_entropy(student.masked_lm_logits(ours[cells]), labels, reduction="sum", ignore_index=-100),
        "cosine": F.cosine_embedding_loss(ours[mask], theirs[mask], torch.ones(19), reduction="sum"),
    }
    for name, value in plain.items():
        torch.testing.assert_close(terms[name].loss, value, rtol=1e-5, atol=1e-5)
    sum(scaled[n] * plain[n] / counts[n] for n in plain).backward()
    for name, p in student.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-5, msg=name)
    assert all(p.grad is None for p in known.parameters())


# ---- the student


def test_every_second_layer_is_distilberts_choice():
    assert every_second(12) == (0, 2, 4, 7, 9, 11)  # its script's default
    assert every_second(4) == (0, 3) and every_second(2) == (0,) and every_second(1) == (0,)
    assert len(every_second(24)) == 12


def test_a_student_begins_with_its_teachers_weights():
    known, layers = build_model(TEACHER, seed=4), (0, 3)
    shape = student_config(TEACHER, layers, "there")
    assert (shape.family, shape.type_vocab_size, shape.num_hidden_layers) == ("distilbert", 0, 2)
    student = start_student(known, shape, layers)
    ours, theirs = student.state_dict(), known.state_dict()
    assert student.encoder.pooler is None and list(student.heads) == ["mlm"]
    for name, value in ours.items():
        source = name.replace("layers.1.", "layers.3.")
        if name == "encoder.embeddings.position.weight":
            assert torch.equal(value, theirs[name] + theirs["encoder.embeddings.token_type.weight"][0])
        else:
            assert torch.equal(value, theirs[source])
        assert value.data_ptr() != theirs[source].data_ptr()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"family": "roberta", "position_offset": 2, "type_vocab_size": 1},
        {"position_embedding_type": "rotary", "norm": "pre", "feed_forward": "geglu", "type_vocab_size": 0},
        {"embedding_size": 8, "tie_word_embeddings": False},
    ],
    ids=str,
)
def test_a_student_with_all_layers_says_what_its_teacher_says(more, tiny_store):
    known = build_model(dataclasses.replace(TEACHER, **more), ("mlm",), seed=4).eval()
    student = start_student(known, student_config(known.config, (0, 1, 2, 3), "there"), (0, 1, 2, 3)).eval()
    rows = next(iter(tiny_store.data(32).batches(16, 1)))
    rows["token_type_ids"] = torch.zeros_like(rows["token_type_ids"])
    with torch.no_grad():
        terms = DistillationObjective(known)(student, rows)
    assert abs(terms["soft"].loss) < 1e-3 and abs(terms["cosine"].loss) < 1e-3
    assert terms["mlm"].loss > 1


@pytest.mark.parametrize(
    "more, layers, said",
    [
        ({"direction": "left"}, (0,), "a teacher with direction = 'left'"),
        ({"layer_type": "lstm"}, (0,), "layer_type = 'lstm'"),
        ({"shared_layers": "all"}, (0,), "shared_layers = 'all'"),
        ({}, (0, 4), r"layers = \[0, 4\]; expected numbers of the teacher's layers, 0 to 3"),
        ({}, (2, 1), "in their order"),
    ],
)
def test_a_teacher_or_layers_that_make_no_student(more, layers, said):
    with pytest.raises(InputError, match=said):
        student_config(dataclasses.replace(TEACHER, **more), layers, "there")


# ---- the run


@pytest.fixture(scope="module")
def trained(tiny_store, teacher, tmp_path_factory):
    """A run by the command line."""
    folder = tmp_path_factory.mktemp("distilled")
    main(line(folder, tiny_store, teacher))
    return folder / "run"


def test_the_run_folder(trained, teacher):
    results = json.loads((trained / "results.json").read_text())
    metrics, one, other = results["metrics"], results["teacher"], results["student"]
    assert results["kind"] == "distill" and results["steps"] == 24
    assert {"soft_loss", "mlm_loss", "mlm_accuracy", "cosine_loss"} <= metrics.keys()
    model = load_model(trained / "model")
    assert list(model.heads) == ["mlm"] and model.config.family == "distilbert" and len(model.encoder.layers) == 2
    assert other["parameters"] == sum(p.numel() for p in model.parameters())
    header = (trained / "model" / "model.safetensors").stat().st_size - other["bytes"]
    assert 0 < header < 10_000
    assert other["layers of the teacher"] == [0, 3] and other["mlm_loss"] == metrics["mlm_loss"]
    assert one["name"] == "teacher" and one["parameters"] > other["parameters"]
    assert one["mlm_loss"] > 0 and "mlm_accuracy" in one
    assert results["ratio"]["parameters"] == other["parameters"] / one["parameters"]
    card = (trained / "model" / "README.md").read_text()
    assert "# A student of teacher" in card and '"teacher": {' in card and str(teacher) not in card
    log = [record for record in read_log(trained) if record["kind"] == "train"]
    assert all({"soft_loss", "mlm_loss", "cosine_loss"} <= record.keys() for record in log)
    assert log[-1]["cosine_loss"] < 0.9 * log[0]["cosine_loss"] and log[-1]["soft_loss"] < 0.9 * log[0]["soft_loss"]
    assert load_recipe(trained / "recipe.toml", DistillConfig).layers == ()


class Sums(Objective):
    """Two terms whose gradient on each of n weights is 1 and 2, over 1 and 4 predictions."""

    def counts(self, batch):
        return {"one": 1, "two": 4}

    def terms(self, model, batch, dropout=None):
        return {"one": Term(model.weight.sum(), None), "two": Term(2 * model.weight.sum(), None)}


def test_the_loop_weighs_the_terms_and_logs_them_unweighted(tmp_path):
    norms = []
    for name, weighing in (("plain", {}), ("weighed", {"one": 5.0}), ("both", {"one": 0.0, "two": 3.0})):
        loop = loop_of(torch.nn.Linear(9, 1, bias=False), [batch()], tmp_path / name, objective=Sums(), steps=1)
        loop.trainer.loss_weights = weighing
        total = float(loop.trainer.model.weight.detach().sum())
        assert loop.train()
        record = read_log(tmp_path / name)[0]
        assert record["one_loss"] == pytest.approx(total) and record["two_loss"] == pytest.approx(total / 2)
        norms.append(record["grad_norm"])
    assert norms == pytest.approx([3 * (1 + 0.5), 3 * (5 + 0.5), 3 * 1.5])


def test_a_resumed_run_must_have_the_same_teacher(tiny_store, teacher, trained, tmp_path):
    config = load_recipe(trained / "recipe.toml", DistillConfig)
    other = tmp_path / "other"
    save_folder(other, build_model(TEACHER, seed=5), Tokenizer.load(tiny_store.path / "tokenizer"))
    for folder in (trained / "results.json", trained / "state" / "state.safetensors"):
        target = tmp_path / "run" / folder.relative_to(trained)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(folder.read_bytes())
    with pytest.raises(InputError, match="is a finished run with other settings, data or model"):
        distilling.distill(config, other, tiny_store.path, tmp_path / "run", quiet=True)
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(InputError, match="belongs to a run with other settings"):
        distilling.distill(config, other, tiny_store.path, tmp_path / "run", quiet=True)


# ---- bad input


def refused(capsys, argv):
    """The one message of a line that cannot run."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    said = capsys.readouterr().err
    assert end.value.code == 1 and said.startswith("bertworks: ") and "Traceback" not in said
    return said


def test_a_teacher_that_does_not_fit_is_refused(tiny_store, teacher, tmp_path, capsys):
    tokenizer = Tokenizer.load(tiny_store.path / "tokenizer")
    save_folder(tmp_path / "bare", build_model(TEACHER, (), seed=1), tokenizer)
    said = refused(capsys, line(tmp_path, tiny_store, tmp_path / "bare"))
    assert "bare has no head; expected a teacher with a masked-LM head" in said
    texts = ["other words than those that are in the store", "so other pieces"] * 50
    other = Tokenizer.train(texts, TokenizerConfig(vocab_size=100))
    smaller = dataclasses.replace(TEACHER, vocab_size=other.vocab_size)
    save_folder(tmp_path / "other", build_model(smaller, seed=1), other)
    said = refused(capsys, line(tmp_path, tiny_store, tmp_path / "other"))
    assert "is not the one that" in said and "Build the corpus with it" in said
    assert "no such folder" in refused(capsys, line(tmp_path, tiny_store, tmp_path / "none"))
    assert not (tmp_path / "run").exists()
