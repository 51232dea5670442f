"""Distillation in pre-training (Sanh et al. 2019, DistilBERT): a store and a teacher become a smaller student.

The student has the teacher's width, fewer of its layers, no segments and no pooler, and starts with the teacher's
weights. It learns to fill masks, to say what the teacher says there, and to have its last vectors. The run is one of
pre-training: same loop, same run folder, exact resume; results.json compares the two. Distillation on a task is part of
fine-tuning (finetuning/job.py).
"""

import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch, to_device
from ..checkpoint.folder import find_model, load_model, load_tokenizer, run_name
from ..checkpoint.weights import weights_checksum
from ..data.batches import Vocabulary
from ..data.instances import InstanceConfig
from ..data.masking import MaskingConfig
from ..data.store import Store
from ..files import InputError, checksum
from ..model.config import ModelConfig
from ..model.heads import Model, build_model
from ..model.prepare import compile_layers, for_inference
from ..tokenizer import Tokenizer
from ..training import machine
from ..training.loop import LoopConfig, autocast, evaluate
from ..training.objectives import DistillationObjective, PretrainingObjective
from ..training.optim import OptimConfig
from ..training.run import is_finished, opened_run
from .run import Phase, PretrainConfig, Run, finish, left_alone, prepare, run_identity, summary, train

METRICS = ("soft_loss", "mlm_loss", "mlm_accuracy", "cosine_loss")  # of an evaluation


@dataclass(frozen=True)
class DistillConfig:
    """A recipe of distillation. The defaults are DistilBERT's."""

    layers: tuple[int, ...] = ()  # the teacher's layers, from 0, that the student begins with; none: every second one
    from_teacher: bool = True  # false: the student begins with random weights, in the same shape
    temperature: float = 2.0  # of both softmaxes where the teacher's whole distribution is learned
    soft_targets: Literal["masked", "all"] = "masked"  # where it is: at masked positions alone, or at every token
    soft_weight: float = 5.0  # of that divergence in the loss
    mlm_weight: float = 2.0  # of the masked LM
    cosine_weight: float = 1.0  # of one minus the cosine of the last layers' vectors, at every token
    instances: InstanceConfig = field(default_factory=lambda: InstanceConfig(0.0, 0, "full-sentences"))
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            5e-4, "adamw", (0.9, 0.98), weight_decay=0.0, max_grad_norm=5.0, warmup=0.05, schedule="hf"
        )
    )
    loop: LoopConfig = field(default_factory=LoopConfig)
    phases: tuple[Phase, ...] = (Phase(),)
    eval_batches: int = 40  # held-out batches an evaluation

    def __post_init__(self) -> None:
        weights = self.weights.values()
        if self.temperature <= 0 or min(weights) < 0 or not any(weights):
            raise ValueError(
                f"temperature = {self.temperature}, weights {', '.join(map(str, weights))}; expected a temperature "
                "above 0 and weights of 0 or more, not all of them 0"
            )

    @property
    def weights(self) -> dict[str, float]:
        """Of the terms of the loss."""
        return {"soft": self.soft_weight, "mlm": self.mlm_weight, "cosine": self.cosine_weight}

    def pretraining(self, student: ModelConfig) -> PretrainConfig:
        """The run as one of pre-training. Raises InputError if the recipe does not fit the student."""
        same = ("instances", "masking", "optim", "loop", "phases", "eval_batches")
        try:
            return PretrainConfig("mlm", student, **{name: getattr(self, name) for name in same})
        except ValueError as error:
            raise InputError(str(error)) from None


