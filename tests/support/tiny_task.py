"""A tiny model folder and a tiny table that it can learn: what the tests of fine-tuning and prediction share."""

import csv
import random
from pathlib import Path

import torch

from bertworks.checkpoint.folder import save_folder
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tasks.base import Data, Task
from bertworks.tasks.kinds import own_table, own_task
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertworks.training.config import LoopConfig, OptimConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCAB = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), "good", "bad", "film", ",", "."]
TINY = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
)

FINETUNING = FinetuneConfig(
    optim=OptimConfig(lr=1e-3, warmup=0.1),
    loop=LoopConfig(eval_every=0, save_every=0, seed=1, precision="float32"),
    epochs=8,
    batch_size=16,
    max_seq_length=24,
)


def tiny_folder(folder: Path, seed: int = 1) -> Path:
    """A freshly initialised model with both pre-training heads, and its tokenizer."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    vocab = folder.parent / "vocab.txt"
    vocab.write_text("\n".join(VOCAB) + "\n")
    save_folder(folder, build_model(TINY, seed=seed), Tokenizer.load(vocab, lowercase=True))
    return folder


def headed_folder(folder: Path, base: Path, head, labels=(), scale=40, seed=3, config=TINY, **settings) -> Path:
    """A random model with this head, whose answers differ from text to text, and the tokenizer of `base`.

    settings: those of save_folder; an input has at most 24 tokens if they do not say.
    """
    model = build_model(config, (head,), labels=len(labels), seed=seed)
    with torch.no_grad():
        for name, weight in model.heads.named_parameters():
            weight.mul_(scale if name.endswith("weight") else 1)
    save_folder(folder, model, base, labels=list(labels) or None, **{"max_length": 24, **settings})
    return folder


def tiny_table(path: Path, rows: int, seed: int, longest: int = 12) -> Path:
    """A CSV of texts in which one word decides the label, `good` or `bad`."""
    rng = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "text"])
        for _ in range(rows):
            label = rng.choice(["good", "bad"])
            letters = " ".join(rng.choice("abcdef") for _ in range(rng.randint(1, longest)))
            writer.writerow([label, f"{label} film, {letters}"])
    return path


def tiny_place(folder: Path, train: int, dev: int, seed: int = 99) -> Path:
    """`folder` with model/, whose weights are those of the seed, and train.csv and dev.csv of so many rows."""
    tiny_folder(folder / "model", seed)
    for number, (name, rows) in enumerate((("train", train), ("dev", dev)), 1):
        tiny_table(folder / f"{name}.csv", rows, number)
    return folder


def tiny_rows(place: Path) -> tuple[Task, Data]:
    """The task and the rows of the tables in a place."""
    return own_table(own_task("", ("text",), "label"), place / "train.csv", place / "dev.csv")
