"""Tables for two kinds of tasks that no official file here has: several labels of a sentence, and long documents.

    python benchmarks/derived_tasks.py --data ../shared/data --out tables
    bertworks finetune --kind multilabel --train tables/entity-types/train.jsonl --dev tables/entity-types/dev.jsonl \
        --model MODEL --out runs/entity-types
    bertworks finetune --train tables/books/train.jsonl --dev tables/books/dev.jsonl --max-seq-length 128 \
        --model MODEL --out runs/books
    python benchmarks/derived_tasks.py --smoke

entity-types: which types of names a sentence of CoNLL-2003 has, if any; the official division into train and dev.
books: which of some books a passage of 1,500 words is from. Passages of the first four fifths of a book are training
rows, those of the last fifth development rows; none overlaps another. They are longer than most models read:
`--max-seq-length` cuts them, `bertworks predict` averages windows, and a model with 2,048 positions reads them whole.
Reuters' texts may not be passed on, so keep the tables to yourself.
"""

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

import common
from bertworks.files import to_json, write_text
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import read_rows
from bertworks.tasks.tags import chunks

SMOKE = {"books": 2, "words": 20}
DEV_SHARE = 0.2  # share of a book's passages, its last ones, that are development rows
WINDOW = 2**27  # bytes of the largest zstd window that is read
Tables = dict[str, list[dict[str, Any]]]  # rows by part: train and dev


def entity_types(folder: Path) -> Tables:
    """The sentences of CoNLL-2003, each with the types of the names in it."""
    task = TASKS["conll2003"]
    return {
        part: [
            {"text": row.text, "label": sorted({chunk.type for chunk in chunks(row.tags or ())})}
            for row in read_rows(task, folder / file)
        ]
        for part, file in (("train", task.train), ("dev", task.dev))
    }


def passages(text: str, words: int) -> list[str]:
    """A book without its headings, which name it, in passages of so many words; the rest at its end is dropped."""
    body = " ".join(line for line in text.splitlines() if not line.startswith("#")).split()
    return [" ".join(body[i : i + words]) for i in range(0, len(body) - words + 1, words)]


def which_book(books: dict[str, str], count: int, words: int) -> Tables:
    """Passages of the `count` longest books, labelled by the book."""
    found: Tables = {"train": [], "dev": []}
    for title in sorted(sorted(books, key=lambda title: -len(books[title]))[:count]):
        made = passages(books[title], words)
        first_of_dev = len(made) - max(1, round(DEV_SHARE * len(made)))
        for i, text in enumerate(made):
            found["dev" if i >= first_of_dev else "train"].append({"text": text, "label": title})
    return found


def read_books(archive: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of each book of an archive of Markdown files."""
    with (
        open(archive, "rb") as file,
        zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(file) as raw,
        tarfile.open(fileobj=raw, mode="r|") as books,
    ):
        for member in books:
            content = books.extractfile(member) if member.name.endswith(".md") else None
            if content:
                yield Path(member.name).stem, content.read().decode()


def main(argv: list[str] | None = None) -> None:
    """Write the tables."""
    parser = common.parser(__doc__, "tables")
    parser.add_argument("--books", type=int, default=20, help="number of books, the longest ones")
    parser.add_argument("--words", type=int, default=1500, help="words of a passage")
    with common.parsed(parser, argv, SMOKE) as options:
        conll, archive = options.data / "conll2003", options.data / "text" / "books.tar.zst"
        common.need(conll)
        tables = {"entity-types": entity_types(conll)}
        if archive.exists() or not options.smoke:  # the tiny data has no books
            common.need(archive)
            tables["books"] = which_book(dict(read_books(archive)), options.books, options.words)
        for name, parts in tables.items():
            (options.out / name).mkdir(parents=True, exist_ok=True)
            for part, rows in parts.items():
                write_text(options.out / name / f"{part}.jsonl", "".join(to_json(row) + "\n" for row in rows))
                print(f"{options.out / name / part}.jsonl: {len(rows):,} rows")


if __name__ == "__main__":
    main(sys.argv[1:])
