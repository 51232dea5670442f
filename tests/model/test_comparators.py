"""The paper's comparators: contexts of one side, recurrent layers, pairs, and what may stand on top (5.1, 5.3)."""

import dataclasses
import json

import pytest
import torch
from torch import nn

from bertworks.checkpoint.folder import load_model, save_folder
from bertworks.checkpoint.start import concatenate, initial_model
from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.model.comparators import ConcatenatedEncoders
from bertworks.model.config import ModelConfig, TopConfig
from bertworks.model.dropout import DropoutKey, SiteDropout
from bertworks.tokenizer import Tokenizer
from bertworks.training.objectives import LanguageModelObjective
from bertworks.training.task_objectives import ClassificationObjective, TaggingObjective
from support.tiny_task import VOCAB

TINY = ModelConfig(len(VOCAB), 16, 2, 4, 32, max_position_embeddings=24)
LENGTHS = (9, 4, 1, 7)


def shape(direction="both", layer_type="attention", **more):
    return dataclasses.replace(TINY, direction=direction, layer_type=layer_type, **more)


def shaken(model, seed=1):
    """Biases and gains too, so that no part is without effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def batch(lengths=LENGTHS, seed=0):
    ids = torch.randint(5, TINY.vocab_size, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def vectors(model, rows):
    """Every layer's (B, L, D)."""
    return torch.stack(model.encoder(rows["input_ids"], rows["attention_mask"]).hidden_states)


KINDS = [(side, kind) for side in ("both", "left", "right") for kind in ("attention", "lstm", "gru")]


@pytest.mark.parametrize(("direction", "kind"), KINDS)
@torch.no_grad()
def test_a_token_sees_its_side_and_no_more(direction, kind):
    model, rows = shaken(build_model(shape(direction, kind), ("mlm",), seed=1)).eval(), batch((9,))
    before = vectors(model, rows)
    for changed in range(9):
        other = {**rows, "input_ids": rows["input_ids"].clone()}
        other["input_ids"][0, changed] = (other["input_ids"][0, changed] - 4) % (TINY.vocab_size - 5) + 5
        moved = (vectors(model, other)[-1] - before[-1]).abs().amax(-1)[0] > 1e-9
        sees = {"both": range(9), "left": range(changed, 9), "right": range(changed + 1)}[direction]
        assert moved.nonzero().flatten().tolist() == list(sees)


def test_recurrent_layers_are_not_built_as_attention():
    with pytest.raises(ValueError, match="layer_type = 'lstm': build the encoder with build_model"):
        Encoder(shape("both", "lstm"))


def test_what_is_pooled():
    rows = batch()
    for direction, place in (("both", [0, 0, 0, 0]), ("left", [8, 3, 0, 6]), ("right", [0, 0, 0, 0])):
        model = build_model(shape(direction), (), seed=1).eval()
        out = model.encoder(rows["input_ids"], rows["attention_mask"])
        expected = model.encoder.pooler(out.last_hidden_state[torch.arange(4), torch.tensor(place)])
        torch.testing.assert_close(out.pooled, expected)


@torch.no_grad()
def test_a_bidirectional_lstm_is_that_of_torch():
    """On packed sequences, torch's own way to leave padding out."""
    layer = build_model(shape("both", "lstm"), (), seed=1).encoder.layers[0]
    theirs = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
    for suffix, cell in zip(("", "_reverse"), layer.recurrent.cells, strict=True):
        for name, value in cell.named_parameters():
            getattr(theirs, name + suffix).copy_(value)
    rows = batch()
    layout = build_model(TINY).encoder(rows["input_ids"], rows["attention_mask"]).layout
    x = torch.randn(4, 9, 16)
    found = layout.restore(layer.recurrent(layout.pack(x.flatten(0, 1)), layout))
    lengths = torch.tensor(LENGTHS)
    inner = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected = nn.utils.rnn.pad_packed_sequence(theirs(inner)[0], batch_first=True)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


TOPS = [("both", TopConfig()), ("left", TopConfig()), ("right", TopConfig()), ("pair", TopConfig())]
TOPS += [("both", TopConfig(bilstm_layers=2, bilstm_width=3)), ("pair", TopConfig(layers="0,embeddings"))]


