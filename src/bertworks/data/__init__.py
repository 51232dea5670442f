"""Raw text -> corpus store -> training batches. In reading order:

streams.py     files, folders, compressed files and archives -> named byte streams
encodings.py   text in other encodings -> UTF-8, and advice about text that is not UTF-8
wrapping.py    hard-wrapped lines: how they are recognised and joined
parsers.py     formats (text, WikiExtractor, JSONL, Parquet) -> documents
corpus.py      `Reader`: guesses formats, reads the documents of all inputs, counts what it leaves out
languages.py   language codes, and which languages have rules for sentences
korean.py      rules for Korean sentences
sentences.py   documents -> sentences, and warnings about documents that look wrong
parts.py       a batch of documents -> one part file: sentences, token ids, hashes
near_duplicates.py  near-duplicates: those that a store leaves out, and those among texts in memory
shards.py      part files -> shards in hash order, without duplicates
config.py      the settings of a build
worker.py      the tasks of a build: what its worker processes do
build.py       `build`: runs these steps in parallel, and continues after a kill
identity.py    the inputs and settings of a store, compared with those of an existing one
manifest.py    a store's manifest, checked
store.py       `Store`: the corpus on disk, every token once
opening.py     `open_store`: a store, checked
vocabulary.py  the tokenizer of a store, and how well it fits
show.py        a store and its instances on the terminal
instances.py   sentence offsets -> the spans of training instances, in random order
masking.py     which positions are predicted, and what replaces their tokens
batches.py     `PretrainingData`: spans and masks -> batches of tensors (only this file imports torch)
prefetch.py    the same batches, made by worker processes ahead of training
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .build import BuildConfig as BuildConfig
    from .build import build_store as build_store
    from .corpus import Document as Document
    from .corpus import InputOptions as InputOptions
    from .corpus import Reader as Reader
    from .corpus import read_documents as read_documents
    from .instances import InstanceConfig as InstanceConfig
    from .instances import StreamPosition as StreamPosition
    from .masking import MaskingConfig as MaskingConfig
    from .opening import open_store as open_store
    from .sentences import split_sentences as split_sentences
    from .store import Shard as Shard
    from .store import Store as Store

__all__, __getattr__, __dir__ = lazy_names(__name__)
