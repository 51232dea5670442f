"""What came after BERT, as settings of its encoder: each against a plain computation or by its property, and with all
that an encoder does: padding, keyed dropout, attention weights, folders.
"""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.model.acceleration import compile_layers
from bertworks.model.attention import rotate, rotation
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.model.config import TopConfig
from bertworks.model.dropout import DropoutKey
from bertworks.model.fast.attention import BlockAttention
from bertworks.model.fast.backend import accelerated
from bertworks.model.forward import ForwardOptions
from bertworks.model.initialization import initialize
from bertworks.model.layout import Layout
from bertworks.training.optim import layers_from_top
from support.encoder_options import OPTIONS, TINY


def fresh(option: str | dict, **more) -> Encoder:
    changes = OPTIONS[option] if isinstance(option, str) else option
    encoder = accelerated(Encoder(dataclasses.replace(TINY, **{**changes, **more})))
    initialize(encoder, 0.3, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for p in encoder.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(p)))
    return encoder.eval()


def batch(B: int = 5, L: int = 14):
    ids = torch.randint(3, 50, (B, L), generator=torch.Generator().manual_seed(2))
    return ids, torch.arange(L) < (torch.arange(B)[:, None] * 2 + 5)


def close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


# ---- what holds for all of them


@pytest.mark.parametrize("option", OPTIONS)
@torch.no_grad()
def test_padding_changes_nothing(option):
    encoder, (ids, mask) = fresh(option), batch()
    whole = encoder(ids, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = encoder(ids[row : row + 1, :length])
        close(alone.last_hidden_state[0], whole.last_hidden_state[row, :length], 2e-5)  # values reach 3
        close(alone.pooled[0], whole.pooled[row], 2e-5)
    assert not whole.last_hidden_state[~mask].any()
    other = torch.where(mask, ids, 7)
    close(encoder(other, mask).last_hidden_state, whole.last_hidden_state, 0)


@pytest.mark.parametrize("option", OPTIONS)
def test_keyed_dropout_follows_the_row_and_the_key_alone(option):
    encoder, (ids, mask) = fresh(option).train(), batch()
    whole = encoder(ids, mask, dropout=DropoutKey(9, 4))
    torch.rand(17)
    assert torch.equal(encoder(ids, mask, dropout=DropoutKey(9, 4)).pooled, whole.pooled)
    for start, end in [(0, 2), (2, 5)]:
        part = encoder(ids[start:end], mask[start:end], dropout=DropoutKey(9, 4, row=start))
        close(part.pooled, whole.pooled[start:end])
        close(part.last_hidden_state, whole.last_hidden_state[start:end], 2e-5)
    assert not torch.allclose(encoder(ids, mask, dropout=DropoutKey(9, 5)).pooled, whole.pooled)
    encoder.eval()
    assert not torch.allclose(encoder(ids, mask, dropout=DropoutKey(9, 4)).pooled, whole.pooled)


COMPARATORS = {"right": {"direction": "right"}, "lstm": {"layer_type": "lstm"}, "gru": {"layer_type": "gru"}}


@pytest.mark.parametrize("option", [*OPTIONS, *COMPARATORS])
def test_folders_and_states_keep_them(option, tmp_path):
    config = dataclasses.replace(TINY, **(OPTIONS | COMPARATORS)[option])
    model = build_model(config, ("mlm", "sop"), seed=1)
    save_folder(tmp_path, model, None)
    back, settings = load_model(tmp_path), read_config(tmp_path)[1]
    assert back.config == config and [*back.state_dict()] == [*model.state_dict()]
    assert all(torch.equal(p, back.state_dict()[name]) for name, p in model.state_dict().items())
    transformers_too = option in ("rotary", "roberta", "albert", "distilbert", "untied", "modernbert")
    assert (settings["model_type"] != "bertworks") == transformers_too
    assert len(dict(model.named_parameters())) == len(model.state_dict())  # shared parameters exist once


@pytest.mark.parametrize("option", ["modern", "albert"])
@torch.no_grad()
def test_one_compiled_layer_serves_all(option):
    encoder, (ids, mask) = fresh(option), batch()
    plain = encoder(ids, mask).packed
    compile_layers(encoder, gradients=False)
    calls, run = [], encoder.backend.compiled
    encoder.backend.compiled = lambda *given: calls.append(given) or run(*given)
    with torch.compiler.set_stance("force_eager"):
        close(encoder(ids, mask).packed, plain)
    assert len(calls) == 4


def test_depth_and_top_with_shared_layers_and_a_last_norm():
    encoder, (ids, mask) = fresh("all"), batch()
    out, part = encoder(ids, mask), encoder(ids, mask, depth=2)
    assert part.pooled is None and torch.equal(part.packed, out.states[2])
    for option, held in [("pre", {"final_norm", "layers"}), ("shared", set())]:
        config = dataclasses.replace(TINY, **OPTIONS[option])
        model = build_model(config, ("classifier",), 2, seed=1, top=TopConfig("second-to-last"))
        model.freeze_unused_layers()
        given = model.encode({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2})
        model.heads["classifier"](given.pooled).sum().backward()
        still = {name.split(".")[1] for name, p in model.named_parameters() if not p.requires_grad}
        assert still == held
        assert all((p.grad is not None) == p.requires_grad for p in model.parameters())


# ---- rotary positions


@torch.no_grad()
def test_rotation_is_multiplication_of_complex_numbers():
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(0))
    found = rotate(x, rotation(torch.arange(9), 8, 10000.0))
    for position in range(9):
        for i in range(4):
            turn = torch.polar(torch.tensor(1.0), torch.tensor(position / 10000 ** (2 * i / 8)))
            expected = torch.complex(x[:, :, position, i], x[:, :, position, i + 4]) * turn
            close(found[:, :, position, i], expected.real)
            close(found[:, :, position, i + 4], expected.imag)


