"""What a user may have meant by an unknown name: the nearest key of a recipe, argument, file or folder."""

import contextlib
import dataclasses
import difflib
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "adam_epsilon": ("optim.eps",),
    "data_dir": ("data",),
    "dataset": ("data", "train"),
    "dev_file": ("dev",),
    "do_lower_case": ("lowercase",),
    "early_stopping_patience": ("patience",),
    "eval_dataset": ("dev",),
    "eval_steps": ("loop.eval_every",),
    "init_checkpoint": ("init", "model"),
    "input_file": ("corpus", "data"),
    "label_column": ("label",),
    "learning_rate": ("optim.lr",),
    "log_steps": ("loop.log_every",),
    "logging_steps": ("loop.log_every",),
    "max_len": ("max_seq_length", "length"),
    "max_length": ("max_seq_length", "length"),
    "max_steps": ("loop.steps",),
    "mlm_probability": ("masking.masked_lm_prob",),
    "model": ("init",),
    "model_name_or_path": ("init", "model"),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "num_steps": ("loop.steps",),
    "num_train_steps": ("loop.steps",),
    "output": ("out",),
    "output_dir": ("out",),
    "output_file": ("out",),
    "per_device_train_batch_size": ("batch_size",),
    "random_seed": ("loop.seed",),
    "save_steps": ("loop.save_every",),
    "task_name": ("task",),
    "text_column": ("text",),
    "train_batch_size": ("batch_size",),
    "train_dataset": ("train",),
    "train_file": ("train",),
    "train_steps": ("loop.steps",),
    "validation_file": ("dev",),
    "vocab_file": ("tokenizer",),
    "warmup_proportion": ("optim.warmup",),
    "warmup_ratio": ("optim.warmup",),
    "warmup_steps": ("optim.warmup",),
}
"""Names of transformers and of the original code, and ours of the same meaning: a hint names the first that exists."""


def nearest_keys(name: str, known: Sequence[str], kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys that `name` may mean, best first: by meaning, or the one of `known` that is spelt most like it.

    kinds: the type of each field; those of dataclasses inside are searched too.
    """
    return _other_names(name, known, kinds) or difflib.get_close_matches(name, known, 1)


def _other_names(name: str, known: Sequence[str], kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys that `name` may mean: as other programs call it (learning_rate), lr alone, or optim_lr."""
    meant = [key for key in OTHER_NAMES.get(name, ()) if key in known or key in _tables_with(key.split(".")[-1], kinds)]
    inner = [key.split(".")[-1] for key in OTHER_NAMES.get(name, ()) if key.split(".")[-1] in known]  # inside [optim]
    joined = [key for key in _tables_with(name.partition("_")[2], kinds) if key == name.replace("_", ".", 1)]
    return meant or inner or _tables_with(name, kinds) or joined


def _tables_with(name: str, kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys of tables inside that have a field of this name: optim.lr for lr."""
    tables = ((key, kind) for key, kind in kinds.items() if dataclasses.is_dataclass(kind))
    return [f"{key}.{name}" for key, kind in tables if name in {field.name for field in dataclasses.fields(kind)}]


def not_found(path: Path | str, what: Literal["file", "folder", "file or folder"] = "file") -> str:
    """What is there in place of a file or folder that was asked for, for a message, with the nearest name beside it."""
    path = Path(path)
    if os.path.exists(path):  # unlike the method, no error for a name that is too long
        found = "folder" if path.is_dir() else "file" if path.is_file() else "pipe or device"
        return f"a {found}; expected a {what}"
    with contextlib.suppress(OSError):
        beside = itertools.islice(path.parent.iterdir(), 1_000)
        fits = {"file": Path.is_file, "folder": Path.is_dir, "file or folder": Path.exists}[what]
        names = [one.name for one in beside if fits(one) and one.name.isprintable()]
        longer = [name for name in names if name.startswith(path.name)]
        for near in longer if len(longer) == 1 else difflib.get_close_matches(path.name, names, 1):
            return f"no such {what} (did you mean {path.with_name(near)}?)"
    return f"no such {what}"
