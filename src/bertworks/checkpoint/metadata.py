"""What a model folder says beside its encoder and weights: labels, task, top, the longest input."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ..config import from_dict
from ..files import InputError, read_json_object, shorten
from ..model.config import TopConfig
from ..model.heads import Model
from ..typed import check_fields
from .locate import CONFIG
from .names import LABELS, TOP, listed

TASK = "bertworks_task"  # our key in config.json
LABELLED = {"classifier", "tagger"}  # heads whose outputs have names
_PROBLEMS = {"regression": "regression", "multilabel": "multi_label_classification"}  # of all other kinds: single_label
_KINDS = {  # the kinds of task that a head can be for
    "classifier": ("single", "pair", "regression", "multilabel"),
    "choice": ("choice",),
    "tagger": ("tagging",),
    "span": ("span",),
}


class Metadata(TypedDict):
    """Arguments of `save_folder`."""

    labels: list[str] | None
    max_length: int | None
    task: dict[str, Any] | None


def metadata_of(folder: Path, settings: dict[str, Any], model: Model) -> Metadata:
    """The labels, the longest input and the task of a folder with this config.json, for a `model` made from it.

    Labels and task are left out if `model` no longer has their head.
    """
    head = model.supervised_head
    labels = labels_of(settings, str(folder / CONFIG)) if LABELLED & {*model.heads} else None
    length = input_length(folder, model.config.max_length)
    return Metadata(labels=labels, max_length=length, task=task_of(settings, head) if head else None)


def input_length(folder: Path, positions: int) -> int:
    """How many tokens an input of this folder may have: as many as in its fine-tuning, at most its positions.

    Raises InputError if its tokenizer_config.json is no table, or says something else than a number of tokens.
    """
    file = folder / "tokenizer_config.json"
    settings = read_json_object(file) if file.exists() else {}
    length = settings.get("model_max_length", settings.get("max_len"))  # the second is an old name
    if not isinstance(length, int | float | None) or isinstance(length, bool):
        raise InputError(f"{file}: model_max_length = {shorten(length)}; expected a number of tokens")
    return int(min(length, positions)) if length and length > 2 else positions


def top_of(settings: Mapping[str, Any], where: str) -> TopConfig:
    """The top of a folder; the defaults if its config.json names none."""
    return from_dict(TopConfig, settings.get(TOP, {}), where)


# ---- labels


def labels_of(settings: Mapping[str, Any], where: str) -> list[str] | None:
    """Names of a classifier's classes in order; None if config.json names none.

    Raises InputError if their numbers have gaps, two have one name, or a name is no text that can be written.
    """
    names = settings.get("id2label")
    if not names:
        return None
    try:
        by_number = {int(number): str(label) for number, label in names.items()}
        labels = [by_number[i] for i in range(len(names))]
        "".join(labels).encode()
    except (KeyError, ValueError, AttributeError):
        raise InputError(f"{where}: id2label = {shorten(names)}; expected one label for each number from 0") from None
    if twice := next((label for label, count in Counter(labels).items() if count > 1), None):
        raise InputError(
            f"{where}: id2label has the name {shorten(twice)} twice; expected different names, since results are keyed "
            "by them; rename one"
        )
    return labels


def label_settings(labels: list[str], classifier: bool, task: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keys of config.json that name labels; of a classifier also the `problem_type` of transformers."""
    out: dict[str, Any] = {"id2label": {str(i): label for i, label in enumerate(labels)}}
    out["label2id"] = {label: i for i, label in enumerate(labels)}
    if classifier:
        kind = (task or {}).get("kind") or ("regression" if len(labels) == 1 else "single")
        if len(labels) > 1 or kind in _PROBLEMS:  # transformers has no name for the probability of a single output
            out["problem_type"] = _PROBLEMS.get(kind, "single_label_classification")
    return out


# ---- the task