@torch.no_grad()
def test_rotary_positions_know_distances_and_order_alone():
    encoder, (ids, _) = fresh("rotary"), batch(1, 6)
    assert encoder.embeddings.position is None
    seen = torch.arange(12)[None] >= 6
    moved = torch.cat([torch.full_like(ids, 9), ids], 1)
    close(encoder(moved, seen).last_hidden_state[:, 6:], encoder(ids).last_hidden_state)
    turned = encoder(ids.flip(1)).last_hidden_state.flip(1)
    assert (turned - encoder(ids).last_hidden_state).abs().max() > 0.01
    other = fresh({"position_embedding_type": "rotary", "rope_theta": 10000.0})
    assert (other(ids).packed - encoder(ids).packed).abs().max() > 1e-3


# ---- pre-LayerNorm and GeGLU


def plain_layer(layer, x: torch.Tensor) -> torch.Tensor:
    """(L, D) through a pre-LayerNorm layer with a gate, one head at a time."""
    given = layer.attention_norm(x)
    q, k, v = (part(given).split(8, -1) for part in (layer.attention.query, layer.attention.key, layer.attention.value))
    heads = [torch.softmax(a @ b.T / 8**0.5, -1) @ c for a, b, c in zip(q, k, v, strict=True)]
    x = x + layer.attention.output(torch.cat(heads, -1))
    inner, output = layer.feed_forward.intermediate, layer.feed_forward.output
    wide = F.linear(layer.output_norm(x), inner.weight, inner.bias)
    return x + output(F.gelu(wide[:, :40]) * wide[:, 40:])


@torch.no_grad()
def test_pre_layer_norm_and_geglu_are_the_plain_computation():
    encoder, (ids, _) = fresh({"norm": "pre", "feed_forward": "geglu"}), batch(1)
    table = encoder.embeddings
    x = table.norm(table.word.weight[ids[0]] + table.position.weight[: ids.shape[1]] + table.token_type.weight[0])
    states = [x]
    for layer in encoder.layers:
        states.append(plain_layer(layer, states[-1]))
    out = encoder(ids)
    for found, expected in zip(out.states[:-1], states[:-1], strict=True):
        close(found, expected, 1e-4)
    close(out.packed, encoder.final_norm(states[-1]), 1e-4)
    assert torch.equal(out.states[-1], out.packed)


