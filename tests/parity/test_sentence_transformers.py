"""Sentence-transformers folders: vectors equal those of its `encode`, and it loads what is written here."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertworks.checkpoint.convert.conversion import convert
from bertworks.checkpoint.convert.options import ConvertOptions
from bertworks.checkpoint.folder import save_folder
from bertworks.checkpoint.pooling import MODES, Pooling, read_pooling, write_pooling
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from conftest import tiny_texts
from support.shared_data import SHARED

TEXTS = tiny_texts(20)


def theirs(folder: Path):
    """The folder as sentence-transformers loads it; without that package the test is skipped."""
    library = pytest.importorskip("sentence_transformers", reason="needs the package sentence-transformers")
    return library.SentenceTransformer(str(folder), device="cpu")


def sentences(count: int) -> list[str]:
    """So many sentences: real ones where they are at hand."""
    file = SHARED / "data" / "glue" / "SST-2" / "train.tsv"
    if not file.exists():
        return [f"{text} {i}" for i in range(9) for text in tiny_texts(112)][:count]
    found = [line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()[1 : count + 1]]
    return found + [" ".join(found[i : i + 45]) for i in range(count // 50)]  # these are longer than 256 tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small model folder."""
    folder = tmp_path_factory.mktemp("small") / "model"
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(vocab_size=100))
    config = ModelConfig(tokenizer.vocab_size, 16, 2, 2, 24, max_position_embeddings=48)
    save_folder(folder, build_model(config, (), seed=3), tokenizer)
    return folder


@pytest.fixture
def copied(folder, tmp_path) -> Path:
    shutil.copytree(folder, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("count", [pytest.param(150, marks=pytest.mark.heavy),
                                   pytest.param(1000, marks=pytest.mark.slow)])  # fmt: skip
def test_minilm_on_many_sentences(minilm, count):
    texts = sentences(count)
    predictor = Predictor(minilm, device="cpu")
    assert predictor.pooling == Pooling("mean", normalize=True, max_length=256) and predictor.max_length == 256
    np.testing.assert_allclose(predictor.embed(texts), theirs(minilm).encode(texts), rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("normalize", [False, True])
def test_every_mode_as_written_and_read(copied, mode, normalize):
    write_pooling(copied, Pooling(mode, normalize, max_length=20), width=16)
    predictor = Predictor(copied, device="cpu")
    assert predictor.pooling == Pooling(mode, normalize, max_length=20)
    found = predictor.embed(TEXTS)
    assert predictor.truncated["examples"] > 3 and found.shape == (20, 16)
    np.testing.assert_allclose(found, theirs(copied).encode(TEXTS), rtol=0, atol=1e-5)


def test_prompt_and_lower_case(copied):
    write_pooling(copied, Pooling(lower_case=True, prompt="Read: "), width=16)
    predictor = Predictor(copied, device="cpu")
    assert predictor.max_length == 48
    texts = [text.upper() for text in TEXTS]
    np.testing.assert_allclose(predictor.embed(texts), theirs(copied).encode(texts), rtol=0, atol=1e-5)
    without = Predictor(copied, device="cpu").embed([f"read: {text}" for text in TEXTS])
    assert np.abs(predictor.embed(TEXTS) - without).max() > 1e-3  # which is the prompt twice


def test_what_the_caller_says_wins(copied):
    plain = Predictor(copied, device="cpu")
    cls, mean = plain.embed(TEXTS, "cls"), plain.embed(TEXTS)
    write_pooling(copied, Pooling("cls", normalize=True, max_length=20), width=16)
    predictor = Predictor(copied, max_length=48, device="cpu")
    np.testing.assert_array_equal(predictor.embed(TEXTS, normalize=False), cls)
    np.testing.assert_array_equal(predictor.embed(TEXTS, "mean", normalize=False), mean)
    np.testing.assert_allclose(np.linalg.norm(predictor.embed(TEXTS), axis=1), 1, atol=1e-6)


def test_the_old_layout_has_the_model_in_a_folder_below(copied, tmp_path):
    write_pooling(copied, Pooling("cls"), width=16)
    modules = json.loads((copied / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    outer = tmp_path / "outer"
    shutil.copytree(copied, outer / "0_Transformer")
    shutil.move(outer / "0_Transformer" / "1_Pooling", outer / "1_Pooling")
    (outer / "modules.json").write_text(json.dumps(modules))
    (outer / "0_Transformer" / "modules.json").unlink()
    assert read_pooling(outer) == (outer / "0_Transformer", Pooling("cls"))
    np.testing.assert_array_equal(Predictor(outer, device="cpu").embed(TEXTS), Predictor(copied).embed(TEXTS))


def test_a_converted_folder_keeps_its_pooling(copied, tmp_path):
    write_pooling(copied, Pooling("max", normalize=True, max_length=24), width=16)
    convert(copied, tmp_path / "out")
    assert read_pooling(tmp_path / "out")[1] == Pooling("max", normalize=True, max_length=24)
    found = Predictor(tmp_path / "out", device="cpu").embed(TEXTS)
    np.testing.assert_allclose(found, theirs(tmp_path / "out").encode(TEXTS), rtol=0, atol=1e-5)
    convert(tmp_path / "out", tmp_path / "short", ConvertOptions(positions=20))
    assert read_pooling(tmp_path / "short")[1] == Pooling("max", normalize=True, max_length=20)
