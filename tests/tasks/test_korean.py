"""Korean end to end: no syllable falls apart, and offsets of tags and answers point into the Hangul text."""

import re
import unicodedata
from pathlib import Path

import pytest
import torch

from bertworks.checkpoint.folder import save_folder
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import Tokenizer, TokenizerConfig

TEXTS = [
    "서울은 대한민국의 수도이다. 세종대왕은 1446년에 훈민정음을 반포하였다.",
    "부산의 바다는 아름답다! 제주도까지 배로 간다.",
]
JAMO = re.compile("[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]")


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def tokenizer(request) -> Tokenizer:
    return Tokenizer.train(TEXTS * 20, TokenizerConfig(vocab_size=200, lowercase=request.param))


def folder(path: Path, tokenizer: Tokenizer, head: str, task: dict[str, str], labels: list[str] | None = None) -> Path:
    config = ModelConfig(tokenizer.vocab_size, 32, 1, 2, 64, max_position_embeddings=40)
    save_folder(path, build_model(config, (head,), len(labels or ()), seed=1), tokenizer, None, labels, None, task)  # type: ignore[arg-type]
    return path


def test_entities_point_into_hangul(tokenizer, tmp_path, monkeypatch):
    tags = ["O", "B-LOC", "I-LOC"]
    predictor = Predictor(folder(tmp_path / "m", tokenizer, "tagger", {"kind": "tagging"}, tags))
    marked = {"서울은", "세종대왕은", "부산의"}

    def scored(model, inputs, *rest) -> torch.Tensor:
        """B-LOC on the first piece of every marked word."""
        scores = torch.zeros(len(inputs.ids), len(tags))
        scores[:, 0] = 5
        for word in marked:
            pieces = tokenizer.encode(word).ids[1:-1]
            for i in range(len(inputs.ids)):
                if inputs.ids[i : i + len(pieces)].tolist() == pieces:
                    scores[i, 1] = 9
        return scores

    monkeypatch.setattr("bertworks.inference.model.compute_scores", scored)
    apart = unicodedata.normalize("NFD", TEXTS[0])
    assert [unicodedata.normalize("NFC", entity["text"]) for entity in predictor.tag(apart)] == ["서울은", "세종대왕은"]
    for text in (TEXTS[0], TEXTS[1], "  \t" + " ".join(TEXTS) + " 부산의\n"):
        found = predictor.tag(text)
        assert [entity["text"] for entity in found] == [word for word in re.findall(r"\w+", text) if word in marked]
        assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in found)
