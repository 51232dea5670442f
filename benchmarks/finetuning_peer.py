"""Fine-tuning by transformers as its examples do it: the peer of `benchmarks/finetuning_scores.py`, which starts it.

run_glue, run_ner and run_qa in short: AutoModelFor..., fast tokenizer, dynamic padding, and the Trainer with batches of
similar length, bfloat16 and fused AdamW. Scores are taken in float32, on batches sorted by length. Two things differ
from the examples, so that both sides see the same input: a CoNLL row is a window of several sentences of a document,
and a SQuAD window begins a fixed number of tokens after the one before it. Needs `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import collections
import csv
import json
import os
import re
import string
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch
import transformers
from scipy import stats
from sklearn import metrics as sklearn_metrics

if TYPE_CHECKING:
    from finetuning_scores import Settings

Feature = dict[str, Any]
Metrics = dict[str, float]


@dataclass
class Job:
    """What the Trainer needs of a task, and how its model is judged: `judge(model)` gives the metrics."""

    head: type
    arguments: dict[str, Any]
    collator: Callable[..., Any]
    features: list[Feature]
    rows: dict[str, int]
    judge: Callable[[Any], Metrics]


def start(task: str, seed: int, settings: Settings) -> tuple[Job, Any, Any]:
    """The job, the tokenizer and the model before training, whose head `seed` has drawn."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(settings.model, use_fast=True)
    job = JOBS[settings.kind](task, settings, tokenizer)
    transformers.set_seed(seed)
    model = job.head.from_pretrained(  # type: ignore[attr-defined]
        settings.model,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        classifier_dropout=None,
        **job.arguments,
    )
    return job, tokenizer, model


