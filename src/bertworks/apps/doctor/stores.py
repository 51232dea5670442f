"""Corpus stores: altered files, mask shares of real batches, [UNK] by script, documents of one sentence, duplicates."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...batch import IGNORED, Batch
from ...data.batches import PretrainingData, Vocabulary
from ...data.corpus import FORMATS
from ...data.instances import InstanceConfig, Position
from ...data.masking import MaskingConfig
from ...data.sketches import SHINGLE
from ...data.store import Shard, Store
from ...data.streams import bare_name
from ...tokenizer import Tokenizer
from ...tokenizer.check import misfits, script
from .alike import LEAST, Shingles, find_alike
from .findings import Finding, NotChecked, Report, percent

ONE_SENTENCE = 0.3  # share of documents
UNKNOWN = 0.02  # share of [UNK] among the tokens
UNUSED = 0.5  # share of the vocabulary that never occurs
CUT = 0.01  # share of the sentences that were cut
DOCUMENTS, TOKENS = 3_000, 3_000_000  # that are looked at, of each split
TWICE = 0.01  # share of documents
ROWS = 512  # instances whose masks are counted
SIGMAS = 5.0  # standard errors from which a share of masks is wrong
SMALL = 1_000_000  # tokens
RECORDS = ("jsonl", "parquet")  # formats whose documents are records
RECORD_FILES = (".parquet", *(ending for ending, kind in FORMATS.items() if kind in RECORDS))


@dataclass(frozen=True)
class OpenStore:
    """A store that could be opened."""

    store: Store

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made it."""
        return self.store.load_tokenizer()

    @cached_property
    def batch(self) -> Batch:
        """The first masked instances, as the paper makes them. Raises NotChecked if there are none."""
        settings = (128, InstanceConfig(), MaskingConfig())
        data = PretrainingData(self.store, "train", Vocabulary.of(self.tokenizer), *settings, seed=1)
        count = min(ROWS, len(data.stream.group(0)[1]))
        if not count:
            raise NotChecked("the store is too small for an instance")
        return data.take(Position(), count)[0]

    def documents(self, split: str) -> list[tuple[Shard, int]]:
        """Documents that are looked at: the first ones of a split."""
        found: list[tuple[Shard, int]] = []
        tokens = 0
        for shard in self.store.shards(split):
            for i in range(shard.n_documents):
                if len(found) == DOCUMENTS or tokens > TOKENS:
                    return found
                found.append((shard, i))
                tokens += sum(map(len, tokens_of(shard, i)))
        return found


def tokens_of(shard: Shard, document: int) -> list[NDArray[Any]]:
    """The tokens of a document, as one array in a list."""
    first, last = shard.sentences[shard.documents[document : document + 2]]
    return [shard.tokens[int(first) : int(last)]]


def size(found: OpenStore) -> Iterator[Finding]:
    """Little text, none held out, sentences that were cut."""
    counts = found.store.manifest["counts"]
    tokens = counts["train"]["tokens"]
    if tokens < SMALL:
        yield Finding(
            "note",
            f"{tokens:,} training tokens",
            "an encoder that is pre-trained on so little knows few contexts; add text, or continue from another "
            "encoder (--init)",
            {"tokens": tokens},
        )
    if not counts["validation"]["documents"]:
        yield Finding(
            "warning", "no held-out documents", "build with --validation-share 0.005, so that losses mean something"
        )
    cut, sentences = counts["sentences cut"], counts["train"]["sentences"] + counts["validation"]["sentences"]
    if cut > CUT * sentences:
        yield Finding(
            "warning",
            f"{cut:,} of {sentences:,} sentences ({percent(cut / sentences)}) were cut: text without full stops",
            "look at them with `bertworks corpus show`; check --language and the format of the input",
            {"cut": cut},
        )


def one_sentence(found: OpenStore) -> Iterator[Finding]:
    """Documents that have no next sentence."""
    counts = np.concatenate([np.diff(shard.documents) for shard in found.store.shards("train")])
    share = float((counts == 1).mean())
    if share > ONE_SENTENCE:
        yield Finding(
            "warning",
            f"{percent(share)} of {len(counts):,} documents have one sentence, so no pair of theirs is a true one",
            f"{_longer_documents(found.store)}; else train with --objective mlm --instances.input-format "
            "full-sentences",
            {"share": share, "documents": len(counts)},
        )


def _longer_documents(store: Store) -> str:
    """How documents of the store's input might have several sentences."""
    given, inputs = store.manifest["settings"].get("input") or {}, store.manifest["source"]["inputs"]
    format = given.get("format", "auto")
    if format in RECORDS or (format == "auto" and any(bare_name(name).endswith(RECORD_FILES) for name, _ in inputs)):
        return "each record is a document: if records of the input belong together, join their texts"
    if given.get("documents") == "blank-line":
        return "if blank lines divide paragraphs, not documents, build with --input.documents file"
    return "if the files have several sentences, look at them with `bertworks corpus show`, and give their --language"


def masks(found: OpenStore) -> Iterator[Finding]:
    """Shares of masked, random and kept tokens in a real batch, against the settings."""
    yield from masks_of(found.batch, found.tokenizer, MaskingConfig())


