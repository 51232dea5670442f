"""Static vectors as folders: trained on a store, or read from a file of vectors."""

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.files import InputError
from bertworks.pretraining.recipe import StaticConfig
from bertworks.pretraining.static import read_static, train_static
from bertworks.tokenizer import Tokenizer
from support.tiny_task import VOCAB


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    Tokenizer.load(tmp_path / "vocab.txt", lowercase=True).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_vectors_of_a_file(vocabulary, tmp_path):
    """Whole words by name, in word2vec's form (counts first) and in GloVe's; what has none gets the mean."""
    lines = ["good 1 2 3 4", "nothing 9 9 9 9", ". . good 7 7 7 7", "film -1 0 0.5 2e-1"]
    for name, text in (("glove", lines), ("word2vec", ["3 4", *lines])):
        (tmp_path / f"{name}.txt").write_text("\n".join(text) + "\n")
        facts = read_static(tmp_path / f"{name}.txt", vocabulary, tmp_path / name)
        assert facts["pieces_with_a_vector"] == 2 and facts["width"] == 4
        encoder = load_encoder(tmp_path / name)
        table = encoder.embeddings.word.weight
        good, film = table[VOCAB.index("good")], table[VOCAB.index("film")]
        assert good.tolist() == [1, 2, 3, 4] and film.tolist() == pytest.approx([-1, 0, 0.5, 0.2])
        torch.testing.assert_close(table[VOCAB.index("bad")], (good + film) / 2)
        assert load_tokenizer(tmp_path / name).vocab == Tokenizer.load(vocabulary).vocab
        same = encoder(torch.tensor([[VOCAB.index("good")] * 3])).last_hidden_state[0]
        assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])  # neither place nor context counts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("good 1 2\nfilm 1\n", "v.txt:2: 1 numbers behind the word; expected 2"),
        ("good 1 2\n" + "x" * (1 << 20), "v.txt:2: 1,048,576 characters or more; expected a word and its numbers"),
        ("good 1 x\n", "v.txt:1: not all of it are finite numbers behind the word"),
        ("good 1 2\nfilm nan 1\n", "v.txt:2: not all of it are finite numbers"),
        ("unknown 1 2\n", "none of its words is in the vocabulary"),
        ("", "none of its words"),
    ],
)
def test_broken_files_of_vectors(vocabulary, tmp_path, text, said):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=r"v\.txt") as refused:
        read_static(tmp_path / "v.txt", vocabulary, tmp_path / "out")
    assert said in str(refused.value) and not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="cannot be read"):
        read_static(tmp_path / "none.txt", vocabulary, tmp_path / "out")


def test_the_folder_pads_as_its_tokenizer_does(tmp_path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[UNK]", "[PAD]", *(p for p in VOCAB if p not in ("[UNK]", "[PAD]"))])
    )
    Tokenizer.load(tmp_path / "vocab.txt", lowercase=True).save(tmp_path / "tokenizer")
    (tmp_path / "v.txt").write_text("good 1 2\n")
    read_static(tmp_path / "v.txt", tmp_path / "tokenizer", tmp_path / "out")
    assert load_encoder(tmp_path / "out").config.pad_token_id == load_tokenizer(tmp_path / "out").pad_id == 1


def test_word2vec_of_a_store(tiny_store, tmp_path):
    pytest.importorskip("gensim", reason="gensim is in the extra `static`")
    for name in ("one", "two"):
        train_static(tiny_store.path, tmp_path / name, StaticConfig(width=12, epochs=3))
    one, two = (load_encoder(tmp_path / name).embeddings.word.weight.detach().numpy() for name in ("one", "two"))
    assert np.array_equal(one, two) and one.shape == (tiny_store.vocab_size, 12)
    assert len(np.unique(one, axis=0)) > 20  # most pieces have a vector of their own
    with pytest.raises(ValueError, match="negative = 0"):
        StaticConfig(negative=0)
    with pytest.raises(InputError, match="no subword occurs 1000000 times"):
        train_static(tiny_store.path, tmp_path / "no", StaticConfig(min_count=1_000_000))
