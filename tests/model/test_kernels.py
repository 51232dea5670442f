"""The compiled kernels compute what torch's operations do, with the same masks; training uses them where it can."""

import copy
import ctypes
import dataclasses
import pickle
import shutil
import stat
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from bertworks.model.attention import build_attention_mask, rotate, rotation
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.dropout import DropoutKey, HeadDropout, SiteDropout, rescale
from bertworks.model.fast import cpu
from bertworks.model.fast.attention import KeyedAttention
from bertworks.model.fast.cpu import has_kernels, kernel_plan, use_kernels
from bertworks.model.fast.kernels import build
from bertworks.model.fast.kernels import functions as K
from bertworks.model.forward import ForwardOptions
from bertworks.model.layout import Layout
from bertworks.training import precision
from bertworks.training.compute import wants_kernels
from bertworks.training.objectives import PretrainingObjective
from bertworks.workers.openmp import library
from support.batches import batch_of
from support.kernel_steps import AddNorm, Attention, Gelu, Linear

KERNELS = build.load()
NEEDED = pytest.mark.skipif(KERNELS is None, reason="needs Linux, gcc and AVX-512 with bfloat16")
ACTIVATIONS = [F.gelu, partial(F.gelu, approximate="tanh")]
KEY = DropoutKey(seed=7, step=3, row=5)
SHAPE = ModelConfig(103, 64, 3, 4, 96, max_position_embeddings=64)


@pytest.fixture(scope="module", params=["this processor", "without tiles"])
def kernels(request, tmp_path_factory):
    """The library as it is used, and one whose products do without AMX."""
    if KERNELS is None:
        pytest.skip("needs Linux, gcc and AVX-512 with bfloat16")
    if request.param == "this processor":
        assert KERNELS.multiplies(32) == (precision.processor_kind() != "AMX")
        return KERNELS
    folder, gcc = tmp_path_factory.mktemp("kernels"), shutil.which("gcc")
    flags = (*build.FLAGS, "-mno-amx-tile", "-mno-amx-bf16", "-mno-amx-int8")
    plain = build.opened(build.compiled(folder / "plain.so", gcc, library(), flags))
    plain.has_linear = "linear" in plain._functions  # on AMX too
    assert plain.multiplies(32)
    return plain


def drawn(rate: float, elements: int) -> K.Dropout:
    return K.Dropout.of(KEY, 4, rate, elements)


def mask_of(B: int, L: int, padding: str) -> torch.Tensor:
    place, cut = torch.arange(L).expand(B, -1), 3 * torch.arange(B)[:, None]
    if padding == "scattered":
        return (torch.rand(B, L, generator=torch.Generator().manual_seed(1)) > 0.3) | (place == 1)
    return {"none": place >= 0, "right": place < (L - cut).clamp(min=1), "left": place >= 2 * cut}[padding]


def alike(found: torch.Tensor, expected: torch.Tensor, within: float = 0.01) -> None:
    """Whether the largest difference is a small part of the largest number: bfloat16 has three digits."""
    assert found.shape == expected.shape
    assert (found.float() - expected).abs().max() <= within * expected.abs().max()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


# ---- one by one


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("padding", ["none", "right"])
def test_add_norm(kernels, rate, padding):
    B, L, D = 40, 32, 48
    packing = Layout.of(mask_of(B, L, padding), B, L)
    rows = K.Rows.of(packing)
    T = len(rows)
    x, update, gain, bias = torch.randn(T, D), torch.randn(T, D).bfloat16(), torch.rand(D) + 0.5, torch.randn(D)
    mask = KEY.packed_mask(4, rate, packing, D).float() if rate else torch.ones(T, D)
    given = [one.requires_grad_() for one in (x, update, gain, bias)]
    out, out16 = AddNorm.apply(kernels, rows, drawn(rate, L * D), *given)
    plain = [one.detach().float().requires_grad_() for one in given]
    expected = F.layer_norm(plain[0] + plain[1] * mask * rescale(rate), (D,), plain[2], plain[3], 1e-12)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(out16, out.bfloat16())
    for used in ((True, False), (False, True), (True, True)):
        grads = torch.randn(T, D), torch.randn(T, D).bfloat16()
        asked = [(one, grad) for one, grad, is_used in zip((out, out16), grads, used, strict=True) if is_used]
        outputs, grads = zip(*asked, strict=True)
        found = torch.autograd.grad(outputs, given, grads, retain_graph=True)
        grad = sum(one.float() for one in grads)
        wanted = torch.autograd.grad(expected, plain, grad, retain_graph=True)
        assert [one.dtype for one in found] == [one.dtype for one in given]
        for one, other in zip(found, wanted, strict=True):
            alike(one, other)
        assert ((found[1] != 0) == (mask > 0)).all()


