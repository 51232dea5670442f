"""What torch.compile makes of the layer. For every kind of input it makes a graph, and after eight of one function it
gives up without a word: then a run is as slow as without it. Here it raises, and the graphs run without a compiler.
"""

import dataclasses
from functools import partial

import pytest
import torch
import torch._dynamo

from bertworks.config import RECIPES, load_recipe
from bertworks.model.acceleration import compile_layers
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.fast.backend import GRAPHS, accelerated
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.training import distributed
from bertworks.training.objectives import PRETRAINING
from bertworks.training.task_objectives import ClassificationObjective
from support.batches import batch_of
from support.loops import loop_of
from support.processes import together

CELLS = 1024  # of a batch
BUDGET = 6  # graphs of an encoder in its whole life, far below the limit


def recording(made, **options):
    """torch.compile as it is now, which keeps the graphs in `made`, and runs them without a compiler."""

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    return partial(torch.compile, backend=backend, **options)


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are made; one beyond torch's limit raises, and so does a layer that takes more than one."""
    made = []
    monkeypatch.setattr(torch, "compile", recording(made, fullgraph=True))
    torch._dynamo.reset()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield made
    torch._dynamo.reset()


def small(model: ModelConfig) -> ModelConfig:
    """The same kind of model, with few and narrow layers."""
    layers = 4 if model.attention_window else 2  # of these every third one sees every token
    narrow = {"embedding_size": 8} if model.embedding_size else {}
    return dataclasses.replace(
        model, vocab_size=100, hidden_size=16, num_attention_heads=2, intermediate_size=32, num_hidden_layers=layers,
        **narrow,
    )  # fmt: skip


def batches(L, cells=CELLS):
    """Batches of this length with other numbers of tokens, then one with hardly any padding and one with none."""
    B = max(2, cells // L)
    for part in (4, 5, 7):
        yield batch_of([L - L * (row % 4) // part for row in range(B)], L)
    yield batch_of([L - 1] + [L] * (B - 1), L)
    yield batch_of([L] * B, L)


def train(model, objective, lengths):
    """Updates of each length as on a GPU, where torch draws the dropout; an evaluation after each length."""
    for L in lengths:
        for batch in batches(L):
            model.train()
            with torch.autocast("cpu", torch.bfloat16):
                terms = objective(model, objective.prepare(batch))
            sum(term.loss for term in terms.values()).backward()
        model.eval()
        with torch.no_grad():
            objective(model, batch)


@pytest.mark.heavy
@pytest.mark.parametrize("path", sorted((RECIPES / "pretrain").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_stays_within_the_budget(graphs, path):
    config = load_recipe(path, PretrainConfig)
    # blocks of local attention come with long sequences only
    lengths = [phase.length if config.model.attention_window else phase.length // 4 for phase in config.phases]
    model = build_model(small(config.model), config.heads, seed=1)
    compile_layers(model.encoder)
    train(model, PRETRAINING[config.objective], lengths)
    assert 0 < len(graphs) <= BUDGET


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("recipe", "rows", "lengths", "least", "most"),
    [
        ("base", 16, range(16, 144, 16), 1, BUDGET),
        ("modern", 8, (16, 24, 64, 128, 136, 256, 448, 512), 9, GRAPHS),
    ],
)
def test_fine_tuning_on_batches_of_many_lengths_stays_within_its_limit(graphs, recipe, rows, lengths, least, most):
    """Local layers have masks in long batches, none in short ones, and blocks in very long ones."""
    config = small(load_recipe(RECIPES / "pretrain" / f"{recipe}.toml", PretrainConfig).model)
    model = build_model(config, ("classifier",), 2, seed=1)
    compile_layers(model.encoder)
    for L in lengths:
        model.train()
        for longest in (L, L - 8):
            batch = batch_of([longest - row % 4 for row in range(rows)], L) | {"labels": torch.arange(rows) % 2}
            ClassificationObjective()(model, batch)["task"].loss.backward()
    assert least <= len(graphs) <= most


@pytest.mark.heavy
def test_evaluation_runs_the_layer_as_it_is_written(graphs):
    """So that a score is that of the model which is kept, and needs no graphs of its own."""
    model = build_model(small(ModelConfig()), ("mlm",), seed=1).eval()
    batch = batch_of([64, 20, 9, 33], 64)
    with torch.no_grad():
        plain = model.encode(batch).packed
        compile_layers(model.encoder)
        assert torch.equal(model.encode(batch).packed, plain) and not graphs
    model.encode(batch)
    assert len(graphs) == 1


def train_compiled(rank, folder):
    """Three updates on two processes of a model whose layer is larger than the first bucket of gradients."""
    made = []
    torch.compile = recording(made)
    shape = dataclasses.replace(small(ModelConfig()), hidden_size=256, intermediate_size=1024, num_hidden_layers=2)
    with distributed.joined_world() as world:
        model = build_model(shape, seed=1)
        compile_layers(model.encoder)
        loop = loop_of(model, [batch_of([64, 20, 9, 33], 64)], folder / str(rank), steps=3, world=world)
        loop.trainer._dropout_key = lambda row: None
        assert loop.train()
    return len(made)


@pytest.mark.heavy
def test_a_compiled_layer_stays_whole_under_several_processes(tmp_path):
    """torch would cut its graph where a bucket of gradients ends, and refuse the functions with their own backward.

    There is a graph for the last layer, which returns the rows that are read, and one for the others.
    """
    assert together(train_compiled, tmp_path) == [2, 2]


def test_a_hook_of_one_layer_is_called_though_the_others_have_none(monkeypatch):
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda layer: compile(layer, backend="eager", fullgraph=True))
    torch._dynamo.reset()
    encoder = accelerated(Encoder(dataclasses.replace(small(ModelConfig()), num_hidden_layers=3), pooler=False)).eval()
    ids = torch.arange(16).view(2, 8)
    compile_layers(encoder)
    encoder(ids)
    encoder.layers[1].attention.query.register_forward_hook(lambda module, given, out: 3 * out)
    compiled = encoder(ids).packed
    encoder.backend.compiled = None
    torch.testing.assert_close(compiled, encoder(ids).packed, rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
