"""Which planted near-duplicates `corpus build --near-duplicates` leaves out, and whether it leaves out anything else.

    python benchmarks/near_duplicates.py [--data ../shared/data] [--threshold 0.8] [--out FILE] [--smoke]

The documents are paragraphs of Wikipedia, and copies of some of them in which a share of the words is replaced. True
similarities come from the sets of all shingles, without sketches. Of a pair whose true similarity reaches the threshold
one document has to go (recall). A document that goes has to have such a partner (precision).
"""

import itertools
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import common
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.data.sentences import split_sentences
from bertworks.data.sketches import SHINGLE
from bertworks.data.store import Store
from bertworks.tokenizer import Tokenizer

RATES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)  # shares of words that are replaced
COUNTED = 1000  # a shingle of more documents than this is not looked up; none of the data has one
SMOKE = {"paragraphs": 40, "planted": 3, "words": 10, "threshold": 0.8, "workers": 1}


def paragraphs(data: Path, count: int, words: int) -> list[str]:
    """The first different paragraphs of at least so many words."""
    lines = (line for document in read_documents([data / common.TEXT]) for line in document.text.split("\n"))
    long = (" ".join(line.split()) for line in lines if len(line.split()) >= words)
    return [*dict.fromkeys(itertools.islice(long, count))]


def replaced(text: str, rate: float, vocabulary: list[str], draw: random.Random) -> str:
    """The text with a share of its words, at least one, replaced by others."""
    words = text.split()
    for place in draw.sample(range(len(words)), max(1, round(rate * len(words)))):
        words[place] = draw.choice(vocabulary)
    return " ".join(words)


def pairs(shingles: list[set[tuple[int, ...]]], least: float) -> dict[tuple[int, int], float]:
    """The pairs of documents that share at least `least` of their shingles, with that share."""
    documents = defaultdict(list)
    for number, own in enumerate(shingles):
        for shingle in own:
            documents[shingle].append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for numbers in documents.values():
        shared.update(itertools.combinations(numbers, 2) if len(numbers) <= COUNTED else ())
    found = {pair: count / len(shingles[pair[0]] | shingles[pair[1]]) for pair, count in shared.items()}
    return {pair: share for pair, share in found.items() if share >= least}


def kept(store: Path) -> Iterator[bytes]:
    """The tokens of every document in a store."""
    opened = Store.open(store)
    for shard in (shard for split in ("train", "validation") for shard in opened.shards(split)):
        edges = shard.sentences[shard.documents]
        yield from (shard.tokens[start:stop].tobytes() for start, stop in itertools.pairwise(edges))


def measure(options: Any, work: Path) -> common.Result:
    """Build a store of paragraphs and planted copies, and compare what it lacks with the true similarities."""
    draw, tokenizer = random.Random(1), Tokenizer.load(options.data / common.VOCAB, lowercase=True)
    texts = paragraphs(options.data, options.paragraphs, options.words)
    vocabulary = sorted({word for text in texts for word in text.split()})
    planted: dict[int, tuple[int, float]] = {}  # number of the copy: number of the original, rate
    for rate in RATES * options.planted:
        planted[len(texts) + len(planted)] = len(planted) % len(texts), rate
    texts += [replaced(texts[original], rate, vocabulary, draw) for original, rate in planted.values()]
    (work / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    config = BuildConfig(
        InputOptions("text", "blank-line"),
        near_duplicates=options.threshold,
        workers=options.workers,
        allow_unknown=True,
    )
    begun = time.perf_counter()
    manifest = build([work / "text.txt"], tokenizer, work / "store", config, progress=False)
    seconds = time.perf_counter() - begun
    tokens = [np.concatenate([*map(np.array, tokenizer.ids_of(split_sentences(text)))]).tolist() for text in texts]
    shingles = [{tuple(own[i : i + SHINGLE]) for i in range(len(own) - SHINGLE + 1)} for own in tokens]
    present = set(kept(work / "store"))
    gone = {number for number, own in enumerate(tokens) if np.array(own, np.uint16).tobytes() not in present}
    assert len(gone) == manifest["counts"]["dropped"]["near-duplicate"]
    similar = pairs(shingles, 0.0 if options.smoke else 0.1)
    alike = [pair for pair, share in similar.items() if share >= options.threshold]
    partners = {number for pair in alike for number in pair}
    return {
        "what": "near-duplicates left out of a store: planted copies of Wikipedia paragraphs with replaced words",
        "threshold": options.threshold,
        "documents": len(texts),
        "recall": {"pairs": len(alike), "one left out": sum(not gone.isdisjoint(pair) for pair in alike)},
        "precision": {"left out": len(gone), "with a partner": len(gone & partners)},
        "rates": [rates_entry(rate, planted, similar, gone) for rate in RATES],
        "seconds": round(seconds, 2),
        "machine": common.machine_facts(),
    }


def rates_entry(
    rate: float, planted: dict[int, tuple[int, float]], similar: dict[tuple[int, int], float], gone: set[int]
) -> common.Result:
    """What became of the copies with one rate: mean similarity, and of how many pairs one document is gone."""
    own = [(original, copy) for copy, (original, found) in planted.items() if found == rate]
    return {
        "words replaced": rate,
        "pairs": len(own),
        "mean similarity": round(float(np.mean([similar.get(pair, 0.0) for pair in own])), 3),
        "one left out": sum(not gone.isdisjoint(pair) for pair in own),
    }


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "near-duplicates.json")
    parser.add_argument("--paragraphs", type=int, default=6000, help="of Wikipedia")
    parser.add_argument("--planted", type=int, default=300, help="copies with each share of replaced words")
    parser.add_argument("--words", type=int, default=60, help="least words of a paragraph")
    parser.add_argument("--threshold", type=float, default=0.8, help="of similarity")
    parser.add_argument("--workers", type=int, default=1)
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        common.finish(options, measure(options, Path(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
