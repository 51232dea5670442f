"""Distillation in pre-training (Sanh et al. 2019, DistilBERT): trains a smaller student of a teacher on a store.

The student has the teacher's width, fewer of its layers, no segments and no pooler, and starts with the teacher's
weights. It is trained on three losses: masked LM, the teacher's distribution, and the teacher's last layer. The run is
as in pre-training: same loop, same run folder, exact resume; results.json compares the two. Distillation on a task is
part of fine-tuning (finetuning/teacher.py).
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..checkpoint.folder import find_model, load_model, read_config, run_name
from ..checkpoint.weights import refuse_export, weights_checksum
from ..files import InputError, checksum
from ..model.acceleration import compile_layers, for_inference, reference
from ..model.build import build_model
from ..model.config import ModelConfig
from ..model.heads import Model
from ..training.compute import prepare_model, should_compile
from ..training.distributed import joined_world
from ..training.identity import Run, RunIdentity
from ..training.loop import TrainingLoop
from ..training.machine import prepared_process
from ..training.objectives import PretrainingObjective
from ..training.precision import compute_dtype
from ..training.run import is_finished, open_run, refuse_other_folder
from ..training.task_objectives import DistillationObjective
from .distill_recipe import DistillConfig
from .job import check_phases, check_same_tokenizer, finish, open_training, train_on_store
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
            f"{where}: a teacher with {', '.join(unlike)}; expected unshared, bidirectional attention layers"
        )
    last = teacher.num_hidden_layers - 1
    if any(not 0 <= number <= last for number in layers) or list(layers) != sorted({*layers}):
        expected = f"numbers of the teacher's layers, 0 to {last}, in their order"
        raise InputError(f"layers = {list(layers)}; expected {expected}")
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
    shape = read_config(folder)[0]
    refuse_export(folder)
    layers = config.layers or every_second(shape.num_hidden_layers)
    student = config.pretraining(student_config(shape, layers, str(folder)))
    source = open_training(student, corpus, is_finished(out), folder)
    check_same_tokenizer(folder, source.store)
    weights = checksum(folder / "config.json") + weights_checksum(folder)
    identity = RunIdentity(config, (source.store.fingerprint, weights))
    model = None if is_finished(out) else load_teacher(folder)  # a finished run needs no teacher
    with prepared_process(), joined_world() as world:
        run = Run(out, identity, world, quiet)
        with open_run(run) as results:
            if results is not None:
                return results
            assert model is not None
            check_phases(student, world)
            loop = start_loop(config, source, model, layers, run)
            if not train_on_store(source, loop):
                return None
            return finish(source, loop, "distill", compare(source, loop, folder, model, layers), {})


def load_teacher(folder: Path) -> Model:
    """The teacher of a model folder. Raises InputError if it has no masked-LM head."""
    teacher = load_model(folder).requires_grad_(False)
    if "mlm" not in teacher.heads:
        heads = ", ".join(teacher.heads) or "no head"
        raise InputError(f"{folder} has {heads}; expected a teacher with a masked-LM head, as pre-training makes it")
    return teacher


def start_loop(
    config: DistillConfig, source: StoreTraining, teacher: Model, layers: tuple[int, ...], run: Run
) -> TrainingLoop:
    """A new loop that trains the student."""
    student, device = start_student(teacher, source.config.model, layers), run.world.device
    teacher = teacher.to(device).eval()
    if config.loop.compute == "reference":
        teacher = reference(teacher)
    elif should_compile(config.loop.compute, device):
        compile_layers(teacher.encoder, gradients=False)
    elif compute_dtype(config.loop.precision, device) is torch.float32:
        teacher = for_inference(teacher)
    objective = DistillationObjective(teacher, config.temperature, config.soft_targets == "all")
    return source.build_loop(run, prepare_model(student, config.loop, run), objective, config.weights)


def compare(
    source: StoreTraining, loop: TrainingLoop, folder: Path, teacher: Model, layers: tuple[int, ...]
) -> dict[str, Any]:
    """What results.json says of teacher and student, whose scores are those on the held-out text."""
    objective = loop.trainer.objective
    assert isinstance(objective, DistillationObjective)
    scores = source.evaluate(objective.teacher, PretrainingObjective(None), loop.run.world)
    name, sizes = run_name(folder), (_size(teacher), _size(loop.trainer.model))
    student = {key: loop.metrics[key] for key in scores}
    return {
        "title": f"A student of {name}",
        "teacher": {"name": name, "weights": weights_checksum(folder), **sizes[0], **scores},
        "student": {"layers of the teacher": list(layers), **sizes[1], **student},
        "ratio": {"parameters": sizes[1]["parameters"] / sizes[0]["parameters"]},
    }


def _size(model: nn.Module) -> dict[str, int]:
    count = sum(p.numel() for p in model.parameters())
    return {"parameters": count, "bytes": 4 * count}
