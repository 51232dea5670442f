"""Folders of every supervised kind open in transformers and give the same scores; theirs open here."""

import pytest
import torch

from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.checkpoint.metadata import labels_of, task_of
from bertworks.model.config import ModelConfig
from bertworks.model.heads import TOKEN_HEADS, Model, build_model

transformers = pytest.importorskip("transformers")
SHAPE = ModelConfig(
    vocab_size=97,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=50,
    max_position_embeddings=24,
    initializer_range=0.2,
)
KINDS = {  # kind: our head, its labels, their class, their problem_type
    "single": ("classifier", ["no", "yes", "perhaps"], "SequenceClassification", "single_label_classification"),
    "multilabel": ("classifier", ["art", "law", "war"], "SequenceClassification", "multi_label_classification"),
    "regression": ("classifier", ["score"], "SequenceClassification", "regression"),
    "choice": ("choice", None, "MultipleChoice", None),
    "tagging": ("tagger", ["O", "B-PER", "I-PER"], "TokenClassification", None),
    "span": ("span", None, "QuestionAnswering", None),
}
B, L, C = 6, 17, 3


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """B sequences of several lengths, in two segments."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(L) < torch.arange(B)[:, None] * 2 + 5
    ids = torch.randint(5, 97, (B, L), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(L) > 4) * mask.long()}


def scores(model: Model, head: str, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, K), of a token head (T, K) at the real tokens."""
    mask = batch["attention_mask"]
    out = model.encoder(batch["input_ids"], mask, batch["token_type_ids"])
    if head not in TOKEN_HEADS:
        return model.heads[head](out.pooled)
    return model.heads[head](out)[out.layout.rows(mask.flatten().nonzero().squeeze(1))]


def their_scores(model, kind: str, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    mask = batch["attention_mask"]
    given = batch | {"attention_mask": mask.long()}
    if kind == "choice":  # an example is C sequences
        out = model(**{name: value.view(B // C, C, L) for name, value in given.items()})
        return out.logits.reshape(B, 1)
    out = model(**given)
    if kind == "span":
        return torch.stack([out.start_logits, out.end_logits], -1)[mask]
    return out.logits[mask] if kind == "tagging" else out.logits


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Biases and LayerNorms random too, so that nothing hides behind a zero."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_ours_open_there(kind, batch, tmp_path):
    head, labels, theirs, problem = KINDS[kind]
    model = shaken(build_model(SHAPE, (head,), labels=len(labels or ()), seed=2))
    save_folder(tmp_path / "ours", model, None, labels=labels, task={"kind": kind, "name": "t"})
    cls = getattr(transformers, f"AutoModelFor{theirs}")
    peer, info = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert type(peer).__name__ == f"BertFor{theirs}"
    torch.testing.assert_close(scores(model, head, batch), their_scores(peer.eval(), kind, batch), rtol=0, atol=1e-5)
    if head == "classifier":
        assert peer.config.problem_type == problem
    if labels:
        assert peer.config.id2label == dict(enumerate(labels))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_theirs_open_here(kind, batch, tmp_path):
    head, labels, theirs, problem = KINDS[kind]
    more = {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}} if labels else {}
    config = transformers.BertConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=50,
        max_position_embeddings=24,
        initializer_range=0.2,
        problem_type=problem,
        **more,
    )
    torch.manual_seed(4)
    peer = shaken(getattr(transformers, f"BertFor{theirs}")(config))
    peer.save_pretrained(tmp_path / "theirs")
    model, settings = load_model(tmp_path / "theirs"), read_config(tmp_path / "theirs")[1]
    torch.testing.assert_close(scores(model, head, batch), their_scores(peer, kind, batch), rtol=0, atol=1e-5)
    assert task_of(settings, head)["kind"] == kind
    if labels:
        assert labels_of(settings, "theirs") == labels


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
