"""Shows a store on the terminal: counts, settings and the first sentences (`bertworks corpus show`)."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..reporting.tables import counted
from ..tokenizer import Tokenizer
from .batches import PretrainingData
from .identity import flat
from .instances import StreamPosition
from .manifest import KINDS, SPLITS, flag_of
from .opening import open_store
from .store import Store
from .vocabulary import tokenizer_of, unknown_fraction_of

INPUTS = 5  # names of inputs that are shown


def show(folder: Path | str, documents: int = 3, sentences: int = 6) -> Store:
    """Print what the store holds, how it was built, and the beginning of some training documents. Returns the store."""
    store = open_store(folder)
    counts = Table("", *KINDS, "shards", title=str(store.folder), title_justify="left")
    for split in SPLITS:
        numbers = [*store.manifest["counts"][split].values(), len(store.shards(split))]
        counts.add_row(split, *(f"{number:,}" for number in numbers))
    for column in counts.columns[1:]:
        column.justify = "right"
    facts = Table(show_header=False)
    for name, text in _facts(store):
        facts.add_row(name, text)
    console = Console(markup=False, highlight=False)
    console.print(counts, facts, sep="\n")
    tokenizer, shard = tokenizer_of(store), store.shards("train")[0]
    for document in range(min(documents, shard.n_documents)):
        first, last = shard.documents[document : document + 2].tolist()
        console.print(f"\n{shard.name}, document {document}: {counted(last - first, 'sentence')}")
        for sentence in range(first, min(last, first + sentences)):
            ids = shard.tokens[shard.sentences[sentence] : shard.sentences[sentence + 1]]
            console.print(f"  {' '.join(tokenizer.vocab[i] for i in ids)}")
    return store


def _facts(store: Store) -> Iterator[tuple[str, str]]:
    """What the store was made of and how, as names and texts."""
    counts, source, tokenizer = (store.manifest[name] for name in ("counts", "source", "tokenizer"))
    names = [name for name, _ in source["inputs"]]
    yield "inputs", ", ".join(names[:INPUTS]) + (f" and {len(names) - INPUTS:,} more" if names[INPUTS:] else "")
    yield "text", f"{source['bytes']:,} bytes, {source['characters']:,} characters, {source['words']:,} words"
    yield "documents read", f"{counts['documents']:,}"
    yield "left out", ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items() if count) or "none"
    yield "sentences cut", f"{counts['sentences cut']:,} (longer than --max-sentence-tokens)"
    yield "[UNK]", f"{unknown_fraction_of(store, tokenizer_of(store)):.2%} of the training tokens"
    yield "tokenizer", f"{tokenizer['vocab_size']:,} tokens, fingerprint {tokenizer['fingerprint']}"
    yield "splitter", store.manifest.get("splitter", "not recorded")
    yield "made with", ", ".join(f"{name} {version}" for name, version in store.manifest["versions"].items())
    yield from ((flag_of(key), str(value)) for key, value in flat(store.manifest["settings"]).items())


def instances_as_text(data: PretrainingData, tokenizer: Tokenizer, count: int) -> Iterator[str]:
    """The first `count` instances as lines for a person to read; a predicted token is shown as `now<before>`."""
    batch, _ = data.take(StreamPosition(), count)
    was = {}
    if data.masking:
        used = batch["masked_labels"] >= 0
        was = dict(zip(batch["masked_positions"][used].tolist(), batch["masked_labels"][used].tolist(), strict=True))
    for row in range(count):
        shown = []
        for column in range(int(batch["attention_mask"][row].sum())):
            label = was.get(row * data.length + column)
            token = tokenizer.vocab[int(batch["input_ids"][row, column])]
            shown.append(token if label is None else f"{token}<{tokenizer.vocab[label]}>")
        kind = {0: "B follows A", 1: "B does not follow A"}.get(int(batch["pair_labels"][row]), "one segment")
        yield f"{kind}: {' '.join(shown)}"