def masks_of(batch: Batch, tokenizer: Tokenizer, config: MaskingConfig) -> Iterator[Finding]:
    """What is wrong with the masks of a batch."""
    labels, positions = batch["masked_labels"].numpy(), batch["masked_positions"].numpy()
    used = labels != IGNORED
    now, was = batch["input_ids"].numpy().reshape(-1)[positions[used]], labels[used]
    lengths = batch["attention_mask"].numpy().sum(1)
    total, chosen = int(lengths.sum()), int(used.sum())
    shares = {
        "predicted": (chosen / total, config.masked_lm_prob, total),
        "replaced by [MASK]": (float((now == tokenizer.mask_id).mean()), config.mask_share, chosen),
        "kept": (float((now == was).mean()), config.kept_share, chosen),
    }
    rounding = 0.5 / float(lengths.mean())  # a sequence has a whole number of predictions
    for what, (share, expected, count) in shares.items():
        error = (expected * (1 - expected) / max(1, count)) ** 0.5
        if abs(share - expected) > SIGMAS * error + (rounding if what == "predicted" else 0.0):
            of = "of the tokens" if what == "predicted" else "of the predicted tokens"
            yield Finding(
                "error",
                f"{percent(share)} {of} are {what}; expected {percent(expected)} ± {percent(SIGMAS * error)}",
                "the store or the code that makes batches was altered; build the store again",
                {"share": share, "expected": expected, "count": count},
            )


def unknown(found: OpenStore) -> Iterator[Finding]:
    """[UNK] by the script of the sentence that it is in: what an unknown word was, the store does not say."""
    tokenizer, shard = found.tokenizer, found.store.shards("train")[0]
    names = sorted({*(scripts := [script(tokenizer.readable(i)) for i in range(tokenizer.vocab_size)])})
    of_token = np.array([names.index(name) for name in scripts])
    neutral = [i for i, name in enumerate(names) if name in ("digits", "punctuation and symbols", "other")]
    last = int(np.searchsorted(shard.sentences, TOKENS, "right")) - 1 or 1
    edges = shard.sentences[: min(last, shard.n_sentences) + 1].astype(np.int64)
    tokens = np.asarray(shard.tokens[: int(edges[-1])], np.int64)
    counts = np.zeros((len(edges) - 1, len(names)), np.int64)
    sentence, missing = np.repeat(np.arange(len(edges) - 1), np.diff(edges)), tokens == tokenizer.unk_id
    np.add.at(counts, (sentence[~missing], of_token[tokens[~missing]]), 1)
    counts[:, neutral] = 0
    main = np.where(counts.any(1), counts.argmax(1), -1)
    for i, name in [*enumerate(names), (-1, "no known letter")]:
        inside = main[sentence] == i
        share = float(missing[inside].mean()) if inside.any() else 0.0
        if share > UNKNOWN and inside.sum() > 0.001 * len(tokens):
            text = f"sentences that are mostly {name}" if i >= 0 else "sentences without a known letter"
            yield Finding(
                "warning",
                f"{percent(share)} of the tokens in {text} are [UNK]",
                "train a vocabulary on this text (`bertworks tokenizer train`)",
                {"share": share, "tokens": int(inside.sum()), "script": name},
            )


def vocabulary(found: OpenStore) -> Iterator[Finding]:
    """A vocabulary that contradicts its own rules, or that the text does not use."""
    for warning in misfits(found.tokenizer):
        yield Finding("error", warning.rstrip("."))
    counts = found.store.unigram_counts()
    used = int((counts > 0).sum())
    tokens = int(counts.sum())
    if used < (1 - UNUSED) * len(counts) and tokens > 20 * len(counts):
        yield Finding(
            "warning",
            f"{len(counts) - used:,} of {len(counts):,} tokens of the vocabulary never occur in the training text",
            "it may be the vocabulary of another language or case; a smaller one of this text trains faster",
            {"used": used, "vocabulary": len(counts)},
        )


def duplicates(found: OpenStore) -> Iterator[Finding]:
    """Documents that are there twice, in train, or in train and held-out text."""
    sets, keys = [], []
    for split in ("train", "validation"):
        arrays = [tokens_of(*one)[0].astype(np.int64) for one in found.documents(split)]
        edges = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        ids = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
        sets.append(Shingles.of_ids(ids, edges, SHINGLE))
        keys.append([array.tobytes() for array in arrays])
    train, held_out = sets
    known = {*keys[0]}
    for what, rows, exact in (
        ("training", find_alike(train, train), len(keys[0]) - len(known)),
        ("held-out", find_alike(held_out, train), sum(key in known for key in keys[1])),
    ):
        total = len(keys[what == "held-out"])
        count = max(len(rows), exact)
        if total and count > TWICE * total:
            again = "share most of their text with an earlier one" if what == "training" else "are nearly in train too"
            yield Finding(
                "warning",
                f"{count:,} of {total:,} {what} documents {again}",
                "build with --near-duplicates 0.8",
                {"documents": count, "of": total, "exact": exact},
            )
    if not train.counts.size or train.counts.max() < LEAST:
        raise NotChecked("the documents are too short to compare")


CHECKS: dict[str, Callable[[OpenStore], Iterable[Finding]]] = {
    "size": size,
    "documents of one sentence": one_sentence,
    "masks": masks,
    "[UNK] by script": unknown,
    "vocabulary": vocabulary,
    "duplicate documents": duplicates,
}


def open_store(report: Report, folder: Path, thorough: bool) -> Store | None:
    """The store in `folder`; None, and an error in the report, if it was altered or cannot be read.

    thorough: compare every checksum, offset and id, else only sizes and the headers of files.
    """
    opened: list[Store] = []

    def files(folder: Path) -> Iterator[Finding]:
        store = Store.open(folder, verify=thorough)
        store.load_tokenizer()
        opened.append(store)
        yield from ()

    report.examine({"files of the store": files}, folder)
    return opened[0] if opened else None