@torch.no_grad()
def test_the_pooler_reads_the_mean_of_real_tokens():
    encoder, (ids, mask) = fresh("mean"), batch()
    out = encoder(ids, mask)
    mean = torch.stack([row[:n].mean(0) for row, n in zip(out.last_hidden_state, mask.sum(1).tolist(), strict=True)])
    close(out.pooled, encoder.pooler(mean))


def test_without_biases_only_the_last_matrix_of_a_head_has_one():
    model = build_model(dataclasses.replace(TINY, **OPTIONS["modernbert"]), ("mlm", "classifier"), 3)
    biases = {name for name, _ in model.named_parameters() if name.endswith("bias")}
    assert biases == {"heads.mlm.bias", "heads.classifier.bias"}


# ---- local attention


def influence(encoder: Encoder, L: int = 12, at: int = 6) -> set[int]:
    """The tokens that notice another token at one place."""
    ids = torch.full((1, L), 5)
    other = ids.clone()
    other[0, at] = 6
    change = (encoder(ids).last_hidden_state - encoder(other).last_hidden_state).abs().amax(-1)[0]
    return {*change.nonzero().flatten().tolist()}


@torch.no_grad()
def test_a_window_is_what_a_local_layer_sees():
    """Every third layer sees all, beginning with the first; the others so many tokens on each side."""
    everything = set(range(12))
    window = {"attention_window": 2, "global_every": 3}
    assert influence(fresh(window, num_hidden_layers=1)) == everything
    encoder = fresh(window, num_hidden_layers=3)
    layout = Layout.of(None, 1, 12)
    computation = encoder.backend.make_plan(encoder, layout, ForwardOptions(), torch.device("cpu"))
    assert [attention.attention_mask is not None for attention in computation.layer_attentions] == [False, True, True]
    for layers, reach in [(1, 2), (2, 4)]:
        encoder = fresh({"attention_window": 2, "global_every": 1 << 30}, num_hidden_layers=layers + 1)
        encoder.layers[0].attention.output.weight.zero_()  # the first layer, which sees all, passes nothing on
        assert influence(encoder) == set(range(6 - reach, 6 + reach + 1))
    left = fresh({"attention_window": 2, "global_every": 1 << 30, "direction": "left"}, num_hidden_layers=2)
    left.layers[0].attention.output.weight.zero_()
    assert influence(left) == {6, 7, 8}
    assert influence(fresh({"attention_window": 11})) == everything


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize("length, window", [(517, 5), (576, 64), (600, 70)])
def test_local_attention_in_blocks_equals_the_mask(direction, length, window, monkeypatch):
    """Outputs and gradients, in training on a CPU and in evaluation, with padding and a last block that is not full."""
    change = {"attention_window": window, "direction": direction, "position_embedding_type": "rotary"}
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 1024}
    ids = torch.randint(3, 50, (3, length), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([length, length - 1, 7])  # the third has whole blocks of padding

    def run(mask, training):
        encoder = fresh(change, global_every=2, **plain).train(training)
        key = DropoutKey(1, 1) if training else None
        layout, options = Layout.of(mask, *ids.shape), ForwardOptions(key)
        attentions = encoder.backend.make_plan(encoder, layout, options, torch.device("cpu")).layer_attentions
        blocks = [isinstance(attention, BlockAttention) for attention in attentions]
        out = encoder(ids, mask, dropout=key)
        out.packed.pow(2).sum().backward()
        return out.last_hidden_state.detach(), [p.grad for p in encoder.parameters() if p.grad is not None], blocks

    for mask in (None, torch.arange(length) < lengths[:, None]):
        for training in (True, False):
            found, grads, blocks = run(mask, training)
            assert blocks == [False, True, False, True]
            with monkeypatch.context() as patch:
                patch.setattr("bertworks.model.fast.attention.MIN_BLOCK", length)
                expected, theirs, blocks = run(mask, training)
            assert not any(blocks)
            close(found, expected, 2e-5)
            for one, other in zip(grads, theirs, strict=True):
                close(one, other, 2e-4 * max(1.0, other.abs().max().item()))


def test_who_wants_every_weight_gets_no_blocks():
    """Attention weights, and keyed dropout of the weights, which belongs to pairs of tokens; a head mask needs none."""
    long = torch.randint(3, 50, (2, 520), generator=torch.Generator().manual_seed(2))
    encoder = fresh("modern", max_position_embeddings=1024)
    plain = encoder(long)
    close(encoder(long, attentions=True).packed, plain.packed, 2e-5)
    close(encoder(long, head_mask=torch.ones(4, 3)).packed, plain.packed, 2e-5)
    assert encoder(long, attentions=True).attentions[1].shape == (2, 3, 520, 520)
    encoder.train()
    key = DropoutKey(1, 1)
    part = encoder(long[:1], dropout=key)
    close(part.packed, encoder(long, dropout=key).packed[:520], 2e-5)


# ---- shared parameters


@torch.no_grad()
def test_shared_layers_equal_layers_with_equal_parameters():
    ids, mask = batch()
    shared = fresh({"shared_layers": "all"})
    plain = accelerated(Encoder(dataclasses.replace(shared.config, shared_layers="none")))
    state, own = plain.state_dict(), shared.state_dict()
    for name in state:
        state[name] = own[name] if name in own else own["layers.0." + name.split(".", 2)[2]]
    plain.load_state_dict(state)
    close(plain.eval()(ids, mask).packed, shared(ids, mask).packed, 0)
    assert sum(p.numel() for p in shared.parameters()) < sum(p.numel() for p in plain.parameters())


def test_the_layer_that_all_share_has_the_top_layers_rate():
    names = [f"encoder.{name}" for name, _ in fresh("albert").named_parameters()]
    below = layers_from_top(names)
    assert {below[name] for name in names if name.startswith("encoder.layers.")} == {0}
    assert {below[name] for name in names if name.startswith("encoder.embeddings.")} == {1}


# ---- what is refused

ROTARY = {"position_embedding_type": "rotary"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "none"}, "norm = 'none'; expected one of post, pre"),
        ({"position_embedding_type": "relative_key"}, "expected one of learned, sinusoidal, rotary"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1; expected a number from 0"),
        ({"global_every": 0}, "global_every = 0; expected a number from 1"),
        ({"hidden_size": 25}, "hidden_size = 25 is not divisible"),
        ({"position_offset": 20}, "position_offset = 20 leaves none of max_position_embeddings = 20"),
        ({"position_embedding_type": "rotary", "num_attention_heads": 8}, "heads of width 3"),
        ({"position_embedding_type": "rotary", "position_offset": 2}, "expected position_offset = 0"),
        ({"layer_type": "lstm", "norm": "pre"}, "layer_type = 'lstm' with norm = 'pre'; expected norm = 'post'"),
        ({"layer_type": "gru", "position_embedding_type": "rotary"}, "expected position_embedding_type = 'learned' or"),
        ({"layer_type": "gru", "hidden_size": 15, "num_attention_heads": 1}, "recurrent layers .* need an even one"),
        ({"local_rope_theta": 100.0}, "expected 0, or 1 or more with rotary positions and local layers"),
        (ROTARY | {"local_rope_theta": 9.0, "attention_window": 2, "global_every": 1}, "local_rope_theta = 9; exp"),
        (ROTARY | {"local_rope_theta": 0.5, "attention_window": 2}, "local_rope_theta = 0.5; expected 0, or 1 or"),
        ({"direction": "pair", "classifier_pooling": "mean"}, "expected classifier_pooling = 'cls'"),
    ],
)
def test_settings_that_do_not_go_together(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)


def test_an_offset_leaves_fewer_positions():
    with pytest.raises(ValueError, match="19 tokens, but the model has 18 positions"):
        fresh("offset")(torch.zeros(1, 19, dtype=torch.long))
    assert fresh("offset")(torch.zeros(1, 18, dtype=torch.long)).packed.isfinite().all()
