"""Tiny data in the layout of --data, and a tiny BERT: what the benchmarks run on with --smoke. Nothing is read."""

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import zstandard

from bertworks.checkpoint.folder import save_folder
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXT = "river mountain letter window garden morning teacher bridge music winter captain"
WORDS = TEXT.split()
VOCAB = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS[:8], ".", ",", "?"]
SHAPE = ModelConfig(
    vocab_size=len(VOCAB), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)
MINI = ModelConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
LARGE = ModelConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
ROWS = 24  # of every table


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(4, 9))).capitalize() + "."


def write_data(folder: Path, rows: int = ROWS) -> None:
    """text/, vocab/, glue/, conll2003/ and squad/, each in its official format."""
    chance = random.Random(7)
    for name in ("text", "vocab", "glue/MRPC", "glue/SST-2", "glue/STS-B", "conll2003", "squad"):
        (folder / name).mkdir(parents=True)
    write_text(folder / "text" / "enwiki.tar.zst", chance)
    (folder / "vocab" / "bert-base-uncased.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    for part in ("train", "dev"):
        write_glue(folder / "glue", part, chance, rows)
    for part in ("train", "testa", "testb"):
        write_conll(folder / "conll2003" / f"eng.{part}", chance, rows)
    for name in ("train-v1.1-13pct", "dev-v1.1", "small-train-v2.0", "small-dev-v2.0"):
        write_squad(folder / "squad" / f"{name}.json", "v2" in name, chance, rows)


def write_text(path: Path, chance: random.Random) -> None:
    """Documents of a few sentences, a file each, in a compressed archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for number in range(60):
            text = " ".join(sentence(chance) for _ in range(6)).encode() + b"\n"
            entry = tarfile.TarInfo(f"{number}.txt")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    path.write_bytes(zstandard.compress(plain.getvalue()))


def write_glue(folder: Path, part: str, chance: random.Random, rows: int) -> None:
    """MRPC, SST-2 and STS-B."""
    tables = {
        "MRPC": ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"],
        "SST-2": ["sentence\tlabel"],
        "STS-B": ["index\tsentence1\tsentence2\tscore"],
    }
    for number in range(rows):
        one, other, label = sentence(chance), sentence(chance), number % 2
        tables["MRPC"].append(f"{label}\t{number}\t{number}\t{one}\t{other}")
        tables["SST-2"].append(f"{one}\t{label}")
        tables["STS-B"].append(f"{number}\t{one}\t{other}\t{chance.uniform(0, 5):.3f}")
    for name, lines in tables.items():
        (folder / name / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_conll(path: Path, chance: random.Random, rows: int) -> None:
    """Documents of three sentences; "Captain" begins a person of two words."""
    lines = []
    for number in range(rows):
        lines += [] if number % 3 else ["-DOCSTART- -X- O O", ""]
        for word in [*sentence(chance)[:-1].split(), "Captain", "Winter"]:
            lines.append(f"{word} NN O {'I-PER' if word in ('Captain', 'Winter') else 'O'}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_squad(path: Path, second: bool, chance: random.Random, rows: int) -> None:
    """A question on every context, whose answer is its second word; in version 2 every third has none."""
    paragraphs = []
    for number in range(rows):
        context = " ".join(sentence(chance) for _ in range(3))
        word = context.split()[1]
        answers = [{"text": word, "answer_start": context.index(word)}]
        question: dict[str, Any] = {"id": str(number), "question": "Which river?", "answers": answers}
        if second:
            question |= {"is_impossible": number % 3 == 0, "answers": answers if number % 3 else []}
        paragraphs.append({"context": context, "qas": [question]})
    version = "v2.0" if second else "1.1"
    path.write_text(json.dumps({"version": version, "data": [{"title": "tiny", "paragraphs": paragraphs}]}))


def write_model(folder: Path) -> Path:
    """A model folder of a BERT with random weights."""
    vocab = folder.with_name("vocab.txt")
    vocab.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    save_folder(folder, build_model(SHAPE, (), seed=1), Tokenizer.load(vocab, lowercase=True))
    return folder
