"""Questions, tokenizers and recorded outputs that the tests of question answering share."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertworks.tasks.base import LengthLimits
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.questions import Question, read
from bertworks.tasks.span import SpanRows, prepare
from bertworks.tokenizer import SPECIAL_TOKENS, Tokenizer
from support.shared_data import shared

SETTINGS = {"384": LengthLimits(384, 128, 64), "128": LengthLimits(128, 64, 64), "tight": LengthLimits(48, 16, 12)}
WORDS = ["the", "cat", "sat", "on", "mat", "who", "where", "?", ".", "(", ")", "40", "%", "cafe", "zurich", "in", "and"]
KOREAN = ["서울", "##은", "대한민국", "##의", "수도", "##이", "##다", "한국", "##어", "##를", "1989년", "2월"]
KOREAN += ["##에", "."]


def recorded(path: str) -> Any:
    """A recorded output of the original, by its path in the shared folder: .json.gz, .json, or a list of .jsonl.gz."""
    file = shared(path)
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines] if ".jsonl" in file.name else json.load(lines)


def recorded_rows(setting: str, limits: LengthLimits | None = None) -> SpanRows:
    """The questions whose features the original recorded, featurised by us."""
    tokenizer = Tokenizer.load(shared("data/vocab/bert-base-uncased.txt"), lowercase=True)
    questions = read(TASKS["squad2"], shared("oracle/squad/questions_dev.json"))
    return prepare(
        tokenizer, questions[: 40 if setting == "tight" else None], TASKS["squad2"], limits or SETTINGS[setting]
    )


def tokenizer_of(pieces: list[str], folder: Path, lowercase: bool = True) -> Tokenizer:
    """A tokenizer with these pieces; lower-casing, it leaves Hangul whole."""
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *pieces]), encoding="utf-8")
    return Tokenizer.load(folder / "vocab.txt", lowercase=lowercase)


def ask(context: str, *answers: str, question: str = "who ?", name: str = "q") -> Question:
    """A question with answers at their first occurrences; without any it is impossible."""
    return Question(name, question, context, tuple((text, context.find(text)) for text in answers), not answers)


def one_hot(rows: SpanRows) -> torch.Tensor:
    """(T, 2) scores of a model that knows the training places."""
    scores = np.zeros((len(rows.inputs.ids), 2), np.float32)
    known = rows.inputs.labels[:, 0] > 0
    places = rows.inputs.edges[:-1][known, None] + rows.inputs.labels[known]
    scores[places, [0, 1]] = 10
    impossible = np.array([question.impossible for question in rows.rows])[rows.decoder.windows.text]
    scores[rows.inputs.edges[:-1][impossible]] = 20
    return torch.from_numpy(scores)