_COUNT = range(1, 1 << 31)
_TASK_FORM = {  # the settings of a task that are read again
    "kind?": str,
    "name?": str,
    "text?": [str],  # columns of the user's own table
    "words?": [str],
    "label?": str,
    "choices?": [str],
    "version_2?": bool,
    "null_score_diff_threshold?": float,
    "characters?": bool,
    "thresholds?": {str: float},  # of several labels, by name
    "thresholds_from?": {"rows": _COUNT, "chosen_on": str},  # how many rows chose them, and the name of their file
    "doc_stride?": _COUNT,
    "max_query_length?": _COUNT,
    "n_best_size?": _COUNT,
    "max_answer_length?": _COUNT,
    "scale?": float,  # of an embedder: see `stored_scale`
}


def stored_scale(folder: Path) -> float:
    """What an embedder's folder says its training scores were divided by; 0 if it says nothing.

    Raises InputError if that is no positive number.
    """
    path = folder / CONFIG
    scale = float(stored_task(read_json_object(path).get(TASK) or {}, str(path)).get("scale", 0.0))
    if not 0 <= scale < float("inf"):
        raise InputError(f"{path}: {TASK}.scale = {scale}; expected a positive number; restore the file")
    return scale


def task_of(settings: Mapping[str, Any], head: str, where: str = CONFIG) -> dict[str, Any]:
    """The task a folder was fine-tuned for: its `kind`, and what the run stored, such as a tuned threshold.

    A folder of other software stores none; then its head and `_classifier_kind` give the kind. Raises InputError if a
    stored value has the wrong type, or if the head cannot be for this kind.
    """
    kind = _classifier_kind(settings, where) if head == "classifier" else _KINDS[head][0]
    task: dict[str, Any] = {"kind": kind, **(settings.get(TASK) or {})}
    if task["kind"] not in _KINDS[head]:
        expected = ", ".join(_KINDS[head])
        raise InputError(f"{where}: {TASK}.kind = {shorten(task['kind'])} of a {head}; expected {expected}")
    return stored_task(task, where)


def _classifier_kind(settings: Mapping[str, Any], where: str) -> str:
    """The kind of a classifier of other software, which says what is applied to its scores.

    As in the pipeline of transformers, a single output is a probability unless `problem_type` is regression. Without a
    `problem_type` the activation function of a CrossEncoder of sentence-transformers counts. Raises InputError for one
    that is not computed here.
    """
    if problem := settings.get("problem_type"):
        return {hf_kind: kind for kind, hf_kind in _PROBLEMS.items()}.get(problem, "single")
    stored = settings.get("sentence_transformers") or {}
    name = stored.get("activation_fn") or settings.get("sbert_ce_default_activation_function")
    if not name:
        return "single"
    kinds = {"Identity": "single", "Softmax": "single", "Sigmoid": "multilabel"}
    if len(settings.get("id2label") or ()) == 1:
        kinds = {"Identity": "regression", "Sigmoid": "single"}
    package, _, function = name.rpartition(".")
    if not package.startswith("torch.nn") or function not in kinds:
        expected = ", ".join(f"torch.nn.{one}" for one in kinds)
        raise InputError(f"{where}: activation_fn = {shorten(name)}, which is not computed here; expected {expected}")
    return kinds[function]


def stored_task(task: dict[str, Any], where: str = CONFIG) -> dict[str, Any]:
    """What a config.json says of its task, unchanged. Raises InputError if a value has the wrong type."""
    check_fields(task, _TASK_FORM, f"{where}: {TASK}")
    return task


def check_thresholds(task: Mapping[str, Any], labels: Sequence[str], where: str) -> None:
    """Raises InputError for a threshold of a label that the folder does not have, or that is no probability."""
    for name, value in task.get("thresholds", {}).items():
        if name not in labels or not 0 <= value <= 1:
            raise InputError(
                f"{where}: {TASK}.thresholds has {value} for the label {shorten(name)}; expected probabilities of "
                f"{listed([*map(shorten, labels)], LABELS)}; remove or correct the thresholds"
            )
