"""The bundled encoders: transformers reads them, their cards say what they are, and `--model mini` finds them."""

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertworks.inference.predictor import Predictor
from bertworks.pretrained import BUNDLED, bundled

SENTENCES = {"mini": "The capital of France is [MASK].", "mini-ko": "대한민국의 수도는 [MASK]이다."}


@pytest.fixture(params=[name for name in BUNDLED if bundled(name)])
def name(request):
    return request.param


def test_transformers_fills_masks_with_the_same_scores(name):
    folder = bundled(name)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    inputs = tokenizer(SENTENCES[name], return_tensors="pt")
    with torch.no_grad():
        scores = model.eval()(**inputs).logits[0, inputs["input_ids"][0] == tokenizer.mask_token_id][0].softmax(-1)
    [[found]] = Predictor(name, device="cpu").fill_mask([SENTENCES[name]], top_k=5)
    assert [one["id"] for one in found] == scores.topk(5).indices.tolist()
    assert [one["score"] for one in found] == pytest.approx(scores.topk(5).values.tolist(), abs=1e-5)


def test_an_encoder_is_small_and_has_a_card(name):
    folder = bundled(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000_000
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-sa-4.0" and card.data.language in ("en", "ko")
    assert all(f"\n## {title}\n" in card.text for title in ("Data and licence", "Training", "Limits", "Use"))
