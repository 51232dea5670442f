"""Static word vectors as a model folder: the baseline that came before encoders (the paper's section 2.1).

word2vec (Mikolov et al. 2013, skip-gram with negative sampling) is trained on a store's subwords by gensim, or vectors
are read from a text file as word2vec and GloVe write them. The folder is an encoder without layers: its word embedding
table holds the vectors, positions and segments are zero. Fine-tune it under a BiLSTM (`--top.bilstm-layers 2`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checkpoint.folder import save_folder
from ..data.store import Store
from ..files import InputError
from ..model.config import ModelConfig
from ..model.heads import build_model
from ..reporting.outputs import check_output_folder
from ..tokenizer import Tokenizer
from .recipe import StaticConfig

Vectors = NDArray[np.float32]

_LINE = 1 << 20  # characters of a line of vectors: a thousand numbers take some 12,000


def train_static(corpus: Path | str, out: Path | str, config: StaticConfig | None = None) -> dict[str, Any]:
    """Train word2vec on a store; returns what the model card lists. Raises InputError if there is no store."""
    config, store = config or StaticConfig(), Store.open(corpus)
    check_output_folder(out, [corpus])
    tokenizer = store.load_tokenizer()
    store.check_unknown(tokenizer)
    found = _word2vec(_Sentences(store), config)
    rows = {int(name): found[name] for name in found.index_to_key}
    facts = {"vectors": "word2vec, skip-gram", "corpus": store.fingerprint, "epochs": config.epochs}
    return _write(tokenizer, rows, config.width, out, facts)


def read_static(vectors: Path | str, tokenizer: Path | str, out: Path | str) -> dict[str, Any]:
    """Vectors of whole words from a text file: a word and its numbers a line, with or without a first line of counts.

    A subword that is a whole word takes that word's vector. Raises InputError if a line is broken or no word is known.
    """
    known = Tokenizer.load(tokenizer)
    check_output_folder(out, [tokenizer])
    numbers = {known.readable(i): i for i in np.flatnonzero(~known.continuation).tolist()}
    rows: dict[int, Vectors] = {}
    width = 0
    for number, line in _lines(Path(vectors)):
        # some of GloVe's words have blanks in them; the first line tells the width
        word, *values = line.rstrip().rsplit(" ", width) if width else line.rstrip().split(" ")
        if number == 1 and len(values) == 1:
            continue  # word2vec's counts
        width = width or len(values)
        if len(values) != width or not width:
            raise InputError(f"{vectors}:{number}: {len(values)} numbers behind the word; expected {width or 'some'}")
        if word in numbers:
            rows.setdefault(numbers[word], _vector(values, f"{vectors}:{number}"))
    if not rows:
        raise InputError(
            f"{vectors}: none of its words is in the vocabulary of {tokenizer}; is it of the same language?"
        )
    return _write(known, rows, width, out, {"vectors": Path(vectors).name})


def _vector(values: list[str], where: str) -> Vectors:
    try:
        vector = np.array(values, np.float32)
    except ValueError:
        vector = np.array([np.nan], np.float32)
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: not all of it are finite numbers behind the word")
    return vector


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LINE), ""), 1):
                if len(line) == _LINE:
                    raise InputError(
                        f"{path}:{number}: {_LINE:,} characters or more; expected a word and its numbers on each line"
                    )
                yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a text of vectors ({error})") from None


def _word2vec(sentences: "_Sentences", config: StaticConfig) -> Any:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise InputError("word2vec needs gensim; install it with: pip install 'bertworks[static]'") from None
    model = Word2Vec(
        vector_size=config.width,
        window=config.window,
        negative=config.negative,
        sg=1,
        epochs=config.epochs,
        min_count=config.min_count,
        seed=config.seed % 2**32,  # gensim takes no larger one
        workers=config.threads,
        hashfxn=lambda text: int(text) if text.isdigit() else len(text),  # Python's own differs from run to run
    )
    model.build_vocab(sentences)
    if not len(model.wv):
        raise InputError(f"no subword occurs {config.min_count} times in the store; give a lower --min-count")
    model.train(sentences, total_examples=model.corpus_count, epochs=model.epochs)
    return model.wv


class _Sentences:
    """The training sentences of a store, each a list of token ids as strings; may be read many times."""

    def __init__(self, store: Store):
        self.shards = store.shards("train")

    def __iter__(self) -> Iterator[list[str]]:
        for shard in self.shards:
            tokens, edges = shard.tokens, shard.sentences
            for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                yield list(map(str, tokens[start:stop].tolist()))


def static_shape(vocab_size: int, width: int, pad_token_id: int = 0) -> ModelConfig:
    """The shape of a model that holds static vectors: embeddings and no layers."""
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=1,
        pad_token_id=pad_token_id,
    )


def _write(
    tokenizer: Tokenizer, rows: dict[int, Vectors], width: int, out: Path | str, facts: dict[str, Any]
) -> dict[str, Any]:
    """The folder; a subword without a vector gets the mean of all vectors."""
    table = np.tile(np.mean(list(rows.values()), axis=0, dtype=np.float32), (tokenizer.vocab_size, 1))
    for number, vector in rows.items():
        table[number] = vector
    shape = static_shape(tokenizer.vocab_size, width, tokenizer.pad_id)
    model = build_model(shape, (), seed=1, pooler=False)
    embeddings = model.encoder.embeddings
    with torch.no_grad():
        embeddings.word.weight.copy_(torch.from_numpy(table))
        embeddings.position.weight.zero_()
        embeddings.token_type.weight.zero_()
    known = {**facts, "width": width, "pieces": tokenizer.vocab_size, "pieces_with_a_vector": len(rows)}
    save_folder(out, model, tokenizer, known)
    return known
