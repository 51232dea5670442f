"""Whether the settings of a fine-tuning run fit its model and its task."""

from ..files import InputError
from ..model.config import NO_TOP, ModelConfig
from ..model.layer_choice import LayerChoice
from ..tasks.base import Task
from ..training.distributed import World
from .recipe import FinetuneConfig


def check_settings(config: FinetuneConfig, task: Task, shape: ModelConfig, world: World) -> None:
    """Raises InputError for settings that do not fit the model's shape or the task."""
    layers = shape.num_hidden_layers
    LayerChoice.parse(config.top.layers, layers)
    if config.max_seq_length > shape.max_length:
        raise InputError(
            f"max_seq_length = {config.max_seq_length}, but the model has {shape.max_length} positions; "
            f"give {shape.max_length} or less"
        )
    trained = config.trained_layers(layers)
    if trained > layers:
        raise InputError(f"trained = {trained}, but the model has {layers} layers; give {layers} or less")
    if shape.shared_layers != "none" and 0 < trained < layers:
        raise InputError(f"trained = {trained}, but the layers of the model share their weights; give all or head")
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


def _check_embedding(config: FinetuneConfig, task: Task, world: World) -> None:
    """Raises InputError for settings with which no encoder would be trained, or not the one that is stored."""
    if config.trained == "head" or config.top != NO_TOP:
        raise InputError(
            "trained = 'head' and the table top do not go with the kind embedding, which trains the encoder itself: a "
            "vector is the mean over its last layer; leave them out"
        )
    if not task.label and rows_of_a_pass(config, world) == 1:
        raise InputError(
            f"batch_size = {config.batch_size}, micro_batch_size = {config.micro_batch_size}: the negatives of a pair "
            "without a score are the other rows of its micro-batch; give 2 rows or more"
        )


def rows_of_a_pass(config: FinetuneConfig, world: World) -> int:
    """The rows of a micro-batch in the process that has most rows."""
    mine = -(-config.batch_size // world.size)
    return min(config.micro_batch_size or mine, mine)
