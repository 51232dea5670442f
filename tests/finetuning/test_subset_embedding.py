"""A word embedding table with the rows of some tokens alone is trained as the whole one is, and becomes whole again."""

import copy

import pytest
import torch

from bertworks.finetuning.subset_embedding import restore_embeddings, shrink_embeddings
from bertworks.model.build import build_model
from bertworks.training.config import OptimConfig
from bertworks.training.optim import Optimizer
from bertworks.training.task_objectives import ClassificationObjective
from support.tiny_task import TINY

USED = torch.tensor([0, 2, 3, 7, 8, 11, 30])
TABLE = "encoder.embeddings.word.weight"


def batch_of(step):
    generator = torch.Generator().manual_seed(step)
    ids = USED[torch.randint(len(USED), (6, 9), generator=generator)]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids, dtype=torch.bool),
        "token_type_ids": torch.zeros_like(ids),
        "labels": torch.randint(3, (6,), generator=generator),
    }


def trained(model, config, steps):
    optimizer, objective = Optimizer(model, config), ClassificationObjective()
    for step in steps:
        objective(model, batch_of(step))["task"].loss.backward()
        optimizer.step(step, step / 8, optimizer.clip_grad_norm())
    return optimizer


@pytest.mark.parametrize("change", [{}, {"rule": "adamw"}, {"layer_decay": 0.5}, {"weight_decay": 0.0}])
def test_the_whole_table_would_have_become_the_same(change):
    whole = build_model(TINY, ("classifier",), labels=3, seed=1).eval()
    few, begun = copy.deepcopy(whole), whole.state_dict()[TABLE].clone()
    shrink_embeddings(few, USED)
    assert few.state_dict()[TABLE].shape == (8, 32)
    config = OptimConfig(**{"lr": 0.05, "warmup": 0.0, "weight_decay": 0.3} | change)
    for model in (whole, few):
        trained(model, config, range(8))
    restore_embeddings(few)
    assert type(few.encoder.embeddings.word) is torch.nn.Embedding
    found, expected = few.state_dict(), whole.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)
    unused = [i for i in range(TINY.vocab_size) if i not in USED.tolist()]
    moved = (found[TABLE][unused] - begun[unused]).abs().max()
    assert (moved > 1e-4) == (config.weight_decay > 0)


def test_a_token_that_no_text_has_is_no_row():
    model = build_model(TINY, ("classifier",), labels=3, seed=1)
    shrink_embeddings(model, USED)
    with pytest.raises(IndexError):
        model.encode(batch_of(1) | {"input_ids": torch.full((6, 9), 1)})


@pytest.mark.parametrize("heads", [("classifier",), ("mlm", "nsp")])
def test_tables_that_stay_whole(heads):
    """A frozen table is not trained, a decoder reads every row, and a text may have every token."""
    model, tokens = build_model(TINY, heads, labels=3, seed=1), USED
    if heads == ("classifier",):
        model.freeze()
    shrink_embeddings(model, tokens)
    full = build_model(TINY, ("classifier",), labels=3, seed=1)
    shrink_embeddings(full, torch.arange(TINY.vocab_size))
    assert len(model.state_dict()[TABLE]) == len(full.state_dict()[TABLE]) == TINY.vocab_size
