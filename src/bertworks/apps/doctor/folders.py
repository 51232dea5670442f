"""Model folders: config.json against the weights, odd weights, tokenizer files that disagree, a card."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checkpoint.folder import FolderContents, assemble, load_tokenizer, read_config
from ...checkpoint.metadata import labels_of
from ...checkpoint.names import listed
from ...checkpoint.weights import is_export, read_weights, refuse_export
from ...files import InputError, read_json, read_json_object
from ...inference.exported import check_export
from ...model.config import ModelConfig
from ...tokenizer import Tokenizer
from ...tokenizer.check import misfits
from ...tokenizer.pipeline import lowercases
from ...tokenizer.wordpiece import ids_of_lines, read_vocab
from .findings import Finding, NotChecked, named, percent

DENORMAL = 0.001  # share of the weights
CARD, VOCAB, TOKENIZER_CONFIG = "README.md", "vocab.txt", "tokenizer_config.json"


@dataclass(frozen=True)
class ModelFolder:
    """A model folder."""

    folder: Path

    @cached_property
    def config(self) -> tuple[ModelConfig, dict[str, Any]]:
        """The shape and all settings. Raises InputError if config.json cannot be used."""
        return read_config(self.folder)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names in the file. Raises InputError if they cannot be read, NotChecked for an export."""
        try:
            refuse_export(self.folder)
        except InputError as error:
            raise NotChecked(str(error)) from None
        return read_weights(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer. Raises InputError if it does not fit the embedding table."""
        return load_tokenizer(self.folder)


def weights(found: ModelFolder) -> Iterator[Finding]:
    """config.json against the weights: tensors that are missing, left over or of another shape; unread ones.

    Of an export, whether its files are those of its certificate.
    """
    if is_export(found.folder):
        if note := check_export(found.folder):  # raises InputError, which is the finding
            yield Finding("note", note)
        return
    config, settings = found.config
    assemble(config, settings, found.tensors, found.folder, finite=False)  # raises InputError, which is the finding
    contents = FolderContents.of(config, settings, found.tensors, found.folder)
    if contents.unread:
        yield Finding(
            "note",
            f"the class in config.json does not read {len(contents.unread)} tensors: {listed(contents.unread, 3)}",
            "nothing is lost for this class; other software may ignore them too",
        )


def values(found: ModelFolder) -> Iterator[Finding]:
    """NaN and infinity, matrices of zeros or of one value, denormal numbers."""
    floats = {name: tensor for name, tensor in found.tensors.items() if tensor.is_floating_point() and tensor.numel()}
    kinds: dict[str, list[str]] = {"bad": [], "zero": [], "constant": []}
    tiny = total = 0
    for name, tensor in floats.items():
        low, high = (float(edge) for edge in torch.aminmax(tensor))
        if not (torch.isfinite(torch.tensor([low, high])).all()):
            kinds["bad"].append(name)
        elif tensor.ndim > 1 and low == high:
            kinds["zero" if low == 0 else "constant"].append(name)
        elif tensor.ndim == 1 and name.endswith(("LayerNorm.weight", "norm.weight")) and low == high == 0:
            kinds["zero"].append(name)
        if tensor.dtype == torch.float32:
            small = torch.finfo(torch.float32).tiny
            tiny += int(((tensor.abs() < small) & (tensor != 0)).sum())
            total += tensor.numel()
    says = {
        "bad": (
            "error",
            "not finite (NaN or infinity):",
            "use an earlier checkpoint: the training diverged, or the file is damaged",
        ),
        "zero": (
            "error",
            "all values are 0 in",
            "the weights were never written, or never initialised: save them again",
        ),
        "constant": (
            "warning",
            "all values are equal in",
            "such a layer cannot tell inputs apart: was it initialised?",
        ),
    }
    for kind, names in kinds.items():
        if names:
            severity, what, advice = says[kind]
            yield Finding(severity, f"{what} {listed(sorted(names), 3)}", advice, {"tensors": len(names)})  # type: ignore[arg-type]
    if tiny > DENORMAL * max(1, total):
        yield Finding(
            "warning",
            f"{percent(tiny / total)} of the weights are denormal (below 1.2e-38): many processors compute them slowly",
            "set them to 0, or call torch.set_flush_denormal(True) before using the model",
            {"share": tiny / total},
        )


def tokenizer(found: ModelFolder) -> Iterator[Finding]:
    """A tokenizer of another model, files that disagree, a vocabulary that contradicts its rules."""
    if not (found.folder / "tokenizer.json").exists() and not (found.folder / VOCAB).exists():
        raise NotChecked("the folder has no tokenizer")
    own = found.tokenizer
    for warning in misfits(own):
        yield Finding("error", warning.rstrip("."))
    if differing_vocab(found.folder, own):
        yield Finding(
            "error",
            f"{VOCAB} and tokenizer.json have different tokens: software that reads {VOCAB} gets other ids",
            f"--fix writes {VOCAB} anew from tokenizer.json",
        )
    path = found.folder / TOKENIZER_CONFIG
    settings = read_json_object(path) if path.exists() else {}
    lower, length = settings.get("do_lower_case"), settings.get("model_max_length")
    rules = found.folder / "tokenizer.json"
    lowers = lowercases(read_json(rules)) if rules.exists() else own.lowercase
    if isinstance(lower, bool) and own.kind == "wordpiece" and lower != lowers:
        yield Finding(
            "warning",
            f"do_lower_case = {str(lower).lower()} in {TOKENIZER_CONFIG}, but tokenizer.json "
            f"{'lower-cases' if lowers else 'keeps capitals'}",
            "correct do_lower_case: software that rebuilds the tokenizer from it gets other tokens, as bertworks does "
            "where no PreTrainedTokenizerFast is named",
        )
    positions = found.config[0].max_length
    if isinstance(length, int) and positions < length < 1_000_000:
        yield Finding(
            "warning",
            f"model_max_length = {length:,} in {TOKENIZER_CONFIG}, but the model has {positions:,} positions",
            f"set it to {positions}: other software cuts its inputs there",
        )


def differing_vocab(folder: Path, own: Tokenizer) -> bool:
    """Whether vocab.txt, beside a tokenizer.json, has other tokens than that; it may lack the added ones at the end."""
    path = folder / VOCAB
    if own.kind != "wordpiece" or not path.exists() or not (folder / "tokenizer.json").exists():
        return False
    found, expected = read_vocab(path), ids_of_lines(own.vocab)
    rest = own.vocab[len(found) :]
    return found | {token: expected[token] for token in rest} != expected or not own.added.issuperset(rest)


def labels(found: ModelFolder) -> Iterator[Finding]:
    """Classes without names, or with other numbers in label2id than in id2label."""
    names = labels_of(found.config[1], str(found.folder / "config.json"))
    if names is None:
        raise NotChecked("the folder names no labels")
    yield from _contradiction(names, found.config[1].get("label2id"))
    if len(names) > 1 and names == [f"LABEL_{i}" for i in range(len(names))]:
        yield Finding(
            "note",
            f"the {len(names)} classes have no names (LABEL_0, ...): rows are matched by name",
            "write the names into id2label and label2id of config.json, in the order of training",
        )


def _contradiction(names: list[str], numbers: Any) -> Iterator[Finding]:
    """label2id of config.json that is not the reverse of id2label, whose names are `names`; one of the two may miss."""
    if not isinstance(numbers, dict):
        return
    other = [name for i, name in enumerate(names) if name in numbers and str(numbers[name]) != str(i)]
    missing = [name for name in names if name not in numbers]
    strange = [str(name) for name in numbers if name not in names]
    if other:
        number = names.index(other[0])
        said = f"class {number} is {named(other[0])} in id2label, but label2id gives it {numbers[other[0]]}"
    elif missing or strange:
        which = ("id2label", "label2id") if missing else ("label2id", "id2label")
        said = f"{which[0]} names {named((missing or strange)[0])}, {which[1]} does not"
    else:
        return
    yield Finding(
        "error" if other else "note",
        f"id2label and label2id of config.json contradict each other: {said}",
        "correct label2id, or id2label if that is wrong: predictions are named by id2label, here and elsewhere",
        {"labels": len(other) or len(missing) + len(strange)},
    )


def card(found: ModelFolder) -> Iterator[Finding]:
    """No model card."""
    if not (found.folder / CARD).is_file():
        yield Finding("note", f"no model card ({CARD})", "--fix writes one from config.json and the weights")


CHECKS: dict[str, Callable[[ModelFolder], Iterable[Finding]]] = {
    "config and weights": weights,
    "values": values,
    "tokenizer": tokenizer,
    "names of labels": labels,
    "card": card,
}
