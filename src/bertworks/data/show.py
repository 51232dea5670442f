"""Shows a store on the terminal: counts, settings and the first sentences (`bertworks corpus show`)."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..reporting.tables import counted
from .manifest import KINDS, SPLITS, flag_of
from .store import Store


def show(folder: Path | str, documents: int = 3, sentences: int = 6) -> Store:
    """Print what the store holds, how it was built, and the beginning of some training documents. Returns the store."""
    store = Store.open(folder)
    console = Console(markup=False, highlight=False)
    for table in (_counts(store), _source(store), _settings(store.manifest["settings"])):
        console.print(table)
    tokenizer = store.load_tokenizer()
    shard = store.shards("train")[0]
    for document in range(min(documents, shard.n_documents)):
        first, last = (int(offset) for offset in shard.documents[document : document + 2])
        console.print(f"\n{shard.name}, document {document}: {counted(last - first, 'sentence')}")
        for sentence in range(first, min(last, first + sentences)):
            ids = shard.tokens[shard.sentences[sentence] : shard.sentences[sentence + 1]]
            console.print(f"  {' '.join(tokenizer.vocab[i] for i in ids)}")
    return store


def _counts(store: Store) -> Table:
    table = Table("", "documents", "sentences", "tokens", "shards", title=str(store.folder), title_justify="left")
    for split in SPLITS:
        counts = store.manifest["counts"][split]
        numbers = [*(counts[kind] for kind in KINDS), len(store.shards(split))]
        table.add_row(split, *(f"{number:,}" for number in numbers))
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _source(store: Store) -> Table:
    manifest = store.manifest
    counts, source = manifest["counts"], manifest["source"]
    documents, sentences, tokens = (sum(counts[split][kind] for split in SPLITS) for kind in KINDS)
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items() if count) or "none"
    tokenizer = manifest["tokenizer"]
    table = Table(show_header=False)
    names = [name for name, _ in source["inputs"]]
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    table.add_row("inputs", ", ".join(names[:5]) + more)
    table.add_row(
        "source", f"{source['bytes']:,} bytes, {source['characters']:,} characters, {source['words']:,} words"
    )
    table.add_row("documents read", f"{counts['documents']:,}")
    table.add_row("left out", dropped)
    table.add_row("sentences cut", f"{counts['sentences cut']:,} (longer than --max-sentence-tokens)")
    table.add_row(
        "means", f"{sentences / documents:.1f} sentences a document, {tokens / sentences:.1f} tokens a sentence"
    )
    table.add_row("[UNK]", f"{store.unknown_share(store.load_tokenizer()):.2%} of the training tokens")
    table.add_row("tokenizer", f"{tokenizer['vocab_size']:,} tokens, fingerprint {tokenizer['fingerprint']}")
    splitter, versions = str(manifest.get("splitter") or ""), manifest["versions"]
    if splitter:  # older stores name sentencex among the versions, whatever split their sentences
        table.add_row("splitter", splitter)
        versions = {name: version for name, version in versions.items() if name != "sentencex"}
    table.add_row("made with", ", ".join(f"{name} {version}" for name, version in versions.items()))
    return table


def _settings(settings: dict[str, Any]) -> Table:
    table = Table("setting", "value")
    for key, value in settings.items():
        for name, item in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(flag_of(f"{key}.{name}" if name else key), str(item))
    return table
