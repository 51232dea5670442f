"""Checks of pre-training runs: loss compared with word frequencies, constant predictions, sentence pairs, updates.

Two losses mean that the model does not use context: the unigram entropy of the corpus, which is the loss of a model
that has learned only word frequencies, and a tenth less, the loss of one that also copies the tokens that masking left
unchanged (the plateau, docs/plateau.md).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from ...batch import IGNORED
from ...checkpoint.folder import load_model
from ...config import load_recipe
from ...data.batches import Vocabulary
from ...data.masking import MaskingConfig
from ...data.store import Store
from ...data.vocabulary import tokenizer_of
from ...pretraining.recipe import PretrainConfig
from ...tasks.checks import Finding, percent
from ...training.identity import RECIPE
from .runs import WORD_LOSSES, RunFiles

NEAR = 0.05  # nats from a level
NEAR_AT_MASKS = 0.15  # nats; three standard errors of the sample
RANDOM_PAIR_LOSS = 0.683  # nats of a next-sentence loss; ln 2 is 0.693
MIN_UPDATES = 1_000  # updates
OFTEN = 40  # passes over the corpus
CONSTANT = 0.95  # fraction of the masked tokens that get the same prediction
ROWS, BATCHES = 64, 4  # of held-out text that the model predicts
START = "position-heads"


@dataclass(frozen=True)
class PretrainingRun:
    """A pre-training run, and its store if that is given."""

    files: RunFiles
    store: Store | None = None

    @property
    def entropy(self) -> float | None:
        """The unigram entropy of the corpus, in nats; None if neither results nor store have it."""
        entropy = self.files.metrics.get("unigram_entropy")
        return self.store.unigram_entropy() if entropy is None and self.store else entropy

    @property
    def advice(self) -> str:
        """What to do about a plateau."""
        longer = "train longer: a small model uses context only after several million tokens"
        model = self.files.recipe.get("model")
        if not isinstance(model, dict) or model.get("start") == START or self.files.results.get("continued"):
            return longer
        if model.get("position_embedding_type", "learned") != "learned":  # which this initialization is made for
            return longer
        return f"{longer}, sooner with model.start = {START} and masking.masked_lm_prob = 0.4 (docs/plateau.md)"


def plateau(run: PretrainingRun) -> Iterator[Finding]:
    """A loss like that of a model that has learned only word frequencies."""
    metrics, entropy = run.files.metrics, run.entropy
    name = next((name for name in metrics if name in WORD_LOSSES), None)
    if name is None or entropy is None:
        return
    loss = metrics[name]
    level = entropy * (1 - MaskingConfig().unchanged_fraction) if name == "mlm_loss" else entropy
    beside = f"held-out loss {loss:.2f} nats, unigram entropy {entropy:.2f}"
    if loss >= entropy - NEAR:
        yield Finding("plateau", "warning", f"{beside}: the model has learned at most word frequencies", run.advice)
    elif loss >= level - NEAR:
        evidence = f"{beside}: the model has learned word frequencies and copies unmasked tokens ({level:.2f} nats)"
        yield Finding("plateau", "warning", evidence, run.advice)


def at_masks(run: PretrainingRun) -> Iterator[Finding]:
    """The loss at [MASK] alone, where nothing can be copied, and constant predictions. Needs the store."""
    folder, recipe = run.files.folder / "model", run.files.folder / RECIPE
    if run.store is None or not folder.is_dir() or not recipe.is_file() or run.entropy is None:
        return
    config = load_recipe(recipe, PretrainConfig)
    losses, predicted = predictions_at_masks(folder, config, run.store)
    if not len(losses):
        return
    counts = np.bincount(predicted)
    loss, commonest = float(losses.mean()), counts.max() / counts.sum()
    token = tokenizer_of(run.store).vocab[int(counts.argmax())]
    evidence = f"loss at [MASK] tokens {loss:.2f} nats, unigram entropy {run.entropy:.2f}; the prediction is {token!r} "
    evidence += f"at {percent(commonest)} of {len(losses):,} [MASK] tokens"
    if commonest >= CONSTANT:
        advice = "train longer; if the loss no longer falls, start again with another optim.lr or seed"
        yield Finding("[MASK]", "warning", f"{evidence}: the predictions are constant", advice)
    elif loss >= run.entropy - NEAR_AT_MASKS:
        yield Finding("[MASK]", "warning", evidence, run.advice)


@torch.no_grad()
def predictions_at_masks(
    folder: Path, config: PretrainConfig, store: Store
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Loss and predicted id at each [MASK] of a few held-out batches, (M,) each; empty without a masked objective."""
    tokenizer, model = tokenizer_of(store), load_model(folder)
    data = config.data(store, "validation", Vocabulary.of(tokenizer), min(128, config.phases[-1].length))
    losses, predicted = [torch.empty(0)], [torch.empty(0, dtype=torch.int64)]
    masked = config.objective_spec.masked and "mlm" in model.heads
    for batch in data.batches(ROWS, BATCHES) if masked and data.shards else ():
        out = model.encode(batch)
        labels, positions = batch["masked_labels"], batch["masked_positions"]
        at = (labels != IGNORED) & (batch["input_ids"].flatten()[positions] == tokenizer.mask_id)
        scores = model.masked_lm_logits(out.packed[out.layout.rows(positions[at])])  # (M, V)
        losses.append(F.cross_entropy(scores, labels[at], reduction="none"))
        predicted.append(scores.argmax(-1))
    return torch.cat(losses).numpy(), torch.cat(predicted).numpy()


def sentence_pairs(run: PretrainingRun) -> Iterator[Finding]:
    """A next-sentence or sentence-order loss like that of random answers."""
    metrics = run.files.metrics
    for name in ("nsp", "sop"):
        loss, accuracy = metrics.get(f"{name}_loss", 0.0), metrics.get(f"{name}_accuracy", 0.0)
        if loss >= RANDOM_PAIR_LOSS:
            evidence = f"{name}_loss {loss:.3f} nats, accuracy {accuracy:.3f}: no better than random answers (0.693)"
            advice = "train longer, check the documents with `bertworks doctor STORE`, or train with objective = mlm"
            yield Finding("sentence pairs", "warning", evidence, advice)


def updates(run: PretrainingRun) -> Iterator[Finding]:
    """Few updates, and many passes over the same text."""
    steps = run.files.steps
    tokens = float(run.files.results.get("tokens") or (run.files.values("tokens") or [0.0])[-1])
    if run.files.results and steps < MIN_UPDATES:
        evidence = f"few updates: {steps:,}, {tokens:,.0f} tokens"
        advice = f"train for {MIN_UPDATES:,} updates or more; a smaller batch makes more of them from the same tokens"
        yield Finding("updates", "warning", evidence, advice)
    size = 0 if run.store is None else sum(shard.n_tokens for shard in run.store.shards("train"))
    if tokens > OFTEN * size > 0:
        evidence = f"{tokens / size:.0f} passes over the {size:,} tokens of the store"
        yield Finding("updates", "warning", evidence, "train on more text, or for fewer updates")


CHECKS: tuple[Callable[[PretrainingRun], Iterable[Finding]], ...] = (plateau, at_masks, sentence_pairs, updates)
