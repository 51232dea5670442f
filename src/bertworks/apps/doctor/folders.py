"""Model folders: config.json against the weights, odd weights, tokenizer files that disagree, names of labels."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checkpoint.folder import FolderContents, assemble, load_tokenizer, read_config
from ...checkpoint.locate import CONFIG
from ...checkpoint.metadata import labels_of
from ...checkpoint.names import listed
from ...checkpoint.weights import is_export, read_weights
from ...files import read_json, read_json_object
from ...inference.exported import check_export
from ...model.config import ModelConfig
from ...tasks.checks import Finding, named, percent
from ...tokenizer import Tokenizer
from ...tokenizer.check import normalizer_mismatch
from ...tokenizer.pipeline import lowercases
from ...tokenizer.wordpiece import ids_of_lines, read_vocab

DENORMAL = 0.001  # fraction of the weights
VOCAB, TOKENIZER, TOKENIZER_CONFIG = "vocab.txt", "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class ModelFolder:
    """A model folder, or an export."""

    folder: Path

    @cached_property
    def config(self) -> tuple[ModelConfig, dict[str, Any]]:
        """The shape and all settings. Raises InputError if config.json cannot be used."""
        return read_config(self.folder)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by the names in the file; {} of an export. Raises InputError if they cannot be read."""
        return {} if is_export(self.folder) else read_weights(self.folder)


def weights(model: ModelFolder) -> Iterator[Finding]:
    """Tensors that are missing, left over, unread or of another shape; files of an export that were altered."""
    if is_export(model.folder):
        check_export(model.folder)  # raises InputError, which is the finding
        return
    config, settings = model.config
    assemble(config, settings, model.tensors, model.folder, finite=False)  # raises InputError, which is the finding
    unread = FolderContents.of(config, settings, model.tensors, model.folder).unread
    if unread:
        evidence = f"tensors that the class in config.json does not read: {len(unread)}: {listed(unread, 3)}"
        yield Finding("weights", "note", evidence, "nothing is lost for this class")


def values(model: ModelFolder) -> Iterator[Finding]:
    """NaN and infinity, matrices of zeros or of one value, denormal numbers."""
    bad, zero, constant = list[str](), list[str](), list[str]()
    denormal = total = 0
    for name, tensor in sorted(model.tensors.items()):
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        low, high = (float(edge) for edge in torch.aminmax(tensor))
        scale = tensor.ndim == 1 and name.endswith(("LayerNorm.weight", "norm.weight"))
        if not tensor.isfinite().all():
            bad.append(name)
        elif low == high and (tensor.ndim > 1 or (scale and low == 0)):
            (constant if low else zero).append(name)
        if tensor.dtype == torch.float32:
            smallest = torch.finfo(torch.float32).tiny
            denormal += int(((tensor.abs() < smallest) & (tensor != 0)).sum())
            total += tensor.numel()
    if bad:
        advice = "use an earlier checkpoint: the training diverged, or the file is damaged"
        yield Finding("values", "error", f"not finite (NaN or infinity): {listed(bad, 3)}", advice)
    if zero:
        advice = "the weights were never written or initialized: save them again"
        yield Finding("values", "error", f"all values are 0 in {listed(zero, 3)}", advice)
    if constant:
        advice = "such a layer cannot distinguish inputs: was it initialized?"
        yield Finding("values", "warning", f"all values are equal in {listed(constant, 3)}", advice)
    if denormal > DENORMAL * max(1, total):
        evidence = f"{percent(denormal / total)} of the weights are denormal (below 1.2e-38), which is slow to compute"
        yield Finding("values", "warning", evidence, "set them to 0, or call torch.set_flush_denormal(True)")


def tokenizer(model: ModelFolder) -> Iterator[Finding]:
    """A tokenizer of another model, files that disagree, a vocabulary that contradicts its normalizer."""
    folder, rules, file = model.folder, model.folder / TOKENIZER, model.folder / TOKENIZER_CONFIG
    if not rules.exists() and not (folder / VOCAB).exists():
        return
    own = load_tokenizer(folder)
    if contradiction := normalizer_mismatch(own):
        yield Finding("tokenizer", "error", contradiction)
    if differing_vocab(folder, own):
        evidence = f"{VOCAB} and {TOKENIZER} have different tokens: software that reads {VOCAB} gets other ids"
        yield Finding("tokenizer", "error", evidence, f"write the tokens of {TOKENIZER} into {VOCAB}, one per line")
    settings = read_json_object(file) if file.exists() else {}
    lower, length = settings.get("do_lower_case"), settings.get("model_max_length")
    lowers = lowercases(read_json(rules)) if rules.exists() else own.lowercase
    if isinstance(lower, bool) and own.kind == "wordpiece" and lower != lowers:
        evidence = f"do_lower_case = {str(lower).lower()} in {file.name}, but {TOKENIZER} "
        evidence += "lower-cases" if lowers else "keeps capitals"
        yield Finding("tokenizer", "warning", evidence, "correct do_lower_case: some software follows it")
    positions = model.config[0].max_length
    if isinstance(length, int) and positions < length < 1_000_000:
        evidence = f"model_max_length = {length:,} in {file.name}, but the model has {positions:,} positions"
        yield Finding("tokenizer", "warning", evidence, f"set it to {positions}: other software truncates there")


def differing_vocab(folder: Path, own: Tokenizer) -> bool:
    """Whether vocab.txt, beside a tokenizer.json, has other tokens than that; it may lack the added ones at the end."""
    path = folder / VOCAB
    if own.kind != "wordpiece" or not path.exists() or not (folder / "tokenizer.json").exists():
        return False
    tokens, expected = read_vocab(path), ids_of_lines(own.vocab)
    rest = own.vocab[len(tokens) :]
    return tokens | {token: expected[token] for token in rest} != expected or not own.added.issuperset(rest)


def labels(model: ModelFolder) -> Iterator[Finding]:
    """Classes without names, or with other numbers in label2id than in id2label."""
    names, numbers = labels_of(model.config[1], str(model.folder / CONFIG)), model.config[1].get("label2id")
    if names is None:
        return
    if isinstance(numbers, dict):
        expected = {name: str(i) for i, name in enumerate(names)}
        wrong = [name for name in names if name in numbers and str(numbers[name]) != expected[name]]
        missing = [str(name) for name in (*expected, *numbers) if (name in numbers) != (name in expected)]
        if wrong:
            evidence = f"id2label gives {named(wrong[0])} the number {expected[wrong[0]]}, label2id {numbers[wrong[0]]}"
            yield Finding("labels", "error", evidence, "correct label2id: predictions are named by id2label")
        elif missing:
            evidence = f"only one of id2label and label2id of {CONFIG} has {named(missing[0])}"
            yield Finding("labels", "note", evidence, "correct label2id: predictions are named by id2label")
    if len(names) > 1 and names == [f"LABEL_{i}" for i in range(len(names))]:
        evidence = f"the {len(names)} classes have no names (LABEL_0, ...), by which examples are matched"
        yield Finding("labels", "note", evidence, f"write the names into id2label and label2id of {CONFIG}")


CHECKS: tuple[Callable[[ModelFolder], Iterable[Finding]], ...] = (weights, values, tokenizer, labels)
