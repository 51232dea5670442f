"""Distillation in pre-training (Sanh et al. 2019, DistilBERT): trains a smaller student of a teacher on a store.

The student has the teacher's width, fewer of its layers, no segments and no pooler, and starts with the teacher's
weights. It is trained on three losses: masked LM, the teacher's distribution, and the teacher's last layer. The run is
as in pre-training: same loop, same run folder, exact resume; results.json compares the two. Distillation on a task is
part of fine-tuning (finetuning/teacher.py).
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..checkpoint.folder import find_model, load_model, load_tokenizer, read_config, run_name
from ..checkpoint.weights import refuse_export, weights_checksum
from ..data.store import Store
from ..data.vocabulary import check_unknown
from ..files import InputError, checksum
from ..model.acceleration import compile_layers, for_inference, reference
from ..model.config import ModelConfig
from ..model.heads import Model, build_model
from ..training.compute import prepare_model, should_compile
from ..training.distributed import is_first_of_node, joined_world
from ..training.identity import Run, RunIdentity
from ..training.loop import TrainingLoop
from ..training.machine import prepared_process
from ..training.objectives import PretrainingObjective
from ..training.precision import compute_dtype
from ..training.run import is_finished, open_run, refuse_other_folder
from ..training.task_objectives import DistillationObjective
from .distill_recipe import DistillConfig
from .job import check_same_tokenizer, finish, train_on_store, training_of
from .run import StoreTraining

METRICS = ("soft_loss", "mlm_loss", "mlm_accuracy", "cosine_loss")  # of an evaluation


def every_second(layers: int) -> tuple[int, ...]:
    """Half of the layers, from four on with the first and the last: 0, 2, 4, 7, 9, 11 of twelve, as DistilBERT's."""
    return tuple(int(number) for number in np.linspace(0, layers - 1, max(1, layers // 2)).round())


def student_config(teacher: ModelConfig, layers: tuple[int, ...], where: str) -> ModelConfig:
    """The student's shape. Raises InputError for a teacher or layers that make no student."""
    plain = {"direction": "both", "layer_type": "attention", "shared_layers": "none"}
    if unlike := [f"{k} = {getattr(teacher, k)!r}" for k, value in plain.items() if getattr(teacher, k) != value]:
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
    model, weights = build_model(shape, ("mlm",), pooler=False), teacher.state_dict()

    def source(name: str) -> str:
        return re.sub(r"(?<=^encoder\.layers\.)\d+", lambda number: str(layers[int(number[0])]), name)

    state = {name: weights[source(name)].clone() for name in model.state_dict()}
    segments = teacher.encoder.embeddings.token_type
    if segments is not None and model.encoder.embeddings.token_type is None:
        state["encoder.embeddings.position.weight"] += segments.weight.detach()[0]
    model.load_state_dict(state)
    return model


def distill(
    config: DistillConfig, teacher: Path | str, corpus: Path, out: Path, quiet: bool = False
) -> dict[str, Any] | None:
    """Train a student or resume, and write the run folder; returns its results, or None if stopped before the end.

    Raises InputError if recipe, teacher and store do not fit together, or if `out` belongs to another run.
    """
    config.loop.check(METRICS)
    refuse_other_folder(out)
    folder = find_model(teacher)
    read_config(folder)  # refuses what is no model folder
    refuse_export(folder)
    store = Store.open(corpus, verify=not is_finished(out) and is_first_of_node())
    weights = checksum(folder / "config.json") + weights_checksum(folder)
    identity = RunIdentity(config, (store.fingerprint, weights))

    # a finished run needs no teacher
    distillation = None if is_finished(out) else Distillation.load(config, folder, store)
    with prepared_process(), joined_world() as world:
        run = Run(out, identity, world, quiet)
        with open_run(run) as results:
            if results is not None:
                return results
            assert distillation is not None
            loop = distillation.loop(run)
            return distillation.finish(loop) if train_on_store(distillation.source, loop) else None


@dataclass(frozen=True)
class Distillation:
    """A teacher, its student before training, and the store on which the student is trained."""

    config: DistillConfig
    folder: Path  # of the teacher
    teacher: Model
    student: Model
    layers: tuple[int, ...]  # of the teacher, with which the student starts
    source: StoreTraining

    @classmethod
    def load(cls, config: DistillConfig, folder: Path, store: Store) -> "Distillation":
        """Raises InputError if teacher, recipe and store do not fit together."""
        teacher, tokenizer = load_model(folder).requires_grad_(False), load_tokenizer(folder)
        if "mlm" not in teacher.heads:
            heads = ", ".join(teacher.heads) or "no head"
            raise InputError(
                f"{folder} has {heads}; expected a teacher with a masked-LM head, as pre-training makes it"
            )
        check_same_tokenizer(folder, store)
        layers = config.layers or every_second(teacher.config.num_hidden_layers)
        shape = student_config(teacher.config, layers, str(folder))
        check_unknown(store, tokenizer)
        source = training_of(config.pretraining(shape), store, tokenizer)
        return cls(config, folder, teacher, start_student(teacher, shape, layers), layers, source)

    def loop(self, run: Run) -> TrainingLoop:
        """The run's loop, new or resumed."""
        config, device = self.config, run.world.device
        teacher = self.teacher.to(device).eval()
        if config.loop.compute == "reference":
            teacher = reference(teacher)
        elif should_compile(config.loop.compute, device):
            compile_layers(teacher.encoder, gradients=False)
        elif compute_dtype(config.loop.precision, device) is torch.float32:
            teacher = for_inference(teacher)
        objective = DistillationObjective(teacher, config.temperature, config.soft_targets == "all")
        return self.source.loop(run, prepare_model(self.student, config.loop, run), objective, config.weights)

    def finish(self, loop: TrainingLoop) -> dict[str, Any]:
        """Write the student's folder and the results, which compare teacher and student on the held-out text."""
        objective = loop.trainer.objective
        assert isinstance(objective, DistillationObjective)
        scores = self.source.evaluate(objective.teacher, PretrainingObjective(None), loop.run.world)
        name, sizes = run_name(self.folder), (_size(self.teacher), _size(self.student))
        comparison: dict[str, Any] = {
            "title": f"A student of {name}",
            "teacher": {"name": name, "weights": weights_checksum(self.folder), **sizes[0], **scores},
            "student": {
                "layers of the teacher": list(self.layers),
                **sizes[1],
                **{key: loop.metrics[key] for key in scores},
            },
            "ratio": {"parameters": sizes[1]["parameters"] / sizes[0]["parameters"]},
        }
        return finish(self.source, loop, "distill", comparison, {})


def _size(model: Model) -> dict[str, int]:
    count = sum(p.numel() for p in model.parameters())
    return {"parameters": count, "bytes": 4 * count}
