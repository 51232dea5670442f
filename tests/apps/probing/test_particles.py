"""Korean nouns and particles: which words are found, and what is measured on vectors that were planted."""

import numpy as np
import pytest

from bertworks.apps.probing.config import ParticlesConfig
from bertworks.apps.probing.particles import find_words, probe_particles, sheet
from bertworks.files import InputError
from bertworks.tokenizer import Tokenizer, TokenizerConfig

NOUNS, PARTICLES = ("학교", "시장", "병원", "공원"), ("에서", "까지", "부터")
SENTENCES = [f"{noun}{particle} 사람이 많았다" for noun in NOUNS for particle in PARTICLES]


def test_words_of_a_noun_and_a_particle():
    found = find_words("학교에서 친구를 빨리 만났다. 좋은 집까지도 왔다")
    assert [(word.noun, word.particle) for word in found] == [("학교", "에서"), ("친구", "를"), ("집", "까지도")]
    assert found[1] == ("친구", "를", 5, 7, 8)
    assert find_words("") == [] and find_words("빨리 갔다") == []


class Planted:
    """A model whose vectors hold the noun in one layer and the particle in the next."""

    folder, positions, layer_names = "planted", 64, ["embeddings", "1"]

    def __init__(self):
        self.tokenizer = Tokenizer.train(SENTENCES * 3, TokenizerConfig(vocab_size=150, lowercase=False))
        self.rows = {}

    def encode(self, text, max_length=None):
        encoding = self.tokenizer.encode(text, None, max_length)
        self.rows[tuple(encoding.ids)] = text
        return encoding

    def states(self, rows):
        for row in rows:
            text = self.rows[tuple(row)]
            states = np.zeros((2, len(row), 16), np.float32)
            states[:, :, 15] = 0.1
            noun = next((i for i, noun in enumerate(NOUNS) if text.startswith(noun)), 8)
            states[0, :, noun] = 1
            states[1, :, 4 + next(i for i, particle in enumerate(PARTICLES) if particle in text)] = 1
            yield states


def test_what_was_planted_is_found():
    results = probe_particles(Planted(), SENTENCES, ParticlesConfig(pairs=40))
    cosines = results["cosines"]
    assert cosines["same noun"][0] > 0.9 > 0.1 > cosines["same particle"][0]
    assert results["pairs"].keys() == cosines.keys() and min(results["pairs"].values()) >= 10
    assert 0 <= results["divided"] <= 1 and results["words"] == 24
    table = sheet(results)
    assert [row[0] for row in table.rows] == ["embeddings", "1"] and "24 Korean words" in table.title


def test_too_little_text():
    with pytest.raises(InputError, match="give more Korean text"):
        probe_particles(Planted(), ["빨리 갔다"], ParticlesConfig())
    with pytest.raises(InputError, match="of 1 or more"):
        ParticlesConfig(pairs=0)
