"""Tiny model folders to export, whose answers differ from text to text."""

from dataclasses import replace
from pathlib import Path

import torch

from bertworks.checkpoint.folder import save_folder
from bertworks.model.build import build_model
from bertworks.tokenizer import Tokenizer

from .tiny_task import TINY, VOCAB

ONE = replace(TINY, hidden_size=16, intermediate_size=24, num_hidden_layers=1)
TEXTS = ["good film", "bad , d", "good a b c d e f g h film " * 2, "a"]
LONG = "good a b c bad film " * 12


def folder_of(path, config=ONE, heads=("classifier",), labels=("no", "yes"), task=None, scale=30.0) -> Path:
    """A folder of a random model, whose heads have large weights: its answers differ from text to text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    vocab = path.parent / "vocab.txt"
    vocab.write_text("\n".join(VOCAB) + "\n")
    labels = list(labels) if {"classifier", "tagger"} & {*heads} else None
    model = build_model(config, heads, labels=len(labels or ()), seed=4)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(1 if name.endswith("bias") or "norm" in name else scale if name.startswith("heads") else 4)
    save_folder(path, model, Tokenizer.load(vocab, lowercase=True), labels=labels, max_length=24, task=task)
    return path