@pytest.mark.parametrize("kind", ["attention", "lstm", "gru"])
@pytest.mark.parametrize(("direction", "top"), TOPS)
@torch.no_grad()
def test_padding_on_any_side_changes_nothing(direction, top, kind):
    """A sequence gives the same alone and in a batch with padding before, behind or within it."""
    still = shape(direction, kind, type_vocab_size=1)
    model = shaken(build_model(still, ("classifier",), 2, seed=1, top=top)).eval()
    for encoder in [model.encoder] if direction != "pair" else [model.encoder.left, model.encoder.right]:
        encoder.embeddings.position.weight.zero_()  # a token's cell is to make no difference of its own
    for seed, mask in enumerate(torch.rand(3, 16, 17, generator=torch.Generator().manual_seed(4)) < 0.4):
        mask[0], mask[1] = torch.arange(17) > 12, torch.arange(17) < 5  # padding before, padding behind
        mask[2], mask[:, 8] = False, True
        ids = torch.randint(5, TINY.vocab_size, (16, 17), generator=torch.Generator().manual_seed(seed))
        zeros = torch.zeros_like(ids)
        out = model.encode({"input_ids": ids, "attention_mask": mask, "token_type_ids": zeros})
        assert len(out.layout.index) < ids.numel()
        for row, pooled, real, states in zip(ids, out.pooled, mask, out.last_hidden_state, strict=True):
            one = row[real][None]
            rows = {"input_ids": one, "attention_mask": torch.ones_like(one), "token_type_ids": torch.zeros_like(one)}
            alone = model.encode(rows)
            torch.testing.assert_close(states[real], alone.last_hidden_state[0], rtol=0, atol=1e-5)
            torch.testing.assert_close(pooled, alone.pooled[0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_recurrent_layers_have_no_attention():
    model, rows = build_model(shape("left", "lstm"), ("mlm",), seed=1), batch()
    with pytest.raises(ValueError, match="no attention"):
        model.encoder(rows["input_ids"], attentions=True)


@pytest.mark.parametrize("direction", ["left", "right"])
def test_the_loss_of_a_language_model(direction):
    """Token by token, by hand, from the scores of the whole vocabulary."""
    model, rows = shaken(build_model(shape(direction), ("mlm",), seed=1)).eval(), batch()
    objective = LanguageModelObjective("ltr" if direction == "left" else "rtl")
    with torch.no_grad():
        term = objective(model, rows)[objective.name]
        states = model.encoder(rows["input_ids"], rows["attention_mask"]).last_hidden_state
        loss, hits, count = 0.0, 0, 0
        for b, length in enumerate(LENGTHS):
            scores = model.masked_lm_logits(states[b, :length]).log_softmax(-1)
            pairs = [(t, t + 1) if direction == "left" else (t + 1, t) for t in range(length - 1)]
            for seen, told in pairs:
                loss -= scores[seen, rows["input_ids"][b, told]].item()
                hits += int(scores[seen].argmax() == rows["input_ids"][b, told])
                count += 1
    assert objective.counts(rows) == {objective.name: count} == {objective.name: sum(LENGTHS) - 4}
    assert float(term.loss) == pytest.approx(loss, rel=1e-5) and int(term.correct) == hits


def test_the_pair_is_both_side_by_side(tmp_path):
    folders = []
    for side in ("left", "right"):
        model = shaken(build_model(shape(side), ("mlm",), seed=1), seed=3 if side == "left" else 4)
        save_folder(tmp_path / side, model, _tokenizer(tmp_path))
        folders.append(load_model(tmp_path / side).eval())
    concatenate(tmp_path / "left", tmp_path / "right", tmp_path / "pair")
    model, fresh, _ = initial_model(tmp_path / "pair", ("classifier",), ["a", "b", "c"], seed=5)
    assert (
        fresh == ["classifier", "pooler"]
        and isinstance(model.encoder, ConcatenatedEncoders)
        and model.encoder.width == 32
    )
    rows = batch()
    out = model.eval().encode(rows)
    sides = [m.encoder(rows["input_ids"], rows["attention_mask"]) for m in folders]
    for found, *both in zip(
        model.encoder(rows["input_ids"], rows["attention_mask"]).hidden_states,
        *(s.hidden_states for s in sides),
        strict=True,
    ):
        torch.testing.assert_close(found, torch.cat(both, -1))
    last = torch.stack([sides[0].last_hidden_state[b, n - 1] for b, n in enumerate(LENGTHS)])
    ends = torch.cat([last, sides[1].last_hidden_state[:, 0]], -1)
    torch.testing.assert_close(out.pooled, torch.tanh(model.encoder.pooler(ends)))
    save_folder(tmp_path / "tuned", model, None, labels=["a", "b", "c"])
    again = load_model(tmp_path / "tuned")
    torch.testing.assert_close(again.encode(rows).pooled, out.pooled, rtol=0, atol=0)
    for wrong in (("left", "left"), ("right", "left")):
        with pytest.raises(InputError, match="an encoder pre-trained with objective = "):
            concatenate(*(tmp_path / name for name in wrong), tmp_path / "no")
    with pytest.raises(ValueError, match="cannot be pre-trained"):
        build_model(shape("pair"))


def _tokenizer(folder):
    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(VOCAB) + "\n")
    return Tokenizer.load(vocab, lowercase=True)


TOPS = [
    TopConfig(layers="second-to-last"),
    TopConfig(layers="weighted-sum"),
    TopConfig(layers="concat-last-2", bilstm_layers=2, bilstm_width=6),
    TopConfig(layers="embeddings", bilstm_layers=1, bilstm_width=5, cell="gru"),
    TopConfig(bilstm_layers=1, bilstm_width=6),
    TopConfig(pooler=False),
]


@pytest.mark.parametrize("top", TOPS, ids=lambda top: f"{top.layers}-{top.bilstm_layers}")
@pytest.mark.parametrize("direction", ["both", "left", "pair"])
@pytest.mark.parametrize("head", ["classifier", "tagger"])
def test_tops_are_saved_and_found_again(tmp_path, top, direction, head):
    model = shaken(build_model(shape(direction), (head,), labels=3, seed=1, top=top)).eval()
    rows, labels = batch(), ["a", "b", "c"]
    out = model.encode(rows)
    assert out.packed.shape[1] == model.top.width == out.pooled.shape[1] == model.heads[head].in_features
    save_folder(tmp_path / "model", model, None, labels=labels)
    again = load_model(tmp_path / "model")
    assert torch.equal(again.encode(rows).packed, out.packed) and torch.equal(again.encode(rows).pooled, out.pooled)
    same, fresh, _ = initial_model(tmp_path / "model", (head,), labels, seed=2, top=top)
    assert not fresh and torch.equal(same.heads[head].weight, model.heads[head].weight)
    _, fresh, unused = initial_model(tmp_path / "model", (head,), labels, seed=2, top=TopConfig(layers="0"))
    assert head in fresh and head in unused  # it read something else


@torch.no_grad()
def test_what_a_top_gives():
    rows = batch()
    pair = shaken(build_model(shape("pair"), ("classifier",), 2, seed=1, top=TopConfig(layers="0,embeddings"))).eval()
    out = pair.encode(rows)
    sides = [
        side(rows["input_ids"], rows["attention_mask"]).hidden_states
        for side in (pair.encoder.left, pair.encoder.right)
    ]
    for b, n in enumerate(LENGTHS):  # each side where it has read all
        expected = [half for i in (1, 0) for half in (sides[0][i][b, n - 1], sides[1][i][b, 0])]
        torch.testing.assert_close(out.pooled[b], torch.cat(expected))
    for direction, ends in (("both", [0, 0, 0, 0]), ("left", [8, 3, 0, 6])):
        model = build_model(shape(direction), ("classifier",), 2, seed=1, top=TopConfig(layers="0,embeddings")).eval()
        states = model.encoder(rows["input_ids"], rows["attention_mask"]).hidden_states
        out, both = model.encode(rows), torch.cat([states[1], states[0]], -1)
        torch.testing.assert_close(out.last_hidden_state, both)
        torch.testing.assert_close(out.pooled, both[torch.arange(4), torch.tensor(ends)])
    model = build_model(TINY, ("tagger",), 2, seed=1, top=TopConfig(bilstm_layers=1, bilstm_width=3)).eval()
    out = model.encode(rows)
    whole = out.last_hidden_state
    assert torch.equal(out.pooled[:, :3], torch.stack([whole[b, n - 1, :3] for b, n in enumerate(LENGTHS)]))
    assert torch.equal(out.pooled[:, 3:], whole[:, 0, 3:])


def test_a_frozen_encoder_is_left_as_it_is():
    model = build_model(TINY, ("tagger",), 3, seed=1, top=TopConfig(layers="concat-last-2", bilstm_layers=1)).train()
    model.freeze()
    rows = {**batch(), "labels": torch.randint(0, 3, (4, 9))}
    term = TaggingObjective()(model, rows, DropoutKey(1, 1))["task"]
    term.loss.backward()
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert moved == {"top", "heads"} and all(p.grad is None for p in model.encoder.parameters())
    assert not model.encoder.training and model.top.training and model.train().encoder.training is False
    plain = build_model(TINY, ("classifier",), 3, seed=1).train()
    assert not torch.equal(*(plain.encode(rows, DropoutKey(1, step)).packed for step in (1, 2)))
    plain.freeze()
    assert torch.equal(*(plain.encode(rows, DropoutKey(1, step)).packed for step in (1, 2)))  # no dropout in it
    ClassificationObjective()(plain, {**batch(), "labels": torch.tensor([0, 1, 2, 0])})["task"].loss.backward()
    assert {n for n, p in plain.named_parameters() if p.grad is not None} == {
        "encoder.pooler.weight", "encoder.pooler.bias", "heads.classifier.weight", "heads.classifier.bias"
    }  # fmt: skip


@pytest.mark.parametrize("direction", ["both", "pair"])
def test_layers_that_a_top_does_not_read_are_left(direction):
    """They get no gradient, so they must be no part of the optimizer, its state, or what processes exchange."""
    model = build_model(shape(direction), ("tagger",), 3, seed=1, top=TopConfig(layers="0")).train()
    model.freeze_unused_layers()
    TaggingObjective()(model, {**batch(), "labels": torch.ones(4, 9, dtype=torch.long)})["task"].loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == (".layers.1." not in name)


def test_what_other_software_pools_elsewhere_is_refused(tmp_path):
    save_folder(tmp_path / "model", build_model(shape("left"), ("classifier",), 2, seed=1), None)
    assert load_model(tmp_path / "model").config.direction == "left"
    settings = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(
        json.dumps(settings | {"model_type": "bert", "hidden_dropout_prob": 0.1})
    )
    for load in (load_model, lambda path: initial_model(path, ("classifier",), 2, seed=1)):
        with pytest.raises(InputError, match="is_decoder is set"):
            load(tmp_path / "model")


def test_folders_with_other_tokenizers_are_not_joined(tmp_path):
    for side, lower in (("left", True), ("right", False)):
        (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
        model = build_model(shape(side), ("mlm",), seed=1)
        save_folder(tmp_path / side, model, Tokenizer.load(tmp_path / "vocab.txt", lowercase=lower))
    with pytest.raises(InputError, match="different shapes or tokenizers"):
        concatenate(tmp_path / "left", tmp_path / "right", tmp_path / "pair")
    with pytest.raises(InputError, match="cannot fill masks"):
        Predictor(tmp_path / "left").fill_mask("a [MASK]")


def test_no_layers_at_all():
    model, rows = (
        build_model(dataclasses.replace(TINY, num_hidden_layers=0), ("classifier",), 2, seed=1).eval(),
        batch(),
    )
    out = model.encode(rows)
    embedded = model.encoder.embeddings(*out.layout.token_inputs(rows["input_ids"], None, 0), SiteDropout())
    torch.testing.assert_close(out.packed, embedded)
