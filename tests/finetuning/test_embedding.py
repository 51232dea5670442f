"""Embedders: losses and metrics against sentence-transformers and by hand, and a run from rows to a folder it opens."""

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import bertworks
from bertworks.batch import IGNORED
from bertworks.checkpoint.folder import save_folder
from bertworks.checkpoint.pooling import Pooling, write_pooling
from bertworks.files import InputError
from bertworks.finetuning.job import Job
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune
from bertworks.inference.evaluation import evaluate
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig, TopConfig
from bertworks.tasks.base import Data, Example, LengthLimits
from bertworks.tasks.embedding import prepare
from bertworks.tasks.kinds import own_task
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.distributed import World
from bertworks.training.task_objectives import EmbeddingObjective

WORDS = [f"{a}{b}" for a in "bdgkm" for b in "aeiou"]
CPU = torch.device("cpu")
SCORED, PAIRED = own_task("embedding", ("a", "b"), "score"), own_task("embedding", ("a", "b"), "")


def rows(count: int, seed: int = 1, scored: bool = True) -> list[Example]:
    """Pairs that share some of their four words; the score says how many."""
    draw, made = random.Random(seed), []
    for line in range(count):
        first, same = draw.choices(WORDS, k=4), draw.randint(0, 4) if scored else 3
        second = first[:same] + draw.choices(WORDS, k=4 - same)
        made.append(Example(" ".join(first), " ".join(second), str(same) if scored else None, line))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 9, TokenizerConfig(vocab_size=100))
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    where = tmp_path_factory.mktemp("model")
    save_folder(where, build_model(config, (), seed=3), tokenizer)
    return where


def config(steps: int = 30) -> FinetuneConfig:
    loop = LoopConfig(steps=steps, eval_every=steps, save_every=steps)
    return FinetuneConfig(max_seq_length=16, batch_size=16, optim=OptimConfig(lr=3e-3), loop=loop, dropout=0.0)


def test_prepared_pairs(folder):
    prepared = prepare(Tokenizer.load(folder), rows(6), SCORED, LengthLimits(max_seq_length=16))
    batch = prepared.inputs.batch(np.arange(6))
    assert len(prepared.inputs) == 6 and batch["input_ids"].shape[0] == 12 and not batch["token_type_ids"].any()
    largest = max(int(row.label) for row in rows(6))
    assert batch["labels"].max() == 1 and f"scores are divided by {largest}," in prepared.notes()[0]
    assert prepare(Tokenizer.load(folder), rows(6, scored=False), PAIRED, LengthLimits()).inputs.whole
    with pytest.raises(InputError, match="line 3: one text; expected two"):
        prepare(Tokenizer.load(folder), [Example("a", None, "1", 3)], SCORED, LengthLimits())


@pytest.mark.heavy
@pytest.mark.parametrize("scored", [True, False])
def test_losses_are_those_of_sentence_transformers(folder, scored, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers import losses

    task, given = (SCORED if scored else PAIRED), rows(5, scored=scored)
    predictor = Predictor(folder)
    inputs = prepare(predictor.tokenizer, given, task, LengthLimits(max_seq_length=16)).inputs
    batch = inputs.batch(np.arange(5))
    with torch.no_grad():
        term = EmbeddingObjective()(predictor.model.eval(), batch)["task"]
    shutil.copytree(folder, tmp_path / "st")
    write_pooling(tmp_path / "st", Pooling(max_length=16), 16)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "st"), device="cpu").eval()
    features = [theirs.tokenize([row[side] for row in given]) for side in (0, 1)]
    loss = (losses.CosineSimilarityLoss if scored else losses.MultipleNegativesRankingLoss)(theirs)
    expected = loss(features, torch.tensor(inputs.labels) if scored else None)
    assert float(term.loss) / 5 == pytest.approx(expected.item(), rel=1e-4)
    assert EmbeddingObjective().counts(batch) == {"task": 5}


def test_ranks_by_hand(folder):
    prepared = prepare(Tokenizer.load(folder), rows(3, scored=False), PAIRED, LengthLimits(max_seq_length=16))
    vectors = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 1], [1, 0], [0, 1]])  # the third pair: 1 before its own
    result = prepared.evaluate(vectors)
    assert result.metrics["recall_at_1"] == pytest.approx(1 / 3)  # for [0, 1] the other [0, 1] is nearer than [1, 1]
    assert result.metrics["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_ties_are_no_hits(folder):
    """A collapsed encoder: every text is as near as any other, also where rounding tells them apart."""
    tokenizer, limits = Tokenizer.load(folder), LengthLimits(max_seq_length=16)
    prepared = prepare(tokenizer, rows(20, scored=False), PAIRED, limits)
    noise = 1e-7 * torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    for vectors in (torch.ones(40, 8), torch.ones(40, 8) + noise):
        result = prepared.evaluate(vectors)
        assert result.constant_predictions and result.metrics["recall_at_1"] == 0
        assert result.metrics["mrr"] == pytest.approx(2 / 21)  # the mean rank of 20 texts
        assert prepare(tokenizer, rows(20), SCORED, limits).evaluate(vectors).constant_predictions
    perfect = torch.eye(20).repeat_interleave(2, 0)
    result = prepared.evaluate(perfect)
    assert result.metrics["recall_at_1"] == result.metrics["mrr"] == 1 and not result.constant_predictions


def test_equal_second_texts_count_as_one(folder):
    given = [Example("ba", "du"), Example("be", "du"), Example("bi", "ke")]
    prepared = prepare(Tokenizer.load(folder), given, PAIRED, LengthLimits(max_seq_length=16))
    vectors = torch.tensor([[1.0, 0], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1]])
    result = prepared.evaluate(vectors)  # [1, 0] asks for [0, 1], behind one other text
    assert result.metrics["recall_at_1"] == pytest.approx(2 / 3)
    assert result.metrics["mrr"] == pytest.approx((1 + 1 + 1 / 2) / 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": "head"}, "do not go with the kind embedding"),
        ({"top": TopConfig(layers="embeddings,0")}, "do not go with the kind embedding"),
        ({"batch_size": 1}, "the other rows of its micro-batch; give 2 rows or more"),
        ({"micro_batch_size": 1}, "the other rows of its micro-batch; give 2 rows or more"),
    ],
)
def test_settings_without_a_meaning_are_refused(folder, tmp_path, change, message):
    data = Data(rows(16, 1, False), rows(8, 2, False))
    with pytest.raises(InputError, match=message):
        finetune(replace(config(), **change), PAIRED, data, folder, tmp_path / "run", quiet=True)


