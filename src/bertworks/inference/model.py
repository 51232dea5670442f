"""A model folder in memory, with everything stored beside the weights: what predictions, evaluation and probes share.

Shapes: S sequences, T tokens of all sequences, K outputs of the head.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch, to_device
from ..checkpoint.folder import find_model, load_model, load_tokenizer, read_config
from ..checkpoint.locate import CONFIG, ModelLike, is_export
from ..checkpoint.metadata import check_thresholds, input_length, labels_of, task_of
from ..checkpoint.pooling import Pooling
from ..checkpoint.start import network_of
from ..files import InputError, shorten
from ..model.acceleration import for_inference
from ..model.heads import Model
from ..tasks.base import LengthLimits
from ..tasks.inputs import Inputs, compute_scores
from ..tasks.kinds import KINDS
from ..tasks.rows import check_integer
from ..tasks.sequences import Integers
from ..tokenizer import Tokenizer
from ..training.distributed import World
from ..workers import openmp
from .engines import Packed, Precision, supported_precision
from .exported import Exported, check_export, empty_model

SCORES = 1 << 26  # of all tokens of the vocabulary, in memory at a time: 256 MB
BATCH = 32  # sequences a forward pass
TOKENS = {"cpu": 2048, "cuda": 32768}  # of a forward pass for vectors or tokens, padding included


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory, on one device."""

    folder: Path
    model: Model
    tokenizer: Tokenizer
    labels: tuple[str, ...]  # names of the outputs of a classifier or tagger; () for every other head
    settings: dict[str, Any]  # `kind` and what fine-tuning stored, such as a tuned threshold; {} without a task
    limits: LengthLimits
    device: torch.device
    precision: str = "float32"  # of weights and products (engines.py)

    @property
    def texts_a_row(self) -> int:
        """How many texts a classifier was fine-tuned on in each row, 1 or 2; 0 where the folder does not say it."""
        if self.settings.get("text"):
            return len(self.settings["text"])
        return {"single": 1, "pair": 2}.get(self.kind, 0) if "name" in self.settings else 0

    @classmethod
    def load(
        cls,
        path: Path | str,
        max_length: int | None = None,
        device: str | None = None,
        precision: Precision = "float32",
        network: Model | None = None,
    ) -> "LoadedModel":
        """The model of a model folder, run folder or exported folder, with or without a supervised head.

        network: a model in memory that was loaded from the folder, whose weights are used instead of the folder's.
        max_length: tokens an input may have; by default the length of fine-tuning, else the model's positions.
        device: by default the GPU if there is one. Raises InputError if the folder is incomplete or damaged, or
        max_length is no integer or exceeds the positions, or an export shall compute in another precision than its own.
        """
        openmp.watch()
        openmp.one_thread_after_fork()
        folder = find_model(path)
        config, whole = read_config(folder)
        exported = is_export(folder)
        if exported:
            check_export(folder)
        tokenizer = load_tokenizer(folder)
        model = network or (empty_model(folder) if exported else load_model(folder))
        head = model.supervised_head
        settings = task_of(whole, head, str(folder / CONFIG)) if head else {}
        positions = check_length(max_length, 3, config.max_length)
        stored = {f.name: settings[f.name] for f in fields(LengthLimits) if f.name in settings}
        limits = LengthLimits(**stored | {"max_seq_length": max_length or input_length(folder, positions)})
        if exported and (precision == "bfloat16" or str(device or "cpu") != "cpu"):
            what = f"{folder} is an export, which has a precision of its own"
            raise InputError(f"{what}; leave precision out, and device too, since it is for CPUs")
        where = device_of("cpu" if exported else device)
        computed = supported_precision(precision, where)
        names = _output_names(folder, model, whole)
        check_thresholds(settings, names, str(folder / CONFIG))
        model = model if exported else model.to(where)
        return cls(folder, model, tokenizer, names, settings, limits, where, computed)

    @classmethod
    def of(cls, model: ModelLike, max_length: int | None = None, precision: Precision = "float32") -> "LoadedModel":
        """A loaded model as it is, or that of a folder or of a model in memory, as `load`."""
        loaded = getattr(model, "loaded", model)
        if isinstance(loaded, LoadedModel):
            same = max_length in (None, loaded.limits.max_seq_length)
            return loaded if same else cls.load(loaded.folder, max_length, precision=precision)
        return cls.load(find_model(model), max_length, precision=precision, network=network_of(model))

    @functools.cached_property
    def network(self) -> Model:
        """The model in evaluation mode, in float32, with the fastest matrix products of this machine."""
        return for_inference(self.model)

    @functools.cached_property
    def engine(self) -> Packed | Exported:
        """What computes scores and vectors; of an exported folder the engine that it was made for."""
        if is_export(self.folder):
            return Exported(self.folder, self.model)
        return Packed(self.model, self.precision)

    @property
    def kind(self) -> str:
        """The kind of task that the folder was fine-tuned for; "" if it was only pre-trained."""
        return str(self.settings.get("kind", ""))

    def check_language_model(self) -> None:
        """Raises InputError if the folder has no head that predicts tokens."""
        if "mlm" not in self.model.heads:
            raise InputError(f"{self.folder} has no masked-LM head, which predicts tokens; use a pre-trained folder")

    def check_head(self, kind: str) -> None:
        """Raises InputError if the folder has no head for this kind of task."""
        head = KINDS[kind].head
        if head is not None and head not in self.model.heads:
            raise InputError(
                f"{self.folder} has no {head}, which tasks of the kind {kind!r} need; "
                f"fine-tune it first: bertworks finetune --model {self.folder} ..."
            )

    def check_kind(self, kind: str) -> None:
        """Raises InputError if the folder was not fine-tuned for this kind of task; single and pair count as one."""
        self.check_head(kind)
        own_kind, outputs = self.kind, len(self.labels)
        if kind == "regression" and own_kind == "single" and outputs == 1:
            return  # of other software: its probability is compared with the numbers
        if own_kind != kind and {own_kind, kind} & {"regression", "multilabel"}:
            raise InputError(f"{self.folder} was fine-tuned for the kind {own_kind}; expected one for {kind}")
        if kind == "regression" and outputs > 1:
            raise InputError(f"{self.folder} has {outputs} outputs; expected one for {kind}")

    def scores(self, inputs: Inputs, batch_size: int = BATCH, head: str = "") -> Tensor:
        """Scores of a head before any softmax, on the CPU: (S, K), of a token head (T, K).

        head: its name; the supervised one if left out. Raises InputError if a score is NaN or infinite.
        """
        world = World(0, 1, self.device)
        return self.check_finite(compute_scores(self.model, inputs, world, batch_size, head, self.engine.scores))

    @torch.no_grad()
    def pooled(self, inputs: Inputs, pooling: Pooling) -> Tensor:
        """(S, D) vectors of sequences, on the CPU, pooled as sentence-transformers does.

        Special tokens count, as they do there. Raises InputError if a number is NaN or infinite.
        """
        out = torch.empty(len(inputs.first), self.model.encoder.width)
        for rows, batch in batches(inputs, self.device):
            vectors = pooling.pool(self.engine.states(batch), batch["attention_mask"])
            out[torch.from_numpy(inputs.sequences(rows))] = vectors.cpu()
        return self.check_finite(out)

    @torch.no_grad()
    def token_scores(self, inputs: Inputs, requested: NDArray[np.bool_]) -> Iterator[tuple[Integers, Tensor]]:
        """The scores of the masked-LM head at the wanted (T,) tokens: for each batch their numbers, and (., V) scores.

        Raises InputError if a score is NaN or infinite.
        """
        scored = requested.mean() if isinstance(self.engine, Packed) else 1.0  # an export scores every token
        most = SCORES / (self.model.config.vocab_size * scored)
        for rows, batch in batches(inputs, self.device, int(most)):
            tokens = inputs.tokens(rows)
            here = torch.from_numpy(requested[tokens]).to(self.device)
            positions = batch["attention_mask"].flatten().nonzero().squeeze(1)[here]
            yield tokens[requested[tokens]], self.check_finite(self.engine.masked(batch, positions))

    def check_finite(self, values: Tensor) -> Tensor:
        """The same values. Raises InputError if one is NaN or infinite."""
        if not values.isfinite().all():
            raise InputError(
                f"{self.folder}: the model computes NaN or infinity, although its weights are finite; they are too "
                "large: use the model of an earlier step, or train with a lower learning rate"
            )
        return values


