"""Equality with transformers on real weights: all-MiniLM-L6-v2, a 6-layer BERT trained on a billion sentence pairs."""

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


@torch.no_grad()
def test_hidden_states_pooled_and_ids(minilm):
    encodings = load_tokenizer(minilm).encode_batch(SENTENCES)
    theirs = transformers.AutoTokenizer.from_pretrained(minilm)(SENTENCES, padding=True, return_tensors="pt")
    L = max(len(encoding.ids) for encoding in encodings)
    ids = torch.tensor([encoding.ids + [0] * (L - len(encoding.ids)) for encoding in encodings])
    mask = torch.tensor([[i < len(encoding.ids) for i in range(L)] for encoding in encodings])
    assert torch.equal(ids, theirs["input_ids"][:, :L]) and torch.equal(mask.long(), theirs["attention_mask"][:, :L])

    out = load_encoder(minilm)(ids, mask)
    expected = transformers.BertModel.from_pretrained(minilm)(ids, mask.long(), output_hidden_states=True)
    assert len(out.hidden_states) == 7
    for found, state in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(found[mask], state[mask], rtol=0, atol=1e-5)
    torch.testing.assert_close(out.pooled, expected.pooler_output, rtol=0, atol=1e-5)


def test_a_start_for_fine_tuning(minilm):
    model, fresh, unused = initial_model(minilm, ("classifier",), labels=3, seed=1)
    assert (fresh, unused) == (["classifier"], [])
    pooler = load_encoder(minilm).pooler.weight
    assert torch.equal(model.encoder.pooler.weight, pooler)
