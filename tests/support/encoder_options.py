"""A tiny encoder, and what came after BERT as changes of its configuration."""

from bertworks.model.config import ModelConfig

TINY = ModelConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=20,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.1,
)
MODERN = {"position_embedding_type": "rotary", "norm": "pre", "feed_forward": "geglu", "type_vocab_size": 0}
MODERN |= {"attention_window": 2, "global_every": 2}
ALBERT = {"family": "albert", "embedding_size": 10, "shared_layers": "all"}
OPTIONS = {
    "rotary": {"position_embedding_type": "rotary", "rope_theta": 100.0},
    "pre": {"norm": "pre"},
    "geglu": {"feed_forward": "geglu"},
    "window": {"attention_window": 2},
    "factorised": {"embedding_size": 10},
    "shared": {"shared_layers": "all"},
    "offset": {"position_offset": 2},
    "untied": {"tie_word_embeddings": False},
    "left-window": {"attention_window": 2, "direction": "left"},
    "roberta": {"family": "roberta", "position_offset": 2, "pad_token_id": 1, "type_vocab_size": 1},
    "albert": ALBERT | {"classifier_dropout": 0.3},
    "distilbert": {"family": "distilbert", "type_vocab_size": 0},
    "modern": MODERN,
    "no-bias": {"bias": False},
    "mean": {"classifier_pooling": "mean"},
    "modernbert": MODERN | {"family": "modernbert", "local_rope_theta": 100.0, "bias": False},
    "all": ALBERT
    | {"norm": "pre", "feed_forward": "geglu", "position_embedding_type": "rotary", "attention_window": 2}
    | {"tie_word_embeddings": False},
}