def save_start(task: str, seed: int, settings: Settings, folder: Path) -> Path:
    """That model as a folder, so that others can begin with the same head."""
    _, tokenizer, model = start(task, seed, settings)
    if model.config.id2label[0] == "LABEL_0":
        raise SystemExit(f"{task}: its head has no names of labels that another side could find its rows by")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def peer(task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Fine-tune and judge: metrics, seconds of training, rows, steps, versions."""
    job, tokenizer, model = start(task, seed, settings)
    steps = int(len(job.features) * settings.epochs / settings.batch_size)
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            output_dir=out,
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.lr,
            adam_beta1=settings.betas[0],
            adam_beta2=settings.betas[1],
            adam_epsilon=settings.eps,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.clip,
            lr_scheduler_type="linear",
            warmup_steps=int(settings.warmup * steps),
            optim="adamw_torch_fused",
            bf16=settings.precision == "bfloat16 autocast",
            train_sampling_strategy="random" if settings.padding else "group_by_length",
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, job.collator, job.features, processing_class=tokenizer)
        trainer.remove_callback(transformers.PrinterCallback)
        start, used = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, used = time.perf_counter() - start, time.process_time() - used
        model = trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_fp32_wrapper=False)
    start = time.perf_counter()
    metrics = job.judge(model.eval())
    import accelerate
    import tokenizers

    return {
        "metrics": metrics,
        "seconds": seconds,
        "cpu_seconds": used,  # of training: less than `seconds` if others used the cores too
        "seconds_of_evaluation": time.perf_counter() - start,
        "rows": job.rows,
        "steps": steps,
        "tokens": round(sum(len(feature["input_ids"]) for feature in job.features) * settings.epochs),
        "versions": {module.__name__: module.__version__ for module in (transformers, accelerate, tokenizers)},
    }


def outputs(model: Any, tokenizer: Any, features: Sequence[Feature], names: Sequence[str]) -> list[list[np.ndarray]]:
    """For each of the `names` of the model's outputs, a row's array in the order of `features`, without padding."""
    made: list[list[Any]] = [[None] * len(features) for _ in names]
    order = sorted(range(len(features)), key=lambda i: -len(features[i]["input_ids"]))
    for first in range(0, len(order), 32):
        rows = order[first : first + 32]
        columns = ("input_ids", "token_type_ids", "attention_mask")
        batch = tokenizer.pad([{name: features[i][name] for name in columns} for i in rows], return_tensors="pt")
        with torch.inference_mode():
            result = model(**batch)
        for target, name in zip(made, names, strict=True):
            for i, values in zip(rows, result[name].float().numpy(), strict=True):
                target[i] = values
    return made


# GLUE


@dataclass(frozen=True)
class Glue:
    """Where the official files of a task have texts and label, and what its labels are; none: a number."""

    folder: str
    text: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    header: tuple[str, ...] | None = None


GLUE = {
    "cola": Glue(
        "CoLA", ("sentence",), "label", ("0", "1"), ("matthews", "accuracy"), ("source", "label", "star", "sentence")
    ),
    "sst2": Glue("SST-2", ("sentence",), "label", ("0", "1")),
    "mrpc": Glue("MRPC", ("#1 String", "#2 String"), "Quality", ("0", "1"), ("f1", "accuracy")),
    "stsb": Glue("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
    "rte": Glue("RTE", ("sentence1", "sentence2"), "label", ("entailment", "not_entailment")),
    "qnli": Glue("QNLI", ("question", "sentence"), "label", ("entailment", "not_entailment")),
}
GLUE_METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": sklearn_metrics.accuracy_score,
    "f1": sklearn_metrics.f1_score,
    "matthews": sklearn_metrics.matthews_corrcoef,
    "pearson": lambda true, found: stats.pearsonr(true, found).statistic,
    "spearman": lambda true, found: stats.spearmanr(true, found).statistic,
}


def read_tsv(path: Path, header: tuple[str, ...] | None) -> list[dict[str, str]]:
    """The rows of an official file: quotes are ordinary characters."""
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        names = header or tuple(next(lines))
        return [dict(zip(names, line, strict=True)) for line in lines]


def glue_job(name: str, settings: Settings, tokenizer: Any) -> Job:
    """Single sentences and pairs; classes or a number."""
    task = GLUE[name]

    def load(file: str, rows: int | None) -> list[Feature]:
        examples = read_tsv(settings.data / "glue" / task.folder / file, task.header)[:rows]
        texts = [[example[column] for example in examples] for column in task.text]
        features = tokenizer(*texts, truncation=True, max_length=settings.max_seq_length, padding=settings.padding)
        labels = [task.labels.index(e[task.label]) if task.labels else float(e[task.label]) for e in examples]
        return [{**{k: v[i] for k, v in features.items()}, "labels": label} for i, label in enumerate(labels)]

    train, dev = load("train.tsv", settings.rows), load("dev.tsv", settings.dev_rows)
    true = np.array([feature["labels"] for feature in dev])

    def judge(model: Any) -> Metrics:
        logits = np.stack(outputs(model, tokenizer, dev, ["logits"])[0])
        found = logits.argmax(-1) if task.labels else logits[:, 0]
        return {metric: float(GLUE_METRICS[metric](true, found)) for metric in task.metrics}

    return Job(
        transformers.AutoModelForSequenceClassification,
        {"num_labels": len(task.labels) or 1},
        transformers.DataCollatorWithPadding(tokenizer),
        train,
        {"train": len(train), "dev": len(dev)},
        judge,
    )


# CoNLL-2003

Sentence = tuple[list[str], list[str]]  # words, tags


def read_conll(path: Path) -> list[list[Sentence]]:
    """Documents of sentences, tags in IOB2."""
    documents: list[list[Sentence]] = []
    sentence: list[list[str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        columns = line.split()
        if columns and columns[0] != "-DOCSTART-":
            sentence.append(columns)
            continue
        if columns:
            documents.append([])
        elif sentence:
            documents[-1].append(([columns[0] for columns in sentence], iob2([columns[-1] for columns in sentence])))
            sentence = []
    return documents


def iob2(tags: Sequence[str]) -> list[str]:
    """IOB1 or IOB2 to IOB2: every entity begins with B-."""
    out, before = [], "O"
    for tag in tags:
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        out.append("B-" + tag[2:] if begins else tag)
        before = tag
    return out


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """The entities of a sentence (first word, word after the last, type), cut as conlleval does."""
    found, start = set(), -1
    for i, tag in enumerate([*tags, "O"]):
        before = tags[i - 1] if i else "O"
        if start >= 0 and (tag[:1] != "I" or tag[2:] != before[2:]):
            found.add((start, i, before[2:]))
            start = -1
        if start < 0 and tag != "O":
            start = i
    return found


def entity_scores(true: Iterable[Sequence[str]], found: Iterable[Sequence[str]]) -> Metrics:
    """Precision, recall and F1 over the entities of all sentences, as conlleval and seqeval's default mode."""
    in_true = in_found = right = 0
    for a, b in zip(true, found, strict=True):
        one, other = entities(a), entities(b)
        in_true, in_found, right = in_true + len(one), in_found + len(other), right + len(one & other)
    precision, recall = right / max(in_found, 1), right / max(in_true, 1)
    return {"f1": 2 * right / max(in_true + in_found, 1), "precision": precision, "recall": recall}


def windows(documents: list[list[Sentence]], tokenizer: Any, room: int) -> list[list[tuple[int, int]]]:
    """Rows as lists of (sentence, word), sentences counted over the whole file.

    Whole sentences of one document up to `room` word pieces; a longer sentence is cut between words.
    """
    rows: list[list[tuple[int, int]]] = []
    number = 0
    for document in documents:
        free = 0
        for words, _ in document:
            pieces = collections.Counter(tokenizer(words, is_split_into_words=True).word_ids())
            if sum(pieces[i] for i in range(len(words))) > free:
                rows.append([])
                free = room
            for i in range(len(words)):
                if pieces[i] > free:  # only where the sentence alone is too long
                    rows.append([])
                    free = room
                rows[-1].append((number, i))
                free -= pieces[i]
            number += 1
    return rows


def conll_job(name: str, settings: Settings, tokenizer: Any) -> Job:
    """The first piece of a word carries its tag."""
    parts = {}
    for part, limit in (("train", settings.rows), ("testa", settings.dev_rows), ("testb", settings.dev_rows)):
        documents = read_conll(settings.data / "conll2003" / f"eng.{part}")[:limit]
        sentences = [sentence for document in documents for sentence in document]
        rows = windows(documents, tokenizer, settings.max_seq_length - 2)
        parts[part] = (sentences, rows, tokenizer([[sentences[s][0][i] for s, i in row] for row in rows],
            is_split_into_words=True, truncation=True, max_length=settings.max_seq_length))  # fmt: skip
    tags = sorted({tag for _, tags in parts["train"][0] for tag in tags})
    number = {tag: i for i, tag in enumerate(tags)}

    def features(part: str) -> list[Feature]:
        sentences, rows, made = parts[part]
        out = []
        for r, row in enumerate(rows):
            labels, before = [], None
            for word in made.word_ids(r):
                first = word is not None and word != before
                labels.append(number[sentences[row[word][0]][1][row[word][1]]] if first else -100)
                before = word
            out.append({**{k: v[r] for k, v in made.items()}, "labels": labels})
        return out

    train = features("train")

    def judge_part(model: Any, part: str) -> Metrics:
        sentences, rows, made = parts[part]
        found = [["O"] * len(words) for words, _ in sentences]
        columns = [{k: v[r] for k, v in made.items()} for r in range(len(rows))]
        for r, logits in enumerate(outputs(model, tokenizer, columns, ["logits"])[0]):
            best, before = logits.argmax(-1), None
            for position, word in enumerate(made.word_ids(r)):
                if word is not None and word != before:
                    s, i = rows[r][word]
                    found[s][i] = tags[best[position]]
                before = word
        return entity_scores([tags for _, tags in sentences], found)

    def judge(model: Any) -> Metrics:
        test = judge_part(model, "testb")
        return {**judge_part(model, "testa"), **{f"test_{metric}": value for metric, value in test.items()}}

    return Job(
        transformers.AutoModelForTokenClassification,
        {"id2label": dict(enumerate(tags)), "label2id": number},
        transformers.DataCollatorForTokenClassification(tokenizer),
        train,
        {
            "train": len(parts["train"][0]),
            "dev": len(parts["testa"][0]),
            "test": len(parts["testb"][0]),
            "train_windows": len(train),
        },
        judge,
    )


# SQuAD

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

    def judge(model: Any) -> Metrics:
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
        judge,
    )


def held(question: dict[str, Any]) -> bool:
    """Is the answer where its answer_start says?"""
    answer = question["answers"][0]
    return question["context"][answer["answer_start"] :].startswith(answer["text"])


JOBS: dict[str, Callable[[str, Settings, Any], Job]] = {"glue": glue_job, "conll": conll_job, "squad": squad_job}
