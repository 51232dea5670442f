"""The labelled Korean texts that mini-ko is pre-trained on beside Korean Wikipedia, as JSON lines with a field "text".

    python docs/results/encoders/korean.py data/korean out

writes out/nsmc.jsonl (training reviews of NSMC) and out/korsts.jsonl (each different training sentence of KorSTS once).
A text that also occurs in data of evaluation, but for spaces, is left out: the development and test sets of NSMC and
KorSTS, the sentences of KLUE-NER, the contexts and questions of KorQuAD. The numbers are printed. wikipedia.py leaves
out the articles that KorQuAD's questions are about.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from wikipedia import plain


def columns(path: Path, *names: str) -> Iterator[str]:
    """The texts of these columns of a table, row by row."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield from (row[name] for name in names if row[name])


def evaluation_texts(data: Path) -> dict[str, set[str]]:
    """The texts of each set of evaluation."""
    pair, texts = ("sentence1", "sentence2"), {}
    texts["NSMC, dev"] = columns(data / "nsmc/ratings_test.txt", "document")
    texts["KorSTS, dev"] = columns(data / "korsts/sts-dev.tsv", *pair)
    texts["KorSTS, test"] = columns(data / "korsts/sts-test.tsv", *pair)
    lines = (data / "klue-ner/klue-ner-v1.1_dev.tsv").read_text(encoding="utf-8").splitlines()
    sentences = (line.partition("\t")[2] for line in lines if line.startswith("## klue"))
    texts["KLUE-NER"] = (re.sub(r"<([^<>]*):[A-Z]{2}>", r"\1", sentence) for sentence in sentences)
    articles = json.loads((data / "korquad/KorQuAD_v1.0_dev.json").read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    texts["KorQuAD, contexts"] = (paragraph["context"] for paragraph in paragraphs)
    texts["KorQuAD, questions"] = (question["question"] for one in paragraphs for question in one["qas"])
    return {name: {plain(text) for text in some} for name, some in texts.items()}


def write(name: str, texts: Iterable[str], evaluated: dict[str, set[str]], out: Path) -> None:
    """Write those texts that no set of evaluation has; print how many each has."""
    texts, every = list(texts), set().union(*evaluated.values())
    kept = [text for text in texts if plain(text) not in every]
    lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept)
    (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    print(f"{name}: {len(kept):,} of {len(texts):,} texts kept; left out:", shared(texts, evaluated))


def shared(texts: Iterable[str], evaluated: dict[str, set[str]]) -> dict[str, int]:
    """How many of the texts are in each set of evaluation."""
    plain_texts = [plain(text) for text in texts]
    return {name: sum(text in one for text in plain_texts) for name, one in evaluated.items()}


def main(data: Path, out: Path) -> None:
    """Write the files and print the counts."""
    out.mkdir(parents=True, exist_ok=True)
    evaluated = evaluation_texts(data)
    print({name: len(texts) for name, texts in evaluated.items()})
    write("nsmc", columns(data / "nsmc/ratings_train.txt", "document"), evaluated, out)
    pairs = columns(data / "korsts/sts-train.tsv", "sentence1", "sentence2")
    write("korsts", dict.fromkeys(pairs), evaluated, out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
