"""Fine-tuned runs: collapsed, no better than the baseline, labels in another order, few updates, truncated examples."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checkpoint.locate import CONFIG
from ...checkpoint.metadata import labels_of
from ...files import read_json_object
from ...finetuning.recipe import OWN_TABLE_STEPS
from ...reporting.results import COLLAPSED
from ...reporting.run_files import PREDICTIONS, read_json_lines
from ...reporting.tables import counted
from ...tasks.checks import TRUNCATED, Finding, named, percent
from .runs import RunFiles

SWAPPED = 0.2  # by which another order of the labels has to be more accurate
ERROR_PROBABILITY = 0.01  # of reporting another order of the labels for independent predictions
UNSTABLE = 0.05  # standard deviation over seeds
SHOWN = 4  # labels that a finding lists


@dataclass(frozen=True)
class FinetunedRun:
    """A fine-tuned run."""

    files: RunFiles

    @property
    def results(self) -> dict[str, Any]:
        """results.json; {} if the run is not finished."""
        return self.files.results

    def examples(self, split: str) -> int:
        """Number of examples."""
        return int((self.results.get("examples") or {}).get(split) or 0)

    @property
    def is_short(self) -> bool:
        """Whether more updates may be all that is missing."""
        return self.files.steps < OWN_TABLE_STEPS and not self.results.get("stopped_early")

    @property
    def settings(self) -> dict[str, Any]:
        """config.json of its model, or {}."""
        path = self.files.folder / "model" / CONFIG
        return read_json_object(path) if path.is_file() else {}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(label, prediction) of each development example; [] if they are not one class each."""
        path = self.files.folder / PREDICTIONS
        if not path.is_file() or self.settings.get("problem_type") == "multi_label_classification":
            return []
        pairs = [(row.get("label"), row.get("predicted")) for row in read_json_lines(path, {})]
        return pairs if all(isinstance(name, str) for pair in pairs for name in pair) else []


MORE_UPDATES = f"train for at least {OWN_TABLE_STEPS} updates (epochs or loop.steps)"


def score(run: FinetunedRun) -> Iterator[Finding]:
    """The same answer for every example, or a score of the majority-class baseline."""
    results = run.results
    name = next((name for name in run.files.metrics if name not in ("loss", "seconds")), None)
    if not results or name is None:
        return
    advice = "try another seed, more epochs, another optim.lr (lower for large encoders), or more labelled examples"
    if run.is_short:
        advice = f"the run had few updates ({run.files.steps}): {MORE_UPDATES}"
    value, majority, n = run.files.metrics[name], results.get("majority") or 0.0, run.examples("dev")
    error = math.sqrt(majority * (1 - majority) / n) if n and 0 < majority < 1 else 0.0
    if results.get("collapsed") is True:
        answer = Counter(results.get("predicted") or {}).most_common(1)
        yield Finding("score", "error", f"{COLLAPSED}{f', {named(answer[0][0])}' if answer else ''}", advice)
    elif value <= majority + error:
        evidence = f"{name} {value:.3f} on {n:,} development examples; the majority-class baseline has {majority:.3f}"
        yield Finding("score", "warning", evidence, advice)


def label_order(run: FinetunedRun) -> Iterator[Finding]:
    """Predictions that would be right under other names, and labels that config.json lacks."""
    pairs = run.pairs
    names = sorted({name for pair in pairs for name in pair})
    if not pairs:
        return
    table = np.zeros((len(names), len(names)))
    for true, predicted in pairs:
        table[names.index(true), names.index(predicted)] += 1
    from scipy.optimize import linear_sum_assignment

    best = table[linear_sum_assignment(-table)].sum() / len(pairs)
    accuracy, majority = table.trace() / len(pairs), table.sum(1).max() / len(pairs)
    if best > max(accuracy + SWAPPED, _best_of_independent(table)) and accuracy < majority:
        evidence = f"accuracy {accuracy:.3f}, but {best:.3f} with other names of the labels: their order differs"
        advice = "compare id2label in config.json with the label column; evaluate matches them by name"
        yield Finding("label order", "error", evidence, advice)
    labels = labels_of(run.settings, CONFIG) if run.settings else None
    if labels is not None and (missing := [name for name in names if name not in labels]):
        evidence = f"labels that {CONFIG} lacks: {', '.join(map(named, missing[:SHOWN]))}"
        yield Finding("label order", "error", evidence, f"restore {CONFIG}, or fine-tune again")


