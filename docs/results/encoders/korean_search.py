"""Search in Korean without training: vectors of encoders beside TF-IDF and BM25 over characters.

    python docs/results/encoders/korean_search.py DATA OUT ENCODER [ENCODER ...]

writes OUT. DATA holds korsts/ and korquad/. KorSTS: Spearman correlation of cosines on the development pairs; TF-IDF
counts documents in the training sentences, whose scores are not read. KorQuAD: the paragraph of a question among those
of the development file. One question of each of 500 paragraphs drawn at random; a paragraph is cut into passages of
whole sentences, and its best passage counts. ENCODER: a bundled name or a folder; its vectors are means over tokens.
"""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from bertworks import Predictor
from bertworks.data.sentences import split_sentences
from bertworks.experiments.baselines import CHARACTERS
from bertworks.files import write_json
from bertworks.tasks.metrics import METRICS
from bertworks.training.machine import facts

PARAGRAPHS, SEED = 500, 1
LONGEST = 200  # characters of a passage, about 100 tokens of mini-ko; a longer sentence is a passage by itself
K1, B = 1.2, 0.75  # of BM25, as in Lucene


def bm25(queries: Sequence[str], passages: Sequence[str]) -> Any:
    """BM25 over pairs of neighbouring characters within a word."""
    vectors = CountVectorizer(analyzer="char_wb", ngram_range=(2, 2))
    counts = vectors.fit_transform(passages).tocoo()
    length = np.bincount(counts.row, counts.data, len(passages))
    found = np.bincount(counts.col, minlength=counts.shape[1])
    idf = np.log1p((len(passages) - found + 0.5) / (found + 0.5))
    scaled = counts.data + K1 * (1 - B + B * length[counts.row] / length.mean())
    counts.data = idf[counts.col] * counts.data * (K1 + 1) / scaled
    return (vectors.transform(queries).sign() @ counts.T.tocsr()).toarray()


def tf_idf(queries: Sequence[str], passages: Sequence[str]) -> Any:
    """Cosines of TF-IDF of one to four characters within a word."""
    vectors = TfidfVectorizer(sublinear_tf=True, **CHARACTERS).fit(passages)
    return (vectors.transform(queries) @ vectors.transform(passages).T).toarray()


def sentence_pairs(data: Path, part: str) -> list[list[str]]:
    """Score and two sentences of each row of KorSTS."""
    lines = (data / f"korsts/sts-{part}.tsv").read_text("utf-8").strip().split("\n")[1:]
    return [line.split("\t")[4:7] for line in lines]


def passages_of(paragraph: str) -> list[str]:
    """A paragraph in parts of whole sentences."""
    parts: list[str] = []
    for sentence in split_sentences(paragraph.replace("\n", " "), "ko"):
        if parts and len(parts[-1]) + len(sentence) < LONGEST:
            parts[-1] += f" {sentence}"
        else:
            parts.append(sentence)
    return parts


def ranks_of(similar: Any, owner: Any) -> Any:
    """The rank of each query's own paragraph; equal values are counted before it."""
    best = np.full((len(similar), len(similar)), -np.inf)
    for paragraph in range(len(similar)):
        best[:, paragraph] = similar[:, owner == paragraph].max(1)
    return (best >= best.diagonal()[:, None]).sum(1)


def main(data: Path, out: Path, *encoders: str) -> None:
    """Measure, and write the file."""
    train, rows = (sentence_pairs(data, part) for part in ("train", "dev"))
    gold = np.array([float(row[0]) for row in rows])
    first, second = ([row[i] for row in rows] for i in (1, 2))
    squad = json.loads((data / "korquad/KorQuAD_v1.0_dev.json").read_text("utf-8"))["data"]
    paragraphs = random.Random(SEED).sample(
        [one for article in squad for one in article["paragraphs"] if one["qas"]], PARAGRAPHS
    )
    questions = [one["qas"][0]["question"] for one in paragraphs]
    cut = [passages_of(one["context"]) for one in paragraphs]
    passages, owner = [part for parts in cut for part in parts], np.repeat(range(len(cut)), [*map(len, cut)])

    def scores(cosines: Any, similar: Any) -> dict[str, float]:
        ranks = ranks_of(similar, owner)
        sts = {} if cosines is None else {"spearman": float(METRICS["spearman"](gold, cosines))}
        return {**sts, "mrr": float((1 / ranks).mean()), "recall_at_1": float((ranks == 1).mean())}

    vectors = TfidfVectorizer(sublinear_tf=True, **CHARACTERS).fit([text for row in train for text in row[1:]])
    cosines = np.asarray(vectors.transform(first).multiply(vectors.transform(second)).sum(1)).ravel()
    methods = {"TF-IDF": scores(cosines, tf_idf(questions, passages)), "BM25": scores(None, bm25(questions, passages))}
    for name in encoders:
        embed = Predictor(name).embed
        one, other, asked, answers = (embed(texts, normalize=True) for texts in (first, second, questions, passages))
        methods[name] = scores((one * other).sum(1), asked @ answers.T)
    counts = {"korsts_pairs": len(rows), "paragraphs": len(cut), "passages": len(passages)}
    write_json(out, {"methods": methods, **counts, "seed": SEED, "machine": facts()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
