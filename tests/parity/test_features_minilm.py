"""Features against transformers on real weights: every layer of all-MiniLM-L6-v2, windows, real texts."""

import functools
import itertools

import numpy as np
import pytest
import torch

from bertworks.data.corpus import read_documents
from bertworks.inference.config import FeatureConfig
from bertworks.inference.features import Extractor
from support.shared_data import shared

transformers = pytest.importorskip("transformers")
SENTENCES = [
    "The mouse ran up the clock.",
    "In 1812 the army crossed the river near Berezina, and few of those who had set out came home again.",
    "",
    "Yes.",
    "Naïve café owners rarely write unit-tests, but those who do sleep better: 7 of 10 say so!",
    "한국어 문장, 東京 and \U0001f600 together.",
]
CHOICES = {  # over h[0] = embeddings, h[1] to h[6] = layers; the others: tests/model/test_layers_of_heads.py
    "embeddings": lambda h: h[0],
    **{str(layer): (lambda h, i=layer + 1: h[i]) for layer in range(6)},
    "concat-last-4": lambda h: torch.cat(h[3:], -1),
}


@pytest.fixture(scope="module")
def theirs(minilm):
    """The hidden states of one text (or pair), without padding, by transformers."""
    model = transformers.BertModel.from_pretrained(minilm).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)

    @functools.cache
    @torch.no_grad()
    def states(*texts: str) -> tuple[torch.Tensor, ...]:
        out = model(**tokenizer(*texts, return_tensors="pt"), output_hidden_states=True)
        return tuple(state[0] for state in out.hidden_states)

    return states


@pytest.mark.parametrize("layers", CHOICES)
def test_every_layer(minilm, theirs, layers):
    for text, found in zip(SENTENCES, Extractor.load(minilm, FeatureConfig(layers)).stream(SENTENCES), strict=True):
        expected = CHOICES[layers](theirs(text))[1:-1]
        np.testing.assert_allclose(found.vectors, expected, rtol=0, atol=1e-5)


def test_pairs(minilm, theirs):
    pairs = list(itertools.pairwise(filter(None, SENTENCES)))  # of an empty second text theirs leaves out the [SEP]
    extractor = Extractor.load(minilm, FeatureConfig(specials=True))
    for pair, found in zip(pairs, extractor.stream(pairs), strict=True):
        np.testing.assert_allclose(found.vectors, theirs(*pair)[6], rtol=0, atol=1e-5)


def test_pooled_as_sentence_transformers_does(minilm, theirs):
    """Its mean is over [CLS] and [SEP] too, so with specials."""
    extractor = Extractor.load(minilm, FeatureConfig(pool="mean", specials=True))
    for text, found in zip(SENTENCES, extractor.stream(SENTENCES), strict=True):
        np.testing.assert_allclose(found.vectors, theirs(text)[6].mean(0), rtol=0, atol=1e-5)


@pytest.mark.heavy
def test_real_texts_in_batches(minilm, theirs):
    """Articles of all lengths up to a window, in one stream: order, batches of similar length, offsets."""
    documents = read_documents([shared("data/text/enwiki.tar.zst")])
    texts = [d.text[: 40 * (i * 13 % 37)] for i, d in enumerate(itertools.islice(documents, 60))]
    extractor = Extractor.load(minilm)
    for text, found in zip(texts, extractor.stream(texts), strict=True):
        encoding = extractor.tokenizer.encode(text)
        assert found.ids.tolist() == encoding.ids[1:-1]
        assert list(map(tuple, found.offsets.tolist())) == encoding.offsets[1:-1]
        if len(encoding.ids) <= 512:
            np.testing.assert_allclose(found.vectors, theirs(text)[6][1:-1], rtol=0, atol=1e-5)
