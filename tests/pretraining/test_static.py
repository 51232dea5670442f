"""Static vectors as folders, trained on a store."""

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.data.opening import open_store
from bertworks.files import InputError
from bertworks.pretraining.static import StaticConfig, train_static


def test_word2vec_of_a_store(tiny_store, tmp_path):
    pytest.importorskip("gensim", reason="gensim is in the extra `static`")
    for name in ("one", "two"):
        facts = train_static(tiny_store.path, tmp_path / name, StaticConfig(width=12, epochs=3))
    encoder = load_encoder(tmp_path / "one")
    one, two = (load_encoder(tmp_path / name).embeddings.word.weight.detach().numpy() for name in ("one", "two"))
    assert np.array_equal(one, two) and one.shape == (tiny_store.vocab_size, 12)
    counts = open_store(tiny_store.path).unigram_counts()
    assert facts["pieces_with_a_vector"] == (counts >= 5).sum() < len(counts)
    assert len(np.unique(one[counts >= 5], axis=0)) > 20  # most pieces have a vector of their own
    np.testing.assert_allclose(one[counts < 5], np.tile(one[counts >= 5].mean(0), ((counts < 5).sum(), 1)), atol=1e-6)
    same = encoder(torch.tensor([[int(counts.argmax())] * 3])).last_hidden_state[0]
    assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])  # neither place nor context counts
    assert encoder.config.pad_token_id == load_tokenizer(tmp_path / "one").pad_id
    with pytest.raises(ValueError, match="negative = 0"):
        StaticConfig(negative=0)
    with pytest.raises(InputError, match="no subword occurs 1000000 times"):
        train_static(tiny_store.path, tmp_path / "no", StaticConfig(min_count=1_000_000))
