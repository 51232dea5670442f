"""Pre-training runs: the loss beside what word frequencies give, constant predictions, next sentences, the store.

Two losses mean that nothing was learned of contexts: the unigram entropy of the corpus, which word frequencies alone
give, and a tenth less, where the model also copies the tokens that masking kept (the plateau, docs/results.md).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
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
from ...pretraining.recipe import PretrainConfig
from ...training.identity import RECIPE
from .findings import Finding, NotChecked, percent
from .logs import WORD_LOSSES, RunFiles

NEAR = 0.05  # nats from a level
AT_CHANCE = 0.683  # nats of a next-sentence loss; ln 2 is 0.693
FEW = 1_000  # updates
OFTEN = 40  # passes over the corpus
CONSTANT = 0.95  # share of the masked tokens that get the same prediction
ROWS, BATCHES = 64, 4  # of held-out text that the model is asked about
NEAR_AT_MASKS = 0.15  # nats; the sample's own error is a third of that
LONGER = "train longer: small models need some million tokens to leave it"
START = "position-heads"


@dataclass(frozen=True)
class Masked:
    """What a model says at masked tokens of held-out text."""

    loss: float  # nats, at [MASK] alone
    commonest: float  # share of these tokens that get the commonest prediction
    token: str  # that prediction
    count: int


@dataclass(frozen=True)
class PretrainingRun:
    """A pre-training run, and its store where that is given."""

    files: RunFiles
    store: Store | None = field(default=None)

    @cached_property
    def entropy(self) -> float:
        """The unigram entropy of the corpus, in nats. Raises NotChecked if neither results nor store say."""
        known = self.files.metrics.get("unigram_entropy")
        if known is None and self.store is None:
            raise NotChecked("the unigram entropy is not known; give the store with --corpus")
        return self.store.unigram_entropy() if known is None and self.store else float(known or 0.0)

    @cached_property
    def config(self) -> PretrainConfig:
        """The recipe. Raises NotChecked if it is not one of pre-training."""
        path = self.files.folder / RECIPE
        if not path.is_file() or "phases" not in self.files.recipe or "objective" not in self.files.recipe:
            raise NotChecked("no recipe of pre-training")
        return load_recipe(path, PretrainConfig)

    @property
    def longer(self) -> str:
        """What to do about a plateau."""
        model = self.files.recipe.get("model")
        if not isinstance(model, dict) or model.get("start") == START or self.files.results.get("continued"):
            return LONGER
        if model.get("position_embedding_type", "learned") != "learned":  # what the start is made for
            return LONGER
        return f"{LONGER}, fewer with --model.start {START} --masking.masked-lm-prob 0.4 (docs/plateau.md)"

    @cached_property
    def masked(self) -> Masked:
        """What the model predicts at [MASK]. Raises NotChecked without a store, a model or a masked objective."""
        folder = self.files.folder / "model"
        if self.store is None or not folder.is_dir():
            raise NotChecked("needs the store (--corpus) and a finished model")
        if not self.config.learns.masked:
            raise NotChecked("the objective masks nothing")
        return ask(folder, self.config, self.store)


@torch.no_grad()
def ask(folder: Path, config: PretrainConfig, store: Store) -> Masked:
    """What the model in `folder` predicts at [MASK] in a few held-out batches. Raises NotChecked if there are none."""
    tokenizer, model = store.load_tokenizer(), load_model(folder)
    if "mlm" not in model.heads:
        raise NotChecked("the model has no masked-LM head")
    data = config.data(store, "validation", Vocabulary.of(tokenizer), min(128, config.phases[-1].length))
    losses, predicted = [], []
    for batch in data.batches(ROWS, BATCHES) if data.shards else ():
        out = model.encode(batch)
        labels, positions = batch["masked_labels"], batch["masked_positions"]
        at = (labels != IGNORED) & (batch["input_ids"].flatten()[positions] == tokenizer.mask_id)
        scores = model.masked_lm_logits(out.packed[out.packing.rows(positions[at])])
        losses.append(F.cross_entropy(scores, labels[at], reduction="none"))
        predicted.append(scores.argmax(-1))
    if not sum(map(len, losses)):
        raise NotChecked("the store has no held-out text")
    counts = np.bincount(torch.cat(predicted).numpy())
    token = tokenizer.vocab[int(counts.argmax())]
    return Masked(float(torch.cat(losses).mean()), float(counts.max() / counts.sum()), token, int(counts.sum()))


def plateau(run: PretrainingRun) -> Iterator[Finding]:
    """A loss that word frequencies alone would give."""
    metrics, entropy = run.files.metrics, run.entropy
    name = next((name for name in metrics if name in WORD_LOSSES), None)
    if name is None:
        raise NotChecked("no held-out loss of a language model yet")
    loss = metrics[name]
    level = entropy * (1 - MaskingConfig().kept_share) if name == "mlm_loss" else entropy
    found = {"loss": loss, "unigram_entropy": entropy, "plateau": level}
    if loss >= entropy - NEAR:
        yield Finding(
            "warning",
            f"held-out loss {loss:.2f} nats, unigram entropy {entropy:.2f}: the model knows word frequencies at best",
            run.longer,
            found,
        )
    elif loss >= level - NEAR:
        yield Finding(
            "warning",
            f"held-out loss {loss:.2f} nats is on the plateau: {level:.2f} is word frequencies (entropy {entropy:.2f}) "
            "and copies of the tokens that masking kept",
            run.longer,
            found,
        )


def at_masks(run: PretrainingRun) -> Iterator[Finding]:
    """The loss at [MASK] alone, where nothing can be copied, and constant predictions."""
    found, entropy = run.masked, run.entropy
    share = f"{percent(found.commonest)} of {found.count:,} [MASK] tokens are predicted as {found.token!r}"
    numbers = {"mask_loss": found.loss, "unigram_entropy": entropy, "commonest": found.commonest}
    if found.commonest >= CONSTANT:
        yield Finding(
            "warning",
            f"{share}: the model answers the same everywhere",
            "train longer; if the loss no longer falls, begin again with another optim.lr or seed",
            numbers,
        )
    elif found.loss >= entropy - NEAR_AT_MASKS:
        yield Finding(
            "warning",
            f"the loss at [MASK] alone is {found.loss:.2f} nats, the unigram entropy {entropy:.2f}; {share}",
            run.longer,
            numbers,
        )


def next_sentence(run: PretrainingRun) -> Iterator[Finding]:
    """Sentence pairs that are told apart no better than by chance."""
    metrics = run.files.metrics
    name = next((name for name in ("nsp", "sop") if f"{name}_loss" in metrics), None)
    if name is None:
        raise NotChecked("the objective has no sentence pairs")
    loss, accuracy = metrics[f"{name}_loss"], metrics.get(f"{name}_accuracy", 0.0)
    if loss >= AT_CHANCE:
        one_line = ""
        if run.store is not None and (share := single_sentences(run.store)) > 0.2:
            one_line = f"; {percent(share)} of the store's documents have one sentence, so have no true next one"
        yield Finding(
            "warning",
            f"{name}_loss {loss:.3f} nats and accuracy {accuracy:.3f} are those of chance (0.693, and 0.5 or the "
            f"commoner answer){one_line}",
            "train longer, check the documents with `bertworks doctor STORE`, or train with --objective mlm",
            {"loss": loss, "accuracy": accuracy},
        )


def single_sentences(store: Store) -> float:
    """The share of the training documents that have one sentence."""
    counts = np.concatenate([np.diff(shard.documents) for shard in store.shards("train")])
    return float((counts == 1).mean())


def updates(run: PretrainingRun) -> Iterator[Finding]:
    """Few updates, and many passes over the same text."""
    steps = run.files.steps
    tokens = float(run.files.results.get("tokens") or (run.files.values("tokens") or [0.0])[-1])
    if run.files.results and steps < FEW:
        yield Finding(
            "warning",
            f"{steps:,} updates, {tokens:,.0f} tokens",
            f"train for {FEW:,} updates or more; a smaller batch makes more of them from the same tokens",
            {"steps": steps, "tokens": tokens},
        )
    if run.store is not None:
        size = sum(shard.n_tokens for shard in run.store.shards("train"))
        if tokens > OFTEN * size:
            yield Finding(
                "warning",
                f"{tokens / size:.0f} passes over the {size:,} tokens of the store",
                "train on more text, or for fewer updates",
                {"passes": tokens / size},
            )


def same_store(run: PretrainingRun) -> Iterator[Finding]:
    """A store that is not the one of the run."""
    if run.store is None or not run.files.results.get("corpus"):
        raise NotChecked("needs the store (--corpus)")
    if run.store.fingerprint != run.files.results["corpus"]:
        yield Finding("warning", f"{run.store.folder} is not the store that the run was trained on", "give that one")


CHECKS: dict[str, Callable[[PretrainingRun], Iterable[Finding]]] = {
    "plateau": plateau,
    "predictions at [MASK]": at_masks,
    "next sentence": next_sentence,
    "updates": updates,
    "store of the run": same_store,
}