def check_length(max_length: int | None, least: int, positions: int) -> int:
    """The positions. Raises InputError for another `max_length` than None or an integer from `least` to them."""
    if max_length is not None:
        check_integer(max_length, "max_length")
        if not least <= max_length <= positions:
            raise InputError(f"max_length = {max_length}; expected {least} to {positions}, the positions of the model")
    return positions


def batches(inputs: Inputs, device: torch.device, most: int = TOKENS["cuda"]) -> Iterator[tuple[Integers, Batch]]:
    """Examples of similar lengths, and their batch on the device, in TOKENS at a time, or in `most` of them."""
    for rows in inputs.by_length(tokens=max(256, min(most, TOKENS.get(device.type, TOKENS["cpu"])))):
        yield rows, to_device(inputs.batch(rows), device)


def device_of(name: str | None) -> torch.device:
    """The device of this name; None: the GPU if there is one, else the CPU.

    Raises InputError for other names, and for a GPU that does not exist.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.ones(1, device=device).item()  # meta has no values, and a GPU may not be there
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device = {shorten(name)}: {reason}; expected cpu, cuda, or cuda:1 of several GPUs") from None
    return device


def _output_names(folder: Path, model: Model, settings: dict[str, Any]) -> tuple[str, ...]:
    head = next((model.heads[name] for name in ("classifier", "tagger") if name in model.heads), None)
    if head is None:
        return ()
    names = labels_of(settings, str(folder / "config.json"))
    return tuple(names or [f"LABEL_{i}" for i in range(head.out_features)])  # type: ignore[arg-type]
