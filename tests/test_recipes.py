"""Every recipe in the repository is a valid one, and short enough to be read."""

import tomllib

import pytest
import torch

from bertworks.config import RECIPES, from_dict, load_recipe, to_toml
from bertworks.experiments.recipe import Study
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.pretraining.distill import every_second, student_config
from bertworks.pretraining.distill_recipe import DistillConfig
from bertworks.pretraining.recipe import PretrainConfig

KINDS = {"pretrain": PretrainConfig, "distill": DistillConfig, "finetune": FinetuneConfig, "study": Study}


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*.toml")), ids=lambda path: path.relative_to(RECIPES).as_posix())
def test_a_recipe_loads_and_comes_back_from_its_resolved_form(path):
    recipe = load_recipe(path, KINDS[path.relative_to(RECIPES).parts[0]])
    assert from_dict(type(recipe), tomllib.loads(to_toml(recipe))) == recipe
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize(
    "name, million", [("base", 110), ("large", 336)]
)  # parameters, with heads (the paper's 110M and 340M)
def test_the_papers_recipes(name, million):
    recipe = load_recipe(RECIPES / "pretrain" / f"{name}.toml", PretrainConfig)
    with torch.device("meta"):
        model = build_model(recipe.model)
    assert sum(p.numel() for p in model.parameters()) // 10**6 == million
    assert (recipe.loop.steps, recipe.optim.lr, recipe.optim.warmup * recipe.loop.steps) == (1_000_000, 1e-4, 10_000)
    assert [(p.length, p.budget_fraction, p.batch_size) for p in recipe.phases] == [(128, 0.9, 256), (512, 0.1, 256)]
    assert (recipe.masking.masked_lm_prob, recipe.instances.dupe_factor, recipe.optim.rule) == (0.15, 10, "bert_adam")
    assert recipe.model.hidden_dropout_prob == recipe.model.attention_probs_dropout_prob == 0.1


COUNTS = {  # published parameters: bare model with its pooler, with the heads of pre-training
    "roberta": (124_645_632, 124_697_433),  # the latter without the pooler
    "albert": (11_683_584, 11_813_810),
    "gpt": (116_534_784 + 1536, None),  # without a pooler; the LayerNorm on the embeddings is BERT's
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_relatives_recipes_have_the_published_shapes(name):
    recipe = load_recipe(RECIPES / "pretrain" / f"{name}.toml", PretrainConfig)
    bare, with_heads = COUNTS[name]
    with torch.device("meta"):
        models = [build_model(recipe.model, (), pooler=name != "gpt"), build_model(recipe.model, recipe.heads)]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    assert counts[0] == bare and with_heads in (None, counts[1])
    small = load_recipe(RECIPES / "pretrain" / f"{name}-cpu.toml", PretrainConfig)
    study = load_recipe(RECIPES / "pretrain" / "study.toml", PretrainConfig)
    assert (small.optim, small.phases) == (study.optim, study.phases)  # so that their curves can be compared
    assert small.objective == recipe.objective and small.loop.hours == pytest.approx(1 / 6, rel=1e-3)
    alike = ("max_length", "position_embedding_type")
    assert all(getattr(small.model, name) == getattr(study.model, name) for name in alike)


def test_distilberts_recipe():
    recipe = load_recipe(RECIPES / "distill" / "distilbert.toml", DistillConfig)
    assert recipe.layers == every_second(12) and list(recipe.weights.values()) == [5.0, 2.0, 1.0]
    with torch.device("meta"):
        student = build_model(student_config(ModelConfig(), recipe.layers, "there"), ())
    assert sum(p.numel() for p in student.parameters()) == 66_362_880  # the published model's
    assert recipe.optim == DistillConfig().optim