def test_scores_that_are_no_cosine_are_refused_by_line(folder):
    for score in ("-4.5", "5"):
        with pytest.raises(InputError, match=f"line 7: score {score}; expected one from -4 to 4"):
            given = Data(rows(32), [*rows(6), Example("ba", "be", score, 7)])
            Job.of(config(), SCORED, given, folder, World(0, 1, CPU), True)
    with pytest.raises(InputError, match="line 7: score 1e308; expected one from"):
        prepare(Tokenizer.load(folder), [Example("ba", "be", "1e308", 7)], SCORED, LengthLimits())


@pytest.mark.parametrize("scored", [True, False])
def test_a_run(folder, scored, tmp_path):
    task = SCORED if scored else PAIRED
    data = Data(rows(96, 1, scored), rows(40, 2, scored))
    before = evaluate(folder, task, data.dev, 16)["metrics"]
    results = finetune(config(), task, data, folder, tmp_path / "run", quiet=True)
    assert results["metrics"]["loss"] < 0.9 * before["loss"]
    assert results["metrics"]["spearman" if scored else "mrr"] > 0.4
    after = evaluate(tmp_path / "run", task, data.dev)["metrics"]
    assert after == pytest.approx(results["metrics"], abs=1e-5)
    assert finetune(config(), task, data, folder, tmp_path / "run", quiet=True) == results  # finished: left as it is
    kept = json.loads((tmp_path / "run/model/1_Pooling/config.json").read_text())
    assert kept["pooling_mode_mean_tokens"] and kept["word_embedding_dimension"] == 16


@pytest.mark.parametrize(("scored", "micro", "said"), [(False, 4, True), (False, 16, False), (True, 4, False)])
def test_micro_batches_that_cost_negatives_are_reported(folder, scored, micro, said):
    task, data = (SCORED if scored else PAIRED), Data(rows(32, 1, scored), rows(8, 2, scored))
    job = Job.of(replace(config(2), micro_batch_size=micro), task, data, folder, World(0, 1, CPU), True)
    assert any("a text has at most 3 negatives instead of 15" in note for note in job.notes) == said


@pytest.mark.heavy
def test_sentence_transformers_opens_the_folder(folder, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    finetune(config(2), SCORED, Data(rows(32), rows(8, 2)), folder, tmp_path / "run", quiet=True)
    texts = ["ba be bi", "du", "ka ke ki ko ku"]
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run/model"), device="cpu").encode(texts)
    np.testing.assert_allclose(Predictor(tmp_path / "run").embed(texts), theirs, atol=1e-5)


def test_a_column_of_scores_is_not_ignored(folder):
    table = [{"text": "ba", "pair": "be", "label": score} for score in (0, 1, 5)]
    options = {"text": ["text", "pair"], "kind": "embedding"}
    with pytest.raises(InputError, match=r"column label would be ignored: without a label the .*; give it as label"):
        bertworks.evaluate(folder, table, **options)
    scored = bertworks.evaluate(folder, table, label="label", **options)
    assert {*scored.metrics} == {"loss", "spearman", "pearson"}
    bare = [{"text": row["text"], "pair": row["pair"]} for row in table]
    assert {*bertworks.evaluate(folder, bare, **options).metrics} == {"loss", "mrr", "recall_at_1"}


def test_one_scale_for_training_and_development(folder, tmp_path):
    """Development scores of 3 at most are divided by the 4 of training, in the run, and afterwards alone."""
    low = [row for row in rows(60, 2) if int(row.label) < 4][:30]
    results = finetune(config(2), SCORED, Data(rows(32), low), folder, tmp_path / "run", quiet=True)
    after = evaluate(tmp_path / "run", SCORED, low)["metrics"]
    assert after == pytest.approx(results["metrics"], abs=1e-6)
    cosines = [json.loads(line)["cosine"] for line in (tmp_path / "run/predictions.jsonl").read_text().splitlines()]
    expected = np.mean([(cosine - int(row.label) / 4) ** 2 for cosine, row in zip(cosines, low, strict=True)])
    assert results["metrics"]["loss"] == pytest.approx(expected, rel=1e-4)
    stored = json.loads((tmp_path / "run/model/config.json").read_text())
    assert stored["bertworks_task"]["scale"] == 4


def test_padding_does_not_change_a_vector(folder):
    """Mean pooling over the real tokens alone."""
    predictor = Predictor(folder)
    inputs = prepare(predictor.tokenizer, rows(4), SCORED, LengthLimits(max_seq_length=16)).inputs
    objective, network = EmbeddingObjective(), predictor.model.eval()
    with torch.no_grad():
        short, long = (float(objective(network, inputs.batch(np.arange(4), length))["task"].loss) for length in (0, 16))
    assert short == pytest.approx(long, rel=1e-5) and IGNORED not in inputs.labels
