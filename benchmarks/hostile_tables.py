"""Text, tables and official task files that are valid, for hostile.py to attack."""

import csv
import gzip
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

from conftest import tiny_texts
from hostile_inputs import OWN


def write_texts(base: Path) -> None:
    texts = tiny_texts(60)
    more = ["Café Zürich, 40 %. Good film.", "한국어 문장입니다. 좋은 영화.", "Straße — naïve; 龍. [MASK] again."]
    (base / "text.txt").write_text("\n".join([*texts[:12], *more]) + "\n")
    (base / "words.txt").write_text("walking\nrivers\nletterbox\n한국\ngoodness\n")
    vectors = [
        " ".join([word, *(f"{len(word) * i / 7:.3f}" for i in range(4))]) for word in ("good", "bad", "river", ",")
    ]
    (base / "vectors.txt").write_text("\n".join(["4 4", *vectors]) + "\n")
    for kind in ("text", "wiki", "jsonl", "parquet", "archive"):
        (base / f"corpus-{kind}").mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        for kind in ("text", "archive"):
            (base / f"corpus-{kind}" / name).write_text("\n\n".join(texts[ord(name[0]) % 3 :: 3]))
    wiki = "".join(
        f'<doc id="{i}" url="u?curid={i}" title="T{i}">\nT{i}\n\n{text}\n</doc>\n' for i, text in enumerate(texts)
    )
    (base / "corpus-wiki/wiki_00").write_text(wiki)
    (base / "corpus-jsonl/a.jsonl").write_text(
        "".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(texts))
    )
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": texts, "id": list(range(len(texts)))}), base / "corpus-parquet/a.parquet")
    (base / "corpus-archive/a.gz").write_bytes(gzip.compress("\n".join(texts[:9]).encode(), mtime=0))
    with tarfile.open(base / "corpus-archive/b.tar", "w") as archive:
        for i, text in enumerate(texts[9:15]):
            member = tarfile.TarInfo(f"{i}.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def write_tables(base: Path) -> None:
    rng = random.Random(5)
    rows = []
    for i in range(16):
        label = rng.choice(("good", "bad")) if i > 1 else ("good", "bad")[i]
        text = f"{label} film, {' '.join(rng.choices('abcdef', k=rng.randint(1, 6)))}"
        score, right = str(rng.randint(0, 5)), str(rng.randrange(2))
        row = {"text": text, "other": "a b c", "label": label, "score": score, "several": label}
        rows.append({**row, "one": "a", "two": "b", "right": right})
    for kind in OWN:
        _write_table(base, kind, rows)
    tagged = [
        {"words": ["Anna", "met", "Ben", "."], "tags": ["B-PER", "O", rng.choice(("B-PER", "O")), "O"]}
        for _ in range(12)
    ]
    (base / "tagging.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tagged))
    asked = [
        {"question": "who ?", "context": "good film a b c", "answer": rng.choice(("film", "good"))} for _ in range(12)
    ]
    (base / "span.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))


def _write_table(base: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    for form, delimiter in (("csv", ","), ("tsv", "\t")):
        with open(base / f"{kind}.{form}", "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    several = kind == "multilabel"
    lines = (json.dumps({**row, "several": [row["several"]] if several else row["several"]}) + "\n" for row in rows)
    (base / f"{kind}.jsonl").write_text("".join(lines))


def write_tasks(base: Path) -> None:
    for folder in ("cola", "mrpc", "stsb", "squad", "conll", "swag"):
        (base / folder).mkdir()
    texts = ["good film", "bad film", "a b c .", "the cat sat"]
    for part in ("train", "dev"):
        (base / f"cola/{part}.tsv").write_text("".join(f"x\t{i % 2}\t\t{text}\n" for i, text in enumerate(texts * 3)))
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        (base / f"mrpc/{part}.tsv").write_text(
            head + "".join(f"{i % 2}\t1\t2\t{t}\ta b\n" for i, t in enumerate(texts * 3))
        )
        head = "index\tsentence1\tsentence2\tscore\n"
        (base / f"stsb/{part}.tsv").write_text(
            head + "".join(f"{i}\t{t}\ta b\t{i % 6}.5\n" for i, t in enumerate(texts * 2))
        )
        paragraphs = []
        for i, text in enumerate(("good film a b c .", "the bad cat sat ( on ) a mat")):
            word = text.split()[1]
            answers = [{"text": word, "answer_start": text.index(word)}]
            asked = [{"id": f"{part}{i}", "question": "who ?", "answers": answers, "is_impossible": False},
                     {"id": f"{part}{i}n", "question": "what ?", "answers": [], "is_impossible": True}]  # fmt: skip
            paragraphs.append({"context": text, "qas": asked})
        whole = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (base / f"squad/{part}-v2.0.json").write_text(json.dumps(whole))
        tagged = "-DOCSTART- -X- O O\n\nAnna NNP I-NP I-PER\nmet VBD I-VP O\nBen NNP I-NP I-PER\n. . O O\n\na DT O O\n"
        (base / "conll" / {"train": "eng.train", "dev": "eng.testa"}[part]).write_text(tagged * 4)
        names = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"]
        with open(base / "swag" / {"train": "train.csv", "dev": "val.csv"}[part], "w", newline="") as file:
            csv.writer(file).writerows(
                [names, *([t, "a", "b", "c", "d", "e", str(i % 4)] for i, t in enumerate(texts * 2))]
            )
