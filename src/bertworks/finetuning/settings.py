"""Whether the settings of a fine-tuning run fit its model and its task."""

from ..files import InputError
from ..model.config import NO_TOP, ModelConfig
from ..model.layer_choice import LayerChoice
from ..tasks.base import Task
from ..training.machine import World
from .recipe import FinetuneConfig


def check_settings(config: FinetuneConfig, task: Task, shape: ModelConfig, world: World) -> None:
    """Raises InputError for settings that do not fit the model's shape or the task."""
    LayerChoice.parse(config.top.layers, shape.num_hidden_layers)
    if config.max_seq_length > shape.max_length:
        raise InputError(
            f"max_seq_length = {config.max_seq_length}, but the model has {shape.max_length} positions; "
            f"give {shape.max_length} or less"
        )
    _check_layers(config, shape)
    if task.kind == "embedding":
        _check_embedding(config, task, world)
    known = (*task.metrics, "loss")
    if config.loop.keep_best and config.loop.keep_best not in known:
        raise InputError(f"loop.keep_best = {config.loop.keep_best!r}; expected one of {', '.join(known)}")
    if config.patience and not config.loop.keep_best:
        raise InputError(
            f"patience = {config.patience} without loop.keep_best, whose best value it waits for; give it one of "
            f"{', '.join(known)}"
        )


def _check_layers(config: FinetuneConfig, shape: ModelConfig) -> None:
    """Raises InputError if the model lacks the layers that are trained or reinitialized."""
    layers, fresh, shared = shape.num_hidden_layers, config.reinit_layers, shape.shared_layers != "none"
    trained = config.trained_layers(layers)
    for name, count in (("trained", trained), ("reinit_layers", fresh)):
        if count > layers:
            raise InputError(f"{name} = {count}, but the model has {layers} layers; give {layers} or less")
    if (shared and (fresh or 0 < trained < layers)) or (fresh and shape.direction == "pair"):
        raise InputError(
            f"trained = {config.trained!r} and reinit_layers = {fresh}, but the model has layers that share their "
            "weights, or a pair of encoders; leave them out"
        )
    if fresh > trained:
        raise InputError(
            f"reinit_layers = {fresh} with trained = {config.trained!r}: layers without their weights must be trained; "
            f"train {fresh} layers or more, or leave reinit_layers out"
        )


def _check_embedding(config: FinetuneConfig, task: Task, world: World) -> None:
    """Raises InputError for settings with which no encoder would be trained, or not the one that is stored."""
    why = "the kind embedding, which trains the encoder itself"
    if config.trained == "head":
        raise InputError(f"trained = 'head' does not go with {why}; leave it out")
    if config.top != NO_TOP:
        given = [f"top.{name} = {value}" for name, value in vars(config.top).items() if value != getattr(NO_TOP, name)]
        raise InputError(
            f"{', '.join(given)} does not go with {why}: a vector is the mean over its last layer; leave it out"
        )
    if not task.label and rows_of_a_pass(config, world) == 1:
        raise InputError(
            f"batch_size = {config.batch_size}, micro_batch_size = {config.micro_batch_size}: the negatives "
            "of a pair without a score are the other rows of its micro-batch, so one row alone has no negatives and "
            "nothing is learned; give 2 rows or more"
        )


def rows_of_a_pass(config: FinetuneConfig, world: World) -> int:
    """The rows of a micro-batch in the process that has most rows."""
    mine = -(-config.batch_size // world.size)
    return min(config.micro_batch_size or mine, mine)
