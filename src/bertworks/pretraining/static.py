"""Static word vectors as a model folder: the baseline that came before encoders (the paper's section 2.1).

word2vec (Mikolov et al. 2013, skip-gram with negative sampling) is trained on a store's subwords by gensim. The folder
is an encoder without layers: its word embedding matrix holds the vectors, positions and segments are zero. Fine-tune it
under a BiLSTM (`--top.bilstm-layers 2`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..bounds import check_least
from ..checkpoint.folder import save_folder
from ..data.opening import open_store
from ..data.store import Store
from ..data.vocabulary import check_unknown, tokenizer_of
from ..files import InputError
from ..model.build import build_model
from ..model.config import ModelConfig
from ..reporting.outputs import check_output_folder


@dataclass(frozen=True)
class StaticConfig:
    """How word2vec is trained; the defaults are gensim's, but for width and the direction of prediction."""

    width: int = 256  # width of a vector
    window: int = 5  # number of tokens before and after it that a token predicts
    negative: int = 5  # number of negative samples for each prediction
    epochs: int = 5  # passes over the corpus store
    min_count: int = 5  # tokens that occur less often get no vector
    seed: int = 1  # random seed; only one thread gives the same vectors again
    threads: int = 1  # number of training threads

    def __post_init__(self) -> None:
        check_least(self, ("width", "window", "negative", "epochs", "min_count", "threads"), 1)
        check_least(self, ("seed",), 0)


def train_static(corpus: Path | str, out: Path | str, config: StaticConfig | None = None) -> dict[str, Any]:
    """Train word2vec on a store; returns what the model card lists. Raises InputError if there is no store."""
    config, store = config or StaticConfig(), open_store(corpus)
    check_output_folder(out, [corpus])
    tokenizer = tokenizer_of(store)
    check_unknown(store, tokenizer)
    vectors = _word2vec(_Sentences(store), config)
    table = np.tile(vectors.vectors.mean(0), (tokenizer.vocab_size, 1))  # of a subword without a vector
    table[[int(name) for name in vectors.index_to_key]] = vectors.vectors
    shape = static_shape(tokenizer.vocab_size, config.width, tokenizer.pad_id)
    model = build_model(shape, (), seed=1, pooler=False)
    embeddings = model.encoder.embeddings
    with torch.no_grad():
        embeddings.word.weight.copy_(torch.from_numpy(table))
        embeddings.position.weight.zero_()
        embeddings.token_type.weight.zero_()
    facts = {
        "vectors": "word2vec, skip-gram",
        "corpus": store.fingerprint,
        "epochs": config.epochs,
        "pieces_with_a_vector": len(vectors.index_to_key),
    }
    save_folder(out, model, tokenizer, facts)
    return facts


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
        raise InputError(f"no subword occurs {config.min_count} times in the store; give a lower min_count")
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
