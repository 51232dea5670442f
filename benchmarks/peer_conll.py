"""CoNLL-2003 by transformers, as its run_ner does it, but for the rows: windows of several sentences of a document."""

import collections
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import transformers

from finetuning_settings import Settings
from peer_job import Feature, Job, Metrics, outputs

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

    def evaluate_part(model: Any, part: str) -> Metrics:
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

    def evaluate(model: Any) -> Metrics:
        test = evaluate_part(model, "testb")
        return {**evaluate_part(model, "testa"), **{f"test_{metric}": value for metric, value in test.items()}}

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
        evaluate,
    )
