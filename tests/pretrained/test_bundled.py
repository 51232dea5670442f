"""The bundled encoders: transformers reads them, their cards say what they are, and `--model mini` finds them."""

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertworks.inference.predictor import Predictor
from bertworks.pretrained import BUNDLED, bundled

SENTENCES = {"mini": ("He studied at the [MASK] of Oxford.", "University")}  # and what fills the mask


@pytest.fixture(params=[name for name in BUNDLED if bundled(name)])
def name(request):
    return request.param


def test_transformers_fills_masks_with_the_same_scores(name):
    folder = bundled(name)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    sentence, word = SENTENCES[name]
    inputs = tokenizer(sentence, return_tensors="pt")
    with torch.no_grad():
        scores = model.eval()(**inputs).logits[0, inputs["input_ids"][0] == tokenizer.mask_token_id][0].softmax(-1)
    [[found]] = Predictor(name, device="cpu").fill_mask([sentence], top_k=5)
    assert found[0]["token"] == word
    assert [one["id"] for one in found] == scores.topk(5).indices.tolist()
    assert [one["score"] for one in found] == pytest.approx(scores.topk(5).values.tolist(), abs=1e-5)


def test_an_encoder_is_small_and_has_a_card(name):
    folder = bundled(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000_000
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-sa-4.0" and card.data.language in ("en", "ko")
    assert all(f"\n## {title}\n" in card.text for title in ("Data and licence", "Training", "Limits", "Use"))
