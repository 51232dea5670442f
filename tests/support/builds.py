"""Texts and builds of small corpus stores."""

import itertools
import random
from pathlib import Path

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.data.opening import open_store

LINES = InputOptions(documents="blank-line")
TEXT = "the a cat dog house river walks sees takes old new of in on it they"
WORDS = TEXT.split()


def document(seed: int, sentences: int = 6) -> str:
    draw = random.Random(seed)
    return " ".join(" ".join(draw.choices(WORDS, k=draw.randint(4, 15))).capitalize() + "." for _ in range(sentences))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(corpus, tokenizer, out, **settings):
    config = BuildConfig(**{"input": LINES, "workers": 1, **settings})
    return build([corpus], tokenizer, out, config, progress=False)


def documents(store: Path, split: str) -> list[bytes]:
    found = []
    for shard in open_store(store).shards(split):
        edges = shard.sentences[shard.documents]
        found += [shard.tokens[a:b].tobytes() for a, b in itertools.pairwise(edges)]
    return found
