"""Precision and recall of the sentence splitters on Korean passages that were cut by reading them, and their speed.

    python benchmarks/korean_sentences.py [--data ../shared/data] [--out FILE] [--smoke]

139 passages (460 sentences) were drawn at random: `random.Random(20).sample` from the sorted different paragraphs of
Korean Wikipedia (50, of 80 to 500 characters), contexts of KorQuAD (14, of 80 to 700), movie reviews of NSMC (45, of at
least 70) and sentences of KLUE-NER (30, of at least 60). They were cut before any splitter's output was looked at.
A sentence ends with its finite verb or its closing mark, with the marks, quotes and laughter after it; also where a
writer left out full stop and space. A quotation inside a sentence is not cut, nor is a list of clauses with commas.
The texts are not in the repository: `korean_cuts.json` has a hash of each and the cuts, in characters without space.

The rules of korean.py were mended once after a look at these results (brackets, laughter, "다 한다"): a first draft
had an F1 of 0.927 where the kept one has 0.941. The figures of the other splitters are of unseen text.
"""

import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import sentencex

import common
from bertworks.data.corpus import read_documents
from bertworks.data.sentences import Splitter, split_sentences, splitter_version
from bertworks.tokenizer import normalize

CUTS = Path(__file__).parent / "korean_cuts.json"
TINY = [  # what --smoke measures on: a text, and the ends of its sentences but the last, without space
    {"source": "tiny", "text": '그는 "갔다. 또 왔다."라고 말했다. 비가 왔다.', "cuts": [17]},
    {"source": "tiny", "text": "정말 좋았어요 또 볼래요", "cuts": [6]},
]


def texts(data: Path) -> Iterator[str]:
    """Every text of the four sources, in the form that is cut: composed, single spaces."""
    for document in read_documents([data / common.KOREAN_TEXT]):
        yield from document.text.split("\n")
    for line in (data / "korean/nsmc/ratings_train.txt").read_text("utf-8").split("\n"):
        yield from line.split("\t")[1:2]
    squad = json.loads((data / "korean/korquad/KorQuAD_v1.0_dev.json").read_text("utf-8"))
    yield from (paragraph["context"] for article in squad["data"] for paragraph in article["paragraphs"])
    for line in (data / "korean/klue-ner/klue-ner-v1.1_dev.tsv").read_text("utf-8").split("\n"):
        if line.startswith("## klue-ner") and "\t" in line:
            yield re.sub(r"<([^<>:]+):[A-Z]{2}>", r"\1", line.split("\t", 1)[1])


def digest(text: str) -> str:
    """How korean_cuts.json names a text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def passages(data: Path) -> list[dict[str, Any]]:
    """The passages with their texts, as korean_cuts.json lists them."""
    wanted = {entry["hash"]: entry for entry in json.loads(CUTS.read_text("utf-8"))}
    found = {}
    for text in texts(data):
        words = " ".join(normalize("NFC", text).split())
        if (name := digest(words)) in wanted:
            found[name] = {**wanted[name], "text": words}
    if missing := wanted.keys() - found.keys():
        raise SystemExit(f"{data}: {len(missing)} of {len(wanted)} passages are not in it; expected the data of README")
    return [found[name] for name in wanted]


def ends(sentences: Iterable[str]) -> set[int]:
    """Where each sentence but the last one ends, in characters without space."""
    offsets, size = [], 0
    for sentence in sentences:
        size += len("".join(sentence.split()))
        offsets.append(size)
    return set(offsets[:-1])


def scores(counts: Counter[str]) -> common.Result:
    """Precision, recall and F1 of cuts."""
    right, wrong, missed = (counts[name] for name in ("right", "wrong", "missed"))
    precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return {"precision": round(precision, 3), "recall": round(recall, 3), "f1": round(f1, 3), **counts}


def measure_one(split: Callable[[str], list[str]], given: list[dict[str, Any]], rounds: int) -> common.Result:
    """Scores of one splitter on reviews, on written text and on all, and its passages a second."""
    split(given[0]["text"])  # loads what it needs
    counted: dict[str, Counter[str]] = {"written": Counter(), "reviews": Counter(), "all": Counter()}
    for passage in given:
        cut, true = ends(split(passage["text"])), set(passage["cuts"])
        counts = Counter(right=len(cut & true), wrong=len(cut - true), missed=len(true - cut))
        for name in ("reviews" if passage["source"] == "nsmc" else "written", "all"):
            counted[name] += counts
    begun = time.perf_counter()
    for _ in range(rounds):
        for passage in given:
            split(passage["text"])
    seconds = time.perf_counter() - begun
    return {
        **{name: scores(counts) for name, counts in counted.items()},
        "passages_a_second": round(rounds * len(given) / seconds),
    }


def splitters() -> dict[str, Callable[[str], list[str]]]:
    """By name: what each splitter does with a text. The first is what `--language ko` was before there were others."""

    def of(splitter: Splitter) -> Callable[[str], list[str]]:
        return lambda text: split_sentences(text, "ko", splitter)

    return {
        splitter_version("auto", "en"): lambda text: list(sentencex.segment("en", text)),
        splitter_version("auto", "ko"): of("auto"),
        splitter_version("line", "ko"): of("line"),
    }


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "korean-sentences.json")
    parser.add_argument("--rounds", type=int, default=20, help="over all passages, for the speed")
    with common.parsed(parser, argv, {"rounds": 1}) as options:
        given = TINY if options.smoke else passages(options.data)
        result = {
            "what": "cuts between sentences of Korean passages against cuts made by reading; one thread",
            "passages": len(given),
            "sentences": sum(len(passage["cuts"]) + 1 for passage in given),
            "sources": Counter(passage["source"] for passage in given),
            "splitters": {name: measure_one(split, given, options.rounds) for name, split in splitters().items()},
            "machine": common.machine_facts(),
        }
        common.finish(options, result)


if __name__ == "__main__":
    main(sys.argv[1:])