@pytest.mark.parametrize("width", [48, 96])
@pytest.mark.parametrize("tanh", [False, True])
def test_feed_forward(kernels, tanh, width):
    gelu = ACTIVATIONS[tanh]
    layers = torch.nn.Linear(32, width), torch.nn.Linear(width, 32)
    parameters = [p for layer in layers for p in layer.parameters()]
    x = torch.randn(130, 32).bfloat16().requires_grad_()
    inner, outer, sums = parameters[:2], parameters[2:], []
    found = Linear.apply(kernels, Gelu.apply(kernels, Linear.apply(kernels, x, *inner), tanh, sums), *outer)
    expected = layers[1](gelu(layers[0](x.float())))
    alike(found, expected)
    grad = torch.randn(130, 32).bfloat16()
    ours = torch.autograd.grad(found, [x, *parameters], grad)
    for one, other in zip(ours, torch.autograd.grad(expected, [x, *parameters], grad.float()), strict=True):
        alike(one, other)
    alike(sums[0], ours[2])  # the grad of the inner bias


def exact(T: int, widths: list[int], K_: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """An input and parameters that bfloat16 holds exactly, so that only sums round."""
    parameters = [torch.randn(n, K_).bfloat16().float() for n in widths] + [torch.randn(n) for n in widths]
    return torch.randn(T, K_).bfloat16(), parameters


@pytest.mark.parametrize("T", [1, 8, 31, 130, 512, 1100])
@pytest.mark.parametrize(
    ("widths", "K_"), [([64, 64, 64], 32), ([96], 64), ([32], 160), ([48], 32), ([32, 32], 48), ([48, 48], 64)]
)
def test_linear_layers_side_by_side(kernels, T, widths, K_):
    x, parameters = exact(T, widths, K_)
    given = [one.requires_grad_() for one in (x, *parameters)]
    found, plain = Linear.apply(kernels, x, *parameters), x.detach().double().requires_grad_()
    weight, bias = (torch.cat(parts).double() for parts in (parameters[: len(widths)], parameters[len(widths) :]))
    expected = F.linear(plain, weight, bias)
    alike(found, expected, 0.004)
    grad = torch.randn(found.shape).bfloat16()
    ours = torch.autograd.grad(found, given, grad)
    theirs = torch.autograd.grad(expected, [plain, *parameters], grad.double())
    assert [one.dtype for one in ours] == [one.dtype for one in given]
    own = kernels.multiplies(*widths, K_)
    for one, other, within in zip(ours, theirs, [0.004] + [1e-5 if own else 0.004] * len(parameters), strict=True):
        alike(one, other, within)


@pytest.mark.parametrize(("N", "K_"), [(96, 160), (160, 96)])
def test_linear_layers_are_the_same_with_any_number_of_threads(kernels, N, K_):
    if not kernels.multiplies(32):
        pytest.skip("oneDNN multiplies on this processor")
    x, (weight, bias) = exact(1003, [N], K_)
    grad, threads, results = torch.randn(1003, N).bfloat16(), torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 16):
            torch.set_num_threads(count)
            y, kept = kernels.linear(x, [weight], [bias])
            results.append((y, kernels.grad_input(grad, kept), *kernels.grad_weights(grad, x)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


@pytest.mark.parametrize("tanh", [False, True])
def test_gelu_of_every_number(kernels, tanh):
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).view(-1, 32)
    finite, plain = x.float().abs() < 1e12, x.float().requires_grad_()
    found, expected = kernels.gelu(x, tanh), ACTIVATIONS[tanh](plain)
    torch.testing.assert_close(found[finite].float(), expected[finite], rtol=1e-2, atol=2e-6)
    assert found[x.isnan()].isnan().all()
    grad = torch.ones_like(x)
    kernels.gelu_backward(x, grad, tanh)
    (wanted,) = torch.autograd.grad(expected.sum(), plain)
    torch.testing.assert_close(grad[finite].float(), wanted[finite], rtol=1e-2, atol=2e-6)


@pytest.mark.parametrize("V", [1, 16, 31, 1000])
def test_cross_entropy(kernels, V):
    wide, bias, labels = (3 * torch.randn(37, V + 3)).bfloat16(), torch.randn(V), torch.randint(0, V, (37,))
    scores = wide[:, :V]
    wide[:, V:] = float("nan")
    labels[[2, 36]] = -100
    plain = scores.float().requires_grad_()
    expected = F.cross_entropy(plain + bias, labels, ignore_index=-100, reduction="none")
    (grad,) = torch.autograd.grad(expected.sum(), plain)
    losses, sums = kernels.cross_entropy(scores, bias, labels)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores.float(), grad, rtol=1e-2, atol=2e-6)
    torch.testing.assert_close(sums, grad.sum(0), rtol=1e-4, atol=1e-4)
    assert not wide[:, V:].any()