def every_second(layers: int) -> tuple[int, ...]:
    """Half of the layers, from four on with the first and the last: 0, 2, 4, 7, 9, 11 of twelve, as DistilBERT's."""
    return tuple(int(number) for number in np.linspace(0, layers - 1, max(1, layers // 2)).round())


def student_config(teacher: ModelConfig, layers: tuple[int, ...], where: str) -> ModelConfig:
    """The student's shape. Raises InputError for a teacher or layers that make no student."""
    plain = {"direction": "both", "layer_type": "attention", "shared_layers": "none"}
    unlike = [
        f"{name} = {getattr(teacher, name)!r}" for name, value in plain.items() if getattr(teacher, name) != value
    ]
    if unlike:
        raise InputError(
            f"{where}: a teacher with {', '.join(unlike)}; expected one that sees both sides with attention layers of "
            "their own weights"
        )
    if any(not 0 <= number < teacher.num_hidden_layers for number in layers) or list(layers) != sorted({*layers}):
        raise InputError(
            f"layers = {list(layers)}; expected numbers of the teacher's layers, 0 to {teacher.num_hidden_layers - 1}, "
            "in their order"
        )
    shape = replace(teacher, num_hidden_layers=len(layers))
    if teacher.family == "bert" and teacher.position_embedding_type == "learned":
        return replace(shape, family="distilbert", type_vocab_size=0)
    return shape


def start_student(teacher: Model, shape: ModelConfig, layers: tuple[int, ...]) -> Model:
    """A student whose embeddings, layers and LM head are the teacher's.

    A student without segments has the teacher's first segment added to its positions: in text of one segment it begins
    with the teacher's very embeddings. (DistilBERT's script leaves it out.)
    """
    model, theirs = build_model(shape, ("mlm",), pooler=False), teacher.state_dict()

    def source(name: str) -> Tensor:
        taken = theirs[re.sub(r"(?<=^encoder\.layers\.)\d+", lambda number: str(layers[int(number[0])]), name)]
        return taken.clone()

    state = {name: source(name) for name in model.state_dict()}
    segments = teacher.encoder.embeddings.token_type
    if segments is not None and model.encoder.embeddings.token_type is None:
        state["encoder.embeddings.position.weight"] += segments.weight.detach()[0]
    model.load_state_dict(state)
    return model


@dataclass(frozen=True)
class Teacher:
    """A pre-trained model, and what its student is to be."""

    folder: Path
    model: Model
    tokenizer: Tokenizer
    layers: tuple[int, ...]  # that the student begins with
    student: ModelConfig

    @classmethod
    def load(cls, path: Path | str, config: DistillConfig) -> "Teacher":
        """Raises InputError if folder or recipe do not fit the task."""
        folder = find_model(path)
        model = load_model(folder).requires_grad_(False)
        if "mlm" not in model.heads:
            heads = ", ".join(model.heads) or "no head"
            raise InputError(
                f"{folder} has {heads}; expected a teacher with a masked-LM head, as pre-training makes it"
            )
        layers = config.layers or every_second(model.config.num_hidden_layers)
        return cls(folder, model, load_tokenizer(folder), layers, student_config(model.config, layers, str(folder)))

    def check(self, store: Store) -> None:
        """Raises InputError if the store was built with another tokenizer."""
        if self.tokenizer.fingerprint != store.manifest["tokenizer"]["fingerprint"]:
            raise InputError(
                f"the tokenizer of {self.folder} is not the one that {store.folder} was built with: the same ids would "
                f"mean other pieces. Build the corpus with it: bertworks corpus build ... --tokenizer {self.folder}"
            )

    def fingerprint(self) -> str:
        return checksum(self.folder / "config.json") + weights_checksum(self.folder)

    def asked(self, config: LoopConfig, device: torch.device) -> Model:
        """The model in evaluation mode on this device, as fast as it can be there."""
        model = self.model.to(device).eval()
        if machine.should_compile(config.compile, device):
            compile_layers(model.encoder)
        return for_inference(model) if machine.compute_dtype(config.precision, device) is torch.float32 else model


def distill(
    config: DistillConfig, teacher: Path | str, corpus: Path, out: Path, quiet: bool = False
) -> dict[str, Any] | None:
    """Train a student or resume, and write the run folder; returns its results, or None if stopped before the end.

    Raises InputError if recipe, teacher and store do not fit together, or if `out` belongs to another run.
    """
    config.loop.check(METRICS)
    machine.prepare_process()
    known, store = Teacher.load(teacher, config), Store.open(corpus, verify=not is_finished(out))
    store.check_unknown()
    known.check(store)
    pretraining = config.pretraining(known.student)
    identity = run_identity(config, store.fingerprint, known.fingerprint())
    if config.from_teacher:
        student = start_student(known.model, known.student, known.layers)
    else:
        student = build_model(known.student, ("mlm",), seed=config.loop.seed)
    with machine.joined_world() as world, opened_run(out, identity, world) as results:
        run = Run(pretraining, store, known.tokenizer, out, world, identity, quiet)
        if results is not None:
            return left_alone(run, results)
        asked = known.asked(config.loop, world.device)
        objective = DistillationObjective(asked, config.temperature, config.soft_targets == "all")
        loop = prepare(run, student, objective, config)
        loop.weights = config.weights
        if not train(run, loop):
            return None
        results = summary("distill", run, loop) | {"title": f"A student of {run_name(known.folder)}"}
        return finish(run, loop, results | compare(known, asked, run, student, results["metrics"]))


# ---- the report


def compare(
    known: Teacher, asked: Model, run: Run, student: Model, metrics: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Teacher and student side by side: size, speed, masked LM on the held-out split."""
    config, device = run.config, run.world.device
    data, train_data = (
        config.data(run.store, split, Vocabulary.of(run.tokenizer), config.phases[-1].length)
        for split in ("validation", "train")
    )
    judged = evaluate(asked, PretrainingObjective(None), data.batches(64, config.eval_batches), run.world)
    with autocast(machine.compute_dtype(config.loop.precision, device), device):
        batches = [*data.batches(32, 4)] or [*train_data.batches(32, 4)]  # a store may hold nothing out
        speeds = measure({"teacher": asked, "student": student}, batches, device)
    named = {"name": run_name(known.folder), "weights": weights_checksum(known.folder)}
    one = {**named, **_size(asked), **judged, **speeds["teacher"]}
    other = {"layers of the teacher": list(known.layers), **_size(student), **{key: metrics[key] for key in judged}}
    other |= speeds["student"]
    ratio = {key: other[key] / one[key] for key in ("parameters", "tokens_per_second")}
    return {"teacher": one, "student": other, "ratio": ratio}


def _size(model: Model) -> dict[str, int]:
    count = sum(p.numel() for p in model.parameters())
    return {"parameters": count, "bytes": 4 * count}


@torch.no_grad()
def measure(models: Mapping[str, Model], batches: list[Batch], device: torch.device, rounds: int = 5) -> dict[str, Any]:
    """Sequences and real tokens a second of each encoder, in evaluation mode.

    The models take turns batch by batch, so that whatever else the machine does meets both; the median of the rounds.
    """
    ready = {name: for_inference(model) for name, model in models.items()}
    moved = [to_device(batch, device) for batch in batches]
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    for turn in range(rounds + 1):
        spent = dict.fromkeys(ready, 0.0)
        for batch in moved:
            for name, model in ready.items():
                start = time.perf_counter()
                model.encode(batch)
                if device.type == "cuda":
                    torch.cuda.synchronize()
                spent[name] += time.perf_counter() - start
        for name in ready if turn else ():  # the first round prepares the products
            seconds[name].append(spent[name])
    sequences = sum(len(batch["input_ids"]) for batch in batches)
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    return {
        name: {"sequences_per_second": sequences / median, "tokens_per_second": tokens / median}
        for name, median in ((name, statistics.median(times)) for name, times in seconds.items())
    }
