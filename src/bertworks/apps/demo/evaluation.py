"""What the demo's encoder is good for by itself: held-out documents and filled masks."""

from collections import Counter
from pathlib import Path

from ...batch import IGNORED
from ...checkpoint.folder import load_model
from ...data.batches import PretrainingData, Vocabulary
from ...data.masking import MaskingConfig
from ...data.store import Store
from ...inference.predictor import Predictor
from ...pretraining.recipe import PretrainConfig
from ...tokenizer import Tokenizer
from ...training.distributed import World, this_device
from ...training.loop import evaluate
from ...training.objectives import PretrainingObjective

SENTENCES = (
    "Return the [MASK] of the array along the given axis.",
    "Raises an error if the [MASK] does not exist.",
    "If True, the result is a [MASK] of the input.",
    "Compute the shortest path between two [MASK] of the graph.",
)


def evaluate_heldout(out: Path, config: PretrainConfig, batches: int = 40) -> dict[str, float]:
    """Loss and accuracy of both objectives on held-out documents, and those of guessing on the same ones.

    They are masked the paper's way, whatever pre-training used.
    """
    store, seen = Store.open(out / "heldout"), Store.open(out / "store")
    vocabulary = Vocabulary.of(Tokenizer.load(store.tokenizer_folder))
    length, seed = config.phases[-1].length, config.loop.seed
    data = PretrainingData(store, "train", vocabulary, length, config.instances, MaskingConfig(), seed)
    rows = list(data.batches(64, batches))
    world = World(0, 1, this_device())
    model = load_model(out / "pretrain" / "model").to(world.device)
    metrics = evaluate(model, PretrainingObjective(), rows, world)
    masked = [int(n) for batch in rows for n in batch["masked_labels"].tolist() if n != IGNORED]
    pairs = Counter(int(n) for batch in rows for n in batch["pair_labels"].tolist())
    frequent = int(seen.unigram_counts().argmax())
    guesses = {"mlm_guess": masked.count(frequent) / len(masked), "nsp_guess": max(pairs.values()) / pairs.total()}
    return (
        metrics | guesses | {"unigram_entropy": seen.unigram_entropy(), "masked": len(masked), "pairs": pairs.total()}
    )


def fill_masks(folder: Path) -> dict[str, list[str]]:
    """The three likeliest words for the mask of each sentence, with their probabilities."""
    predictor = Predictor(folder)
    found = zip(SENTENCES, predictor.fill_mask(SENTENCES, top_k=3), strict=True)
    return {sentence: [f"{c['token']} {c['score']:.0%}" for c in masks[0]] for sentence, masks in found}