def test_large_scores_do_not_overflow(kernels):
    scores = (torch.randn(5, 100) + 500).bfloat16()
    expected = F.cross_entropy(scores.float(), torch.arange(5), reduction="none")
    losses, _ = kernels.cross_entropy(scores, torch.zeros(100), torch.arange(5))
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    rows, shape = K.Rows.of(Layout.of(None, 1, 64)), K.AttentionShape.of(1, 32, "both", None)
    qkv = torch.full((64, 96), 10.0).bfloat16()  # scores of 566
    context, log_sums, _ = kernels.attention([qkv], rows, rows, shape, K.Dropout(scale=1.0))
    assert (context == 10).all()
    expected = torch.logsumexp(torch.full((64,), 3200 / 32**0.5), 0).expand(1, 1, 64)
    torch.testing.assert_close(log_sums, expected, rtol=1e-5, atol=0)


def test_a_label_outside_the_vocabulary_is_refused(kernels):
    with pytest.raises(IndexError, match="label 40; expected at most 39"):
        kernels.cross_entropy(torch.randn(2, 40).bfloat16(), torch.zeros(40), torch.tensor([3, 40]))


@pytest.mark.parametrize("sick", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_seen_in_the_loss(kernels, sick):
    scores = torch.randn(3, 40).bfloat16()
    scores[1, 7] = sick
    losses, _ = kernels.cross_entropy(scores, torch.zeros(40), torch.tensor([0, 1, 2]))
    assert losses.isfinite().tolist() == [True, False, True]


def test_the_norm_of_gradients(kernels):
    tensors = [torch.randn(shape) for shape in ((1,), (), (70, 1000), (0,), (131072,), (65537,))]
    wanted = torch.cat([one.double().flatten() for one in tensors]).norm()
    found = kernels.norm(tensors)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    again = kernels.norm(tensors)
    torch.set_num_threads(threads)
    assert torch.equal(again, found)
    for sick in (float("nan"), float("inf")):
        tensors[2][3, 5] = sick
        assert not kernels.norm(tensors).isfinite()


@pytest.mark.parametrize("padding", ["none", "right"])
def test_dropout_by_itself(kernels, padding):
    B, L, D = 40, 32, 48
    packing = Layout.of(mask_of(B, L, padding), B, L)
    rows, dropout = K.Rows.of(packing), K.Dropout.of(KEY, 0, 0.1, L * D)
    x = torch.randn(len(rows), D, requires_grad=True)
    ours, theirs = cpu._Drop.apply(x, rows, dropout, kernels), HeadDropout(0.1, site=0)(x, KEY, packing)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    grad = torch.randn_like(x)
    found, expected = (torch.autograd.grad(out, x, grad)[0] for out in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


CASES = [  # B, L, N, H, rate, the last layer, padding
    (3, 17, 2, 8, 0.1, False, "right"),
    (4, 128, 4, 64, 0.1, False, "right"),
    (4, 128, 4, 64, 0.0, True, "right"),
    (2, 96, 3, 32, 0.25, True, "scattered"),
    (1, 200, 2, 64, 0.1, False, "none"),
    (5, 33, 12, 32, 0.1, True, "left"),
    (2, 520, 1, 40, 0.1, False, "right"),
]


@pytest.fixture
def nothing_is_zero(monkeypatch):
    """New memory holds what is not a number, so whoever reads what nobody wrote is found."""

    def filled(make):
        def made(*args, **how):
            x = make(*args, **how)
            return x.fill_(float("nan") if x.is_floating_point() else -1)

        return made

    monkeypatch.setattr(torch, "empty", filled(torch.empty))
    monkeypatch.setattr(torch, "empty_like", filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))


@pytest.mark.usefixtures("nothing_is_zero")
@pytest.mark.parametrize("kind", ["plain", "rotary", "left", "right"])
@pytest.mark.parametrize(("B", "L", "N", "H", "rate", "last", "padding"), CASES)
def test_attention(kernels, B, L, N, H, rate, last, padding, kind):
    D, mask = N * H, mask_of(B, L, padding)
    packing = Layout.of(mask, B, L)
    rows, rotations = K.Rows.of(packing), rotation(torch.arange(L), H, 10000.0) if kind == "rotary" else None
    side = kind if kind in ("left", "right") else "both"
    shape = K.AttentionShape.of(N, D, side, rotations)
    # with padding that has rows of its own: an encoder fills its last rows up with it
    cells = torch.arange(B * L) if packing.index is None else mask.flatten().nonzero().squeeze(1)
    cells = cells[::3][cells[::3] // L != 1] if last else None  # of the second sequence nothing is returned
    returned = rows if cells is None else K.Rows.of(packing.at(cells))
    qkv = torch.randn(len(rows), 3 * D).bfloat16().requires_grad_()
    parts = [qkv] if cells is None else [packing.take(qkv[:, :D], cells), qkv[:, D:].contiguous()]
    found = Attention.apply(kernels, rows, returned, shape, drawn(rate, N * L * L), *parts)
    plain = qkv.detach().float().requires_grad_()
    q, k, v = packing.unpack(plain).view(B, L, 3, N, H).permute(2, 0, 3, 1, 4)
    if rotations is not None:
        q, k = rotate(q, rotations), rotate(k, rotations)
    dropped = KEY.mask(4, rate, (B, N, L, L)).float() if rate else None
    visible = build_attention_mask(packing, side, torch.device("cpu"))
    context = KeyedAttention(packing, N, visible, None).context(q, k, v, visible, SiteDropout(rate, dropped))
    expected = packing.pack(context.transpose(1, 2).reshape(B * L, D), cells)
    real = mask.flatten() if returned.positions is None else mask.flatten()[returned.positions]
    alike(found[real], expected[real], 0.015)  # rotated operands are rounded once more
    assert not found[~real].any()  # rows that fill up the last step of packing
    grad = torch.randn(found.shape).bfloat16() * real[:, None]
    (ours,), (theirs,) = torch.autograd.grad(found, qkv, grad), torch.autograd.grad(expected, plain, grad.float())
    alike(ours, theirs, 0.015)
    assert F.cosine_similarity(ours.float().flatten(), theirs.flatten(), dim=0) > 0.9999


def test_denormal_numbers_stay_exact_elsewhere(kernels):
    """The kernels flush them to 0, in every thread of torch; what runs in those threads afterwards must not."""
    tiny = torch.full((4, 1 << 16), 1e-39)
    rows, shape = K.Rows.of(Layout.of(None, 4, 32)), K.AttentionShape.of(1, 32, "both", None)
    qkv = torch.randn(128, 96).bfloat16().requires_grad_()
    Attention.apply(kernels, rows, rows, shape, K.Dropout(scale=1.0), qkv).sum().backward()
    kernels.gelu_backward(torch.randn(64, 32).bfloat16(), kernels.gelu(torch.randn(64, 32).bfloat16(), False), False)
    kernels.cross_entropy(torch.randn(64, 40).bfloat16(), torch.zeros(40), torch.zeros(64, dtype=torch.int64))
    assert ((tiny * 0.5) > 0).all()


# ---- a layer


def built(shape):
    """A model whose gains differ, as they do once it is trained."""
    model = build_model(shape, seed=1)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
    return model


def one_layer(kernels, last):
    """A layer, its input, and its output for a batch with padding: all rows, or three for the `last` layer."""
    encoder, mask = built(dataclasses.replace(SHAPE, num_hidden_layers=1)).encoder, mask_of(4, 20, "right")
    options = ForwardOptions(KEY, hidden_states=False, output_positions=torch.tensor([0, 7, 41]) if last else None)
    x = torch.randn(kernel_plan(encoder, Layout.of(mask, 4, 20), options, kernels).layout.T, SHAPE.hidden_size)

    def run():
        plan = kernel_plan(encoder, Layout.of(mask, 4, 20), options, kernels)
        return plan.run_layer(encoder.layers[0], x, plan.layer_attentions[0], plan.dropout.layers[0])

    return dict(encoder.layers[0].named_parameters()), x, run


PROJECTIONS = tuple(f"attention.{name}" for name in ("query", "key", "value", "output"))
MODULES = (*PROJECTIONS, "attention_norm", "feed_forward.intermediate", "feed_forward.output", "output_norm")
TRAINED = {"nothing": (), "input": ("x",), "a bias": ("x", "feed_forward.output.bias"), "all parameters": MODULES}
TRAINED |= {name: (f"{name}.",) for name in MODULES}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("trained", TRAINED)
def test_gradients_that_are_not_needed(kernels, trained, last):
    parameters, x, run = one_layer(kernels, last)
    given = {**parameters, "x": x}
    for one in given.values():
        one.requires_grad = True
    out = run()
    grad = torch.randn_like(out)
    expected = dict(zip(given, torch.autograd.grad(out, [*given.values()], grad, retain_graph=True), strict=True))
    again = torch.autograd.grad(out, [*given.values()], grad)  # a second time, from the same graph
    assert all(torch.equal(*pair) for pair in zip(expected.values(), again, strict=True))
    for name, one in given.items():
        one.requires_grad = name.startswith(TRAINED[trained])
    out = run()
    assert out.requires_grad == (trained != "nothing")
    if out.requires_grad:
        out.backward(grad)
    for name, one in given.items():
        assert (one.grad is not None) == name.startswith(TRAINED[trained]), name
        assert one.grad is None or torch.equal(one.grad, expected[name]), name


def test_a_layer_is_computed_again_for_its_gradients(kernels):
    """As checkpointing of activations does, which unpacks what is saved once."""
    _, x, run = one_layer(kernels, False)
    x.requires_grad = True
    (plain,) = torch.autograd.grad(run().sum(), x)
    (again,) = torch.autograd.grad(torch.utils.checkpoint.checkpoint(run, use_reentrant=False).sum(), x)
    assert torch.equal(plain, again)


def test_gradients_of_gradients_are_refused(kernels):
    _, x, run = one_layer(kernels, False)
    x.requires_grad = True
    (grad,) = torch.autograd.grad(run().square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("last", [False, True])
def test_parameters_that_are_changed_before_the_way_back_are_refused(kernels, last):
    parameters, _, run = one_layer(kernels, last)
    assert len(parameters) == 16
    for one in parameters.values():
        out = run()
        with torch.no_grad():
            one += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


# ---- the model


def losses_and_gradients(model, used, rate, precision=torch.bfloat16):
    """Of a batch with padding, without or with kernels."""
    model = copy.deepcopy(model).train()
    if used is not None:
        use_kernels(model, used)
    batch = batch_of([64, 40, 9, 1] * 8)
    with torch.autocast("cpu", precision, enabled=precision is torch.bfloat16):
        terms = PretrainingObjective()(model, batch, KEY)
        loss = sum(term.loss for term in terms.values())
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters()}


@NEEDED
@pytest.mark.parametrize("products", ["of this processor", "of oneDNN"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        {"embedding_size": 16, "shared_layers": "all"},
        {"tie_word_embeddings": False},
        {"shared_layers": "all", "num_attention_heads": 16},
        {"type_vocab_size": 0, "num_hidden_layers": 1, "layer_norm_eps": 0.1},
        {"hidden_act": "gelu_new", "direction": "left"},
        {"position_embedding_type": "rotary", "direction": "right"},
        {"position_embedding_type": "rotary"},
    ],
    ids=str,
)
def test_the_model_with_kernels_is_as_near_to_float32_as_without(more, products, monkeypatch):
    if products == "of oneDNN":  # as on AMX
        monkeypatch.setattr(KERNELS, "has_linear", False)
    shape = ModelConfig(**{**vars(SHAPE), **more})
    model = built(shape)
    exact, without, with_kernels = (
        losses_and_gradients(model, *given) for given in (
            (None, shape, torch.float32), (None, shape), (KERNELS, shape),
        )
    )  # fmt: skip
    assert not torch.equal(without[0], with_kernels[0])  # another rounding: the kernels were used
    torch.testing.assert_close(with_kernels[0], exact[0], rtol=2e-3, atol=0)
    for name, gradient in exact[1].items():
        if gradient.norm() < 1e-4 * max(g.norm() for g in exact[1].values()):
            continue  # of keys' biases, say, which is nothing but rounding
        near, far = ((side[1][name] - gradient).norm() / gradient.norm() for side in (with_kernels, without))
        assert near < max(1.5 * far, 0.005), name


def rows_of_layers(model, batch, monkeypatch, run):
    """How many rows each layer of `run(model, batch)` computes, by its kernels or without them."""
    rows, plain = [], type(KERNELS).gelu
    monkeypatch.setattr(type(KERNELS), "gelu", lambda self, x, tanh: rows.append(len(x)) or plain(self, x, tanh))
    model.encoder.layers[0].feed_forward.intermediate.register_forward_pre_hook(
        lambda _, given: rows.append(len(given[0]))
    )
    with torch.autocast("cpu", torch.bfloat16):
        run(model, batch)
    monkeypatch.undo()
    return rows


@NEEDED
def test_layers_leave_out_the_padding_that_nobody_reads(monkeypatch):
    """Where oneDNN does not multiply, any number of rows is as good as another; elsewhere few numbers are better."""
    model, batch = build_model(SHAPE, seed=1).train(), batch_of([64, 40, 9, 1] * 8)
    use_kernels(model, KERNELS)
    few = 912 if KERNELS.multiplies(32) else 960
    assert batch["attention_mask"].sum() == 912

    def trained(model, batch):
        PretrainingObjective()(model, batch, KEY)

    assert rows_of_layers(model, batch, monkeypatch, trained)[:2] == [few, few]
    every = rows_of_layers(model, batch, monkeypatch, lambda model, batch: model.encode(batch, KEY))
    assert every == [960] * 3  # its reader, a tagger's head, say, may multiply by oneDNN
    with torch.no_grad():
        assert rows_of_layers(model, batch, monkeypatch, trained)[0] == 960
    shape = ModelConfig(**{**vars(SHAPE), "embedding_size": 32})  # whose projection is a product of oneDNN
    model = build_model(shape, seed=1).train()
    use_kernels(model, KERNELS)
    assert rows_of_layers(model, batch, monkeypatch, trained)[:2] == [960, 960]


@NEEDED
@pytest.mark.parametrize("padding", ["left", "right", "scattered"])
def test_padding_that_is_left_out_changes_nothing(monkeypatch, padding):
    model, mask, sides = build_model(SHAPE, ("mlm",), seed=1).train(), mask_of(9, 60, padding), []
    use_kernels(model, KERNELS, alone=False)
    cells = mask.flatten().nonzero().squeeze(1)
    cells = cells[torch.randperm(len(cells))[:50]].sort().values
    grad = torch.randn(50, SHAPE.hidden_size)
    for trimmed in (cpu.trimmed, lambda encoder, layout, kernels: layout):
        monkeypatch.setattr(cpu, "trimmed", trimmed)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model.encoder(torch.arange(540).view(9, 60) % 100, mask, dropout=KEY, output_positions=cells,
                                hidden_states=False)  # fmt: skip
        found = out.packed[out.layout.rows(cells)]
        (found * grad).sum().backward()
        sides.append([found.detach(), *(p.grad for p in model.encoder.parameters() if p.grad is not None)])
    for one, other in zip(*sides, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


@NEEDED
def test_models_of_other_kinds_do_without():
    others = {"norm": "pre"}, {"hidden_act": "relu"}, {"attention_window": 4}, {"hidden_size": 40}, {"bias": False}
    others += ({"feed_forward": "geglu"}, {"attention_probs_dropout_prob": 0.001})
    for other in others:
        shape = ModelConfig(**{**vars(SHAPE), **other})
        assert not has_kernels(shape)
        model = build_model(shape, heads=(), seed=1)
        use_kernels(model, KERNELS)
        assert model.encoder.backend.kernels is None
    assert has_kernels(SHAPE)


@NEEDED
def test_only_training_in_bfloat16_uses_them(monkeypatch):
    model, batch = build_model(SHAPE, seed=1), batch_of([20, 30])
    use_kernels(model, KERNELS)
    monkeypatch.setattr(type(KERNELS), "attention", lambda *given: pytest.fail("a kernel was called"))
    given = batch["input_ids"], batch["attention_mask"]
    model.train().encoder(*given, dropout=KEY)  # float32
    with torch.autocast("cpu", torch.bfloat16):
        model.encoder(*given)  # torch's own dropout
        with torch.no_grad():
            model.encoder(*given, dropout=KEY)
        model.eval().encoder(*given, dropout=KEY)
        model.train().encoder(*given, dropout=KEY, attentions=True)
        with pytest.raises(pytest.fail.Exception):
            model.encoder(*given, dropout=KEY)


@NEEDED
def test_models_with_kernels_are_copied_and_pickled():
    model = build_model(SHAPE, seed=1)
    use_kernels(model, KERNELS)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.kernels is KERNELS and other.encoder.backend.kernels is KERNELS


# ---- compiling


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A machine that has compiled nothing yet, and compiles without optimising, which is faster."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(build.compiled, "__defaults__", (("-O0", *build.FLAGS[1:]),))
    return tmp_path / "cache" / "bertworks"


load = build.load.__wrapped__  # without the memory of this process


def test_machines_with_a_compiler_have_them():
    usable = sys.platform == "linux" and shutil.which("gcc") and precision.processor_kind() in ("AMX", "AVX-512 bf16")
    assert (build.load() is not None) == bool(usable)


@NEEDED
def test_they_are_compiled_once(fresh):
    assert load() is not None
    (library,) = fresh.iterdir()
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
    written = library.stat().st_mtime_ns
    assert load() is not None and library.stat().st_mtime_ns == written


@NEEDED
def test_they_have_the_same_name_wherever_torch_is(fresh, tmp_path):
    """A resumed run compares names: in another environment it rounds as before."""
    openmp = library()
    moved = shutil.copy(openmp, tmp_path)
    names = [build._load(shutil.which("gcc"), path).name for path in (openmp, moved)]
    assert names[0] == names[1] == build.load().name and len(list(fresh.iterdir())) == 2


@NEEDED
def test_without_a_cache_they_are_compiled_for_this_process(fresh):
    fresh.parent.mkdir(parents=True)
    fresh.write_bytes(b"")  # a file in place of the folder
    assert load() is not None


@NEEDED
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_library_that_others_could_have_written_is_not_loaded(fresh, mode, monkeypatch):
    assert load() is not None
    (library,) = fresh.iterdir()
    opened = []
    monkeypatch.setattr(build.ctypes, "CDLL", lambda path: opened.append(path) or pytest.fail("loaded"))
    fresh.chmod(mode)
    with pytest.raises(OSError, match="others may write it"):
        build.opened(library)
    fresh.chmod(0o700)
    library.chmod(mode)
    with pytest.raises(OSError, match="others may write it"):
        build.opened(library)
    library.chmod(0o700)
    monkeypatch.setattr(build.os, "getuid", lambda: library.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user"):
        build.opened(library)
    assert not opened


@pytest.mark.parametrize("compiler", ["none", "other source"])
def test_without_a_working_compiler_there_are_none(fresh, monkeypatch, tmp_path, compiler):
    if compiler == "none":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        source = tmp_path / "rows.c"
        source.write_text("#error not for this processor\n")
        monkeypatch.setattr(build, "SOURCES", [source])
    assert load() is None
    assert not fresh.exists() or not [*fresh.iterdir()]


@NEEDED
def test_the_threads_are_those_of_torch():
    import sklearn.metrics  # noqa: F401, with another library of threads

    assert "/torch" in library()


@pytest.mark.parametrize(
    ("wanted", "dtype", "used"),
    [("auto", torch.bfloat16, True), ("auto", torch.float32, False), ("eager", torch.bfloat16, False),
     ("reference", torch.bfloat16, False)],
)  # fmt: skip
def test_recipes_choose(wanted, dtype, used):
    can = precision.compute_dtype("auto", torch.device("cpu")) is torch.bfloat16
    assert wants_kernels(wanted, torch.device("cpu"), dtype) == (used and can)
    assert not wants_kernels(wanted, torch.device("cuda"), dtype)


def test_the_structure_is_that_of_the_header():
    header = (Path(K.__file__).parent / "kernels.h").read_text()
    fields = header[header.index("typedef struct {") : header.index("} Dropout;")]
    order = [name for name, _ in K.Dropout._fields_]
    assert sorted(order, key=fields.index) == order
    assert ctypes.sizeof(K.Dropout) == 48


@pytest.mark.parametrize(("name", "file", "value"), [("ROWS", "products.h", K.ROWS), ("DEPTH", "products.h", K.WIDE)])
def test_sizes_are_those_of_the_header(name, file, value):
    assert f"#define {name} {value} " in (Path(K.__file__).parent / file).read_text()
