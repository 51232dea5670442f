"""A vocabulary and texts for builds; small parts and block groups."""

import sys

import pytest

from bertworks.data import build as build_module
from bertworks.data import instances
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support.builds import document


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer.train([document(i) for i in range(20)], TokenizerConfig(vocab_size=120))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(document(i) for i in range(300)))
    return path


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(build_module, "BATCH_CHARS", 10_000)


@pytest.fixture
def small_groups(monkeypatch):
    """Many block groups and generators in a tiny store."""
    monkeypatch.setattr(instances, "BLOCK_TOKENS", 500)
    monkeypatch.setattr(instances, "GROUP_BLOCKS", 2)
    for name in ("bertworks.data.instances", "bertworks.data.batches"):
        monkeypatch.setattr(sys.modules[name], "CHUNK_ROWS", 8)
