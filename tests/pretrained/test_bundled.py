"""The bundled encoders: transformers reads them, their cards say what they are, and `--model mini` finds them."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertworks.checkpoint.folder import read_config
from bertworks.config import differences, find_recipe, load_recipe
from bertworks.inference.predictor import Predictor
from bertworks.pretrained import BUNDLED, bundled
from bertworks.pretraining.recipe import PretrainConfig

SENTENCES = {  # and what fills the mask
    "mini": ("He studied at the [MASK] of Oxford.", "University"),
    "mini-ko": ("배우들의 [MASK]가 정말 좋았다.", "연기"),
}
RECIPES = {"mini": "cpu", "mini-ko": "korean"}


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
    predictor = Predictor(name, device="cpu")
    assert predictor.max_length == tokenizer.model_max_length == 128  # longer sequences were not trained, or hardly
    [[found]] = predictor.fill_mask([sentence], top_k=5)
    assert found[0]["token"] == word
    assert [one["id"] for one in found] == scores.topk(5).indices.tolist()
    assert [one["score"] for one in found] == pytest.approx(scores.topk(5).values.tolist(), abs=1e-5)


def test_the_architecture_is_that_of_the_recipe(name):
    """With another activation, which transformers would apply too, masks are filled almost as well."""
    recipe = load_recipe(find_recipe(RECIPES[name], "pretrain"), PretrainConfig)
    found = differences(read_config(bundled(name))[0], recipe.model)
    assert {key for key, *_ in found} <= {"vocab_size"}


def test_an_encoder_is_small_and_has_a_card(name, monkeypatch):
    folder, records = bundled(name), Path(__file__).parents[2] / "docs/results/encoders"
    monkeypatch.syspath_prepend(str(records))
    from bundle import read, scores

    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000_000
    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-sa-4.0" and card.data.language in ("en", "ko")
    assert all(f"\n## {title}\n" in card.text for title in ("Data and licence", "Training", "Limits", "Use"))
    assert "\n".join(scores(read(records / name / "study/results.json"))) in card.text
