"""A hundred steps of training beside transformers: the same weights and batches give the same losses, step by step."""

import pytest
import torch

from bertworks.checkpoint.folder import save_folder
from bertworks.data.instances import StreamPosition
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.reporting.log import read_log
from bertworks.training.config import OptimConfig
from support.loops import Feed, loop_of

transformers = pytest.importorskip("transformers")
STEPS = 100


def batches_of(tiny_store):
    data, position = tiny_store.data(40), StreamPosition()
    for _ in range(STEPS):
        batch, position = data.take(position, 16)
        yield batch


def curve_of_transformers(model, batches, lr):
    """A plain loop: their model and loss, torch's AdamW and clipping, their schedule."""
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, STEPS // 10, STEPS)
    model.train()
    losses = []
    for batch in batches:
        labels = torch.full((batch["input_ids"].numel(),), -100)
        used = batch["masked_labels"] >= 0
        labels[batch["masked_positions"][used]] = batch["masked_labels"][used]
        loss = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"].long(),
            token_type_ids=batch["token_type_ids"],
            labels=labels.view_as(batch["input_ids"]),
            next_sentence_label=batch["pair_labels"],
        ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_a_hundred_steps_are_those_of_transformers(tiny_store, tmp_path):
    config = ModelConfig(
        vocab_size=tiny_store.vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = build_model(config, seed=4)
    save_folder(tmp_path / "start", model, None)
    peer = transformers.BertForPreTraining.from_pretrained(tmp_path / "start")
    # A random replacement may be [PAD]. There the original and we learn its row; transformers, told that it pads,
    # leaves that part of its gradient out.
    peer.bert.embeddings.word_embeddings.padding_idx = None
    batches = list(batches_of(tiny_store))
    theirs = curve_of_transformers(peer, batches, 3e-3)

    optim = OptimConfig(lr=3e-3, rule="adamw", schedule="hf", warmup=0.1)
    assert loop_of(model, Feed(batches), tmp_path / "run", optim, steps=STEPS).train()
    ours = [record["mlm_loss"] + record["nsp_loss"] for record in read_log(tmp_path / "run")]
    assert len(ours) == STEPS and theirs[-1] < theirs[0] - 0.5  # it learns, so that there is something to compare
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-4

    save_folder(tmp_path / "end", model, None)
    end = transformers.BertForPreTraining.from_pretrained(tmp_path / "end")
    one, two = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (end, peer))
    assert (one - two).norm() < 1e-4 * two.norm()
