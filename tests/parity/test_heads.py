"""Folders of every supervised kind open in transformers and give the same scores; theirs open here."""

import pytest
import torch

from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.checkpoint.metadata import labels_of, task_of
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from support.parity import BERT_KEYS, C, L, same_scores, shaken

transformers = pytest.importorskip("transformers")
SHAPE = ModelConfig(**BERT_KEYS, max_position_embeddings=24)
KINDS = {  # kind: our head, its labels, their class, their problem_type
    "single": ("classifier", ["no", "yes", "perhaps"], "SequenceClassification", "single_label_classification"),
    "multilabel": ("classifier", ["art", "law", "war"], "SequenceClassification", "multi_label_classification"),
    "regression": ("classifier", ["score"], "SequenceClassification", "regression"),
    "choice": ("choice", None, "MultipleChoice", None),
    "tagging": ("tagger", ["O", "B-PER", "I-PER"], "TokenClassification", None),
    "span": ("span", None, "QuestionAnswering", None),
}
B = 6


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """B sequences of several lengths, in two segments."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(L) < torch.arange(B)[:, None] * 2 + 5
    ids = torch.randint(5, 97, (B, L), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(L) > 4) * mask.long()}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_ours_open_there_and_theirs_here(kind, tmp_path):
    head, labels, theirs, problem = KINDS[kind]
    model = shaken(build_model(SHAPE, (head,), labels=len(labels or ()), seed=2))
    save_folder(tmp_path / "ours", model, None, labels=labels, task={"kind": kind, "name": "t"})
    cls = getattr(transformers, f"AutoModelFor{theirs}")
    peer, info = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert type(peer).__name__ == f"BertFor{theirs}"
    same_scores(model, peer.eval())
    if head == "classifier":
        assert peer.config.problem_type == problem
    peer.save_pretrained(tmp_path / "theirs")
    same_scores(load_model(tmp_path / "theirs"), peer)
    settings = read_config(tmp_path / "theirs")[1]
    assert task_of(settings, head)["kind"] == kind
    if labels:
        assert peer.config.id2label == dict(enumerate(labels)) and labels_of(settings, "theirs") == labels


@pytest.mark.parametrize("kind", ["regression", "multilabel", "single", "choice"])
def test_the_loss_is_theirs(kind, batch, tmp_path):
    """What transformers trains such a folder on is what we train it on, up to the division by the count."""
    from bertworks.tasks.kinds import KINDS as OURS

    head, labels, theirs, _ = KINDS[kind]
    model = shaken(build_model(SHAPE, (head,), labels=len(labels or ()), seed=2))
    save_folder(tmp_path / "ours", model, None, labels=labels, task={"kind": kind, "name": "t"})
    peer = getattr(transformers, f"AutoModelFor{theirs}").from_pretrained(tmp_path / "ours").eval()
    generator = torch.Generator().manual_seed(5)
    gold = {
        "regression": torch.rand(B, generator=generator),
        "multilabel": torch.randint(0, 2, (B, 3), generator=generator).float(),
        "single": torch.randint(0, 3, (B,), generator=generator),
        "choice": torch.tensor([2, 0]),
    }[kind]
    objective = OURS[kind].objective
    term = objective(model, batch | {"labels": gold})["task"]
    given = batch | {"attention_mask": batch["attention_mask"].long()}
    if kind == "choice":
        given = {name: value.view(B // C, C, L) for name, value in given.items()}
    expected = peer(**given, labels=gold).loss
    count = objective.counts(batch | {"labels": gold})["task"]
    assert float(term.loss.detach() / count) == pytest.approx(float(expected.detach()), abs=1e-5)
