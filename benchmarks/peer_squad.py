"""SQuAD by transformers, as its run_qa does it, but each window begins a fixed number of tokens after the last."""

import collections
import json
import re
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import transformers

from finetuning_settings import Settings
from peer_job import Feature, Job, Metrics, outputs

SQUAD = {
    "squad1": ("train-v1.1-13pct.json", "dev-v1.1.json"),
    "squad2": ("small-train-v2.0.json", "small-dev-v2.0.json"),
}


def read_squad(path: Path, rows: int | None) -> list[dict[str, Any]]:
    """Questions, each with its context."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [{**question, "context": p["context"]} for p in paragraphs for question in p["qas"]][:rows]


def squad_features(questions: list[dict[str, Any]], settings: Settings, tokenizer: Any) -> list[Feature]:
    """Windows over the contexts. `stride` of the tokenizer is the overlap, so it depends on the question's length."""
    assert settings.max_query_length and settings.doc_stride is not None
    groups: dict[int, list[tuple[int, str]]] = {}
    for i, question in enumerate(questions):
        text = question["question"].lstrip()
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        offsets = offsets[: settings.max_query_length]
        groups.setdefault(len(offsets), []).append((i, text[: offsets[-1][1]] if offsets else ""))
    features = []
    for length, group in sorted(groups.items()):
        room = settings.max_seq_length - length - 3
        made = tokenizer(
            [text for _, text in group],
            [questions[i]["context"] for i, _ in group],
            truncation="only_second",
            max_length=settings.max_seq_length,
            stride=room - settings.doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for r, g in enumerate(made["overflow_to_sample_mapping"]):
            spans = [span if part == 1 else None for span, part in zip(
                made["offset_mapping"][r], made.sequence_ids(r), strict=True)]  # fmt: skip
            columns = {name: made[name][r] for name in ("input_ids", "token_type_ids", "attention_mask")}
            features.append({**columns, "question": group[g][0], "spans": spans})
    return features


def answered(feature: Feature, question: dict[str, Any]) -> tuple[int, int]:
    """First and last token of the answer in a window; [CLS] where the window does not hold it."""
    if question.get("is_impossible"):
        return 0, 0
    answer = question["answers"][0]
    start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    inside = [i for i, span in enumerate(feature["spans"]) if span]
    if not inside or feature["spans"][inside[0]][0] > start or feature["spans"][inside[-1]][1] < end:
        return 0, 0
    first = max(i for i in inside if feature["spans"][i][0] <= start)
    return first, max(first, min(i for i in inside if feature["spans"][i][1] >= end))


def best_answer(
    found: Iterable[tuple[Feature, np.ndarray, np.ndarray]], context: str, settings: Settings
) -> tuple[str, float]:
    """The text of the best span over a question's windows, and by how much "no answer" is better than it."""
    assert settings.n_best is not None and settings.max_answer_length is not None
    best, text, null = -np.inf, "", np.inf
    for feature, start, end in found:
        spans = feature["spans"]
        null = min(null, float(start[0] + end[0]))
        inside = np.array([span is not None for span in spans])
        starts, ends = (np.argsort(logits)[-1 : -settings.n_best - 1 : -1] for logits in (start, end))
        length = ends[None] - starts[:, None] + 1
        fits = (length > 0) & (length <= settings.max_answer_length) & inside[starts][:, None] & inside[ends][None]
        scores = np.where(fits, start[starts][:, None] + end[ends][None], -np.inf)
        a, b = np.unravel_index(scores.argmax(), scores.shape)
        if scores[a, b] > best:
            best, text = float(scores[a, b]), context[spans[starts[a]][0] : spans[ends[b]][1]]
    return text, null - best


def normalised(text: str) -> str:
    """As the official programs: lower case, no punctuation, no articles, single spaces."""
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_and_f1(gold: str, found: str, second: bool) -> tuple[float, float]:
    """One answer against one gold answer; `second`: as the program of v2.0 does with empty ones."""
    one, other = normalised(gold).split(), normalised(found).split()
    common = sum((collections.Counter(one) & collections.Counter(other)).values())
    if second and not (one and other):
        return float(one == other), float(one == other)
    f1 = 2 * common / (len(one) + len(other)) if common else 0.0
    return float(one == other), f1


def best_of_golds(question: dict[str, Any], found: str, second: bool) -> tuple[float, float]:
    """Exact match and F1, each against the gold answer that suits it best."""
    golds = [answer["text"] for answer in question["answers"]]
    if second:
        golds = [gold for gold in golds if normalised(gold)] or [""]
    pairs = [exact_and_f1(gold, found, second) for gold in golds]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def squad_scores(questions: list[dict[str, Any]], answers: list[tuple[str, float]], second: bool) -> Metrics:
    """The official figures as fractions. v2.0: at threshold 0, and at the threshold that is best on these questions."""
    given = np.array([best_of_golds(q, text, second) for q, (text, _) in zip(questions, answers, strict=True)])
    if not second:
        return dict(zip(("exact", "f1"), map(float, given.mean(0)), strict=True))
    has = np.array([bool(question["answers"]) for question in questions])
    odds = np.array([odds for _, odds in answers])
    at_zero = np.where((odds > 0)[:, None], ~has[:, None], given).mean(0)
    gain = np.where(has[:, None], given, [[-float(bool(text))] for text, _ in answers])  # by answering
    sums = gain[odds.argsort(kind="stable")].cumsum(0).max(0)
    at_best = ((~has).sum() + np.maximum(sums, 0)) / len(questions)
    return {
        "best_exact": float(at_best[0]),
        "best_f1": float(at_best[1]),
        "exact": float(at_zero[0]),
        "f1": float(at_zero[1]),
        "no_answer_share": float((odds > 0).mean()),
    }


def squad_job(name: str, settings: Settings, tokenizer: Any) -> Job:
    """Windows with the first and last token of the answer."""
    train_file, dev_file = SQUAD[name]
    every = read_squad(settings.data / "squad" / train_file, settings.rows)
    questions = [q for q in every if q.get("is_impossible") or held(q)]
    dev = read_squad(settings.data / "squad" / dev_file, settings.dev_rows)
    train, seen = squad_features(questions, settings, tokenizer), squad_features(dev, settings, tokenizer)
    for feature in train:
        ends = answered(feature, questions[feature["question"]])
        feature["start_positions"], feature["end_positions"] = ends
        del feature["question"], feature["spans"]

    def evaluate(model: Any) -> Metrics:
        found: list[list[Any]] = [[] for _ in dev]
        for feature, start, end in zip(
            seen, *outputs(model, tokenizer, seen, ["start_logits", "end_logits"]), strict=True
        ):
            found[feature["question"]].append((feature, start[: len(feature["spans"])], end[: len(feature["spans"])]))
        answers = [best_answer(windows, q["context"], settings) for windows, q in zip(found, dev, strict=True)]
        return squad_scores(dev, answers, name == "squad2")

    return Job(
        transformers.AutoModelForQuestionAnswering,
        {},
        transformers.DataCollatorWithPadding(tokenizer),
        train,
        {
            "train": len(questions),
            "dev": len(dev),
            "skipped": len(every) - len(questions),
            "train_windows": len(train),
            "dev_windows": len(seen),
        },
        evaluate,
    )


def held(question: dict[str, Any]) -> bool:
    """Is the answer where its answer_start says?"""
    answer = question["answers"][0]
    return question["context"][answer["answer_start"] :].startswith(answer["text"])