def _best_of_independent(table: NDArray[np.float64]) -> float:
    """The accuracy that the best renaming of the labels may have if data and predictions are independent.

    table: (L, L) examples by label and prediction. One renaming has at most the sorted frequencies multiplied, and by
    Hoeffding's inequality exceeds that by e in n examples with a probability of at most exp(-2 n e^2). The bound holds
    for all L! renamings together, with a probability of 1 - ERROR_PROBABILITY. A constant answer never exceeds it.
    """
    n = table.sum()
    true, predicted = (np.sort(table.sum(axis)) / n for axis in (1, 0))
    renamings = math.lgamma(len(table) + 1)  # the logarithm of L!
    return float(true @ predicted) + math.sqrt((renamings - math.log(ERROR_PROBABILITY)) / (2 * n))


def updates(run: FinetunedRun) -> Iterator[Finding]:
    """Too few updates, or examples that were never read."""
    batch, n, steps = run.files.recipe.get("batch_size") or 0, run.examples("train"), run.files.steps
    if not run.results or not n:
        return
    if run.is_short and not any(score(run)):  # whose finding reports it
        yield Finding("updates", "warning", counted(steps, "update"), MORE_UPDATES)
    [architecture, *_] = run.settings.get("architectures") or [""]
    if architecture.endswith(("ForTokenClassification", "ForQuestionAnswering")):
        return  # a batch has windows: several sentences, or parts of a context
    unread = n - steps * batch
    if batch and unread >= batch and not run.results.get("stopped_early"):  # a last batch that is not full is left out
        evidence = f"{counted(steps, 'update')} of {batch} examples: {unread:,} of {n:,} were never read"
        yield Finding("updates", "warning", evidence, "train for more epochs")


def truncation(run: FinetunedRun) -> Iterator[Finding]:
    """Examples that were truncated."""
    for split, cut in (run.results.get("truncation") or {}).items():
        n, examples = run.examples(split), cut.get("examples") or 0
        if n and examples >= TRUNCATED * n:
            evidence = f"truncated {split} examples: {examples:,} of {n:,} ({percent(examples / n)}), by "
            evidence += f"{cut['tokens'] / examples:.0f} tokens on average"
            advice = "set a longer max_seq_length if the model has the positions"
            yield Finding("truncation", "warning", evidence, advice)


def seeds(run: RunFiles) -> Iterator[Finding]:
    """Seeds that collapsed, and scores that differ much between seeds."""
    metrics, names = run.results.get("runs") or [], run.results.get("seeds") or []
    collapsed = run.results.get("collapsed") or [False] * len(metrics)
    if not metrics or not isinstance(collapsed, list):
        return
    if fallen := [str(seed) for seed, bad in zip(names, collapsed, strict=False) if bad]:
        advice = "report means with and without them; optim.rule = 'adamw' and more epochs make fine-tuning stabler"
        evidence = f"collapsed seeds: {len(fallen)} of {len(metrics)} ({', '.join(fallen)})"
        yield Finding("seeds", "warning", evidence, advice)
    name = next(name for name in metrics[0] if name != "loss")
    values = [one[name] for one, bad in zip(metrics, collapsed, strict=False) if not bad]
    if len(values) > 1 and (deviation := statistics.stdev(values)) > UNSTABLE:
        evidence = f"{name} has a standard deviation of {100 * deviation:.1f} points over {len(values)} seeds"
        yield Finding("seeds", "warning", evidence, "train more seeds before you compare runs; see the recipe stable")


CHECKS: tuple[Callable[[FinetunedRun], Iterable[Finding]], ...] = (score, label_order, updates, truncation)
SEED_CHECKS = (seeds,)
