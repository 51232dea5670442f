"""An encoder's shape: BERT by default (Devlin et al. 2019, section 3), its relatives and later ideas by setting.

Relatives: RoBERTa (Liu et al. 2019), ALBERT (Lan et al. 2019), DistilBERT (Sanh et al. 2019). Beyond BERT's limits:
rotary positions (Su et al. 2021), pre-LayerNorm (Xiong et al. 2020), GeGLU (Shazeer 2020), local attention in
alternation with global (Beltagy et al. 2020; Warner et al. 2024). The fields of ModelConfig to `pad_token_id` are those
of the original code (bert_config.json) and of Hugging Face's config.json; the others are for relatives and later ideas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args, get_origin

Activation = Literal["gelu", "gelu_new", "relu", "silu", "tanh", "linear"]  # bert.py has their functions
ACTIVATION_NAMES: tuple[str, ...] = get_args(Activation)
HeadName = Literal["mlm", "nsp", "sop", "classifier", "choice", "tagger", "span"]


@dataclass(frozen=True)
class ModelConfig:
    """Architecture of an encoder; the fields that bert_config.json has too have its names."""

    vocab_size: int = 30522  # tokens in the vocabulary
    hidden_size: int = 768  # size D of a token's vector
    num_hidden_layers: int = 12  # Transformer layers; 0: embeddings alone
    num_attention_heads: int = 12  # attention heads N per layer; D must be divisible by N
    intermediate_size: int = 3072  # size of the feed-forward layer
    hidden_act: Activation = "gelu"  # activation of the feed-forward layer; gelu: exact, gelu_new: tanh approximation
    hidden_dropout_prob: float = 0.1  # dropout rate of the embeddings and of each sub-layer's output
    attention_probs_dropout_prob: float = 0.1  # dropout rate of attention weights
    max_position_embeddings: int = 512  # longest sequence, in tokens (with position_offset: tokens + offset)
    type_vocab_size: int = 2  # segment types; 1: the same vector for every token; 0: none
    # standard deviation of the normal distribution, cut at two of them, that initializes every matrix
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12  # LayerNorm's epsilon, added to the variance
    pad_token_id: int = 0  # id of the padding token
    # learned: a vector per position (BERT); sinusoidal: fixed vectors (Vaswani et al. 2017); rotary: rotated queries
    # and keys (Su et al. 2021)
    position_embedding_type: Literal["learned", "sinusoidal", "rotary"] = "learned"
    # context of a token: both directions, left or right; pair: a left and a right encoder, concatenated
    direction: Literal["both", "left", "right", "pair"] = "both"
    layer_type: Literal["attention", "lstm", "gru"] = "attention"  # lstm, gru: recurrent layers, for comparison
    # model family: tensor names of the folder, and details such as the pooler
    family: Literal["bert", "roberta", "albert", "distilbert", "modernbert"] = "bert"
    # size E of the embeddings, which are projected to D (ALBERT: 128); 0: E = D
    embedding_size: int = 0
    # unused position embeddings before that of the first token (RoBERTa: 2)
    position_offset: int = 0
    # whether layers share their weights (ALBERT: all)
    shared_layers: Literal["none", "all"] = "none"
    # LayerNorm after each sub-layer, or before it and once at the end
    norm: Literal["post", "pre"] = "post"
    # geglu: gated feed-forward layer, activation(x W) * (x V)
    feed_forward: Literal["dense", "geglu"] = "dense"
    rope_theta: float = 10000.0  # base of rotary positions' wavelengths
    # local attention: tokens to the left and to the right that a token attends to; 0: no local attention
    attention_window: int = 0
    # with local attention: layers 0, n, 2n, ... attend to all tokens
    global_every: int = 3
    # dropout rate before a classifier's last matrix; none: hidden_dropout_prob
    classifier_dropout: float | None = None
    # use the word embeddings as the output matrix of the masked-LM head
    tie_word_embeddings: bool = True
    # initialization: normal (truncated, as in the original code); position-heads (for learned positions): some
    # attention heads attend to a token's neighbours from the beginning
    start: Literal["normal", "position-heads"] = "normal"
    # matrices and LayerNorms add a bias; false: only the last matrix of each head does (ModernBERT)
    bias: bool = True
    # base of rotary positions' wavelengths in local layers; 0: rope_theta
    local_rope_theta: float = 0.0
    # what the pooler reads: cls, the first token (with a left context the last one), or the mean of all tokens
    classifier_pooling: Literal["cls", "mean"] = "cls"

    def __post_init__(self) -> None:
        """Raises ValueError for values outside their limits, and for settings that exclude each other."""
        sizes = {field.name: (1, _LARGEST) for field in fields(self) if field.type is int}
        check_fields(self, sizes | _LIMITS)
        for name, values, other, allowed in _REQUIRED:
            value, actual = getattr(self, name), getattr(self, other)
            if value in values and actual not in allowed:
                expected = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} = {value!r} with {other} = {actual!r}; expected {other} = {expected}")
        if message := next(self._conflicts(), None):
            raise ValueError(message)

    def _conflicts(self) -> Iterator[str]:
        """What is wrong with several settings together."""
        D, N, offset = self.hidden_size, self.num_attention_heads, self.position_offset
        rotary, position_heads = self.position_embedding_type == "rotary", self.start == "position-heads"
        if D % N:
            yield f"hidden_size = {D} is not divisible by num_attention_heads = {N}"
        if (rotary or position_heads) and D // N % 2:
            yield f"rotary positions or position heads with heads of width {D // N}; expected an even width"
        if position_heads and N == 1:  # the position subspace would take all dimensions
            yield "start = 'position-heads' with num_attention_heads = 1; expected 2 or more"
        if self.layer_type != "attention" and self.direction == "both" and D % 2:
            yield f"hidden_size = {D}; recurrent layers that read in both directions need an even one"
        if self.max_length < 1:
            yield f"position_offset = {offset} leaves none of max_position_embeddings = {self.max_position_embeddings}"
        local, theta = self.attention_window and self.global_every > 1, self.local_rope_theta
        if theta and not (rotary and local and theta >= 1):
            yield f"local_rope_theta = {theta:g}; expected 0, or 1 or more with rotary positions and local layers"

    @property
    def max_length(self) -> int:
        """The longest sequence, in tokens."""
        return self.max_position_embeddings - self.position_offset

    @property
    def embedding_width(self) -> int:
        """E, the width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def rules(self) -> "FamilyRules":
        """What the family computes differently from BERT."""
        return FAMILY_RULES[self.family]

    @property
    def position_subspace(self) -> slice:
        """The dimensions of the embeddings that only positions use with start = "position-heads": one head's width."""
        return slice(self.hidden_size - self.hidden_size // self.num_attention_heads, self.hidden_size)

    @property
    def head_dropout(self) -> float:
        """The dropout rate before the last matrix of a classifier."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout


@dataclass(frozen=True)
class TopConfig:
    """What a head reads. With the defaults it reads BERT's last layer and pooler."""

    layers: str = "last"  # as in `bertworks features --layers`: second-to-last, concat-last-4, weighted-sum, ...
    bilstm_layers: int = 0  # number of BiLSTM layers between encoder and head; the paper has 2
    bilstm_width: int = 768  # width of the BiLSTM in each direction
    cell: Literal["lstm", "gru"] = "lstm"  # recurrent cell of the BiLSTM's layers
    pooler: bool = True  # read the pooler (dense, tanh) of the first token; false: the token itself, as GPT

    def __post_init__(self) -> None:
        check_fields(self, {"bilstm_layers": (0, 100), "bilstm_width": (1, 1 << 16)}, "top.")

    @property
    def needs_pooler(self) -> bool:
        """Whether a head that reads whole sequences reads the encoder's pooler."""
        return self.pooler and not self.bilstm_layers and self.layers == "last"


# ---- families


class FamilyRules(NamedTuple):
    """What a family computes differently from BERT, apart from the fields of ModelConfig."""

    pooler_activation: str = "tanh"
    pooler_dropout: bool = False  # dropout before the pooler, with the dropout rate of the heads
    pooler_without_head: bool = True  # whether an encoder without heads has its pooler
    mlm_act: str | None = None  # activation of the masked-LM head (RoBERTa: exact GELU); None: that of the layers
    transform: bool = False  # the pooler is a Transform, and heads of tokens begin with one (ModernBERT)
    first_norm: bool = True  # with pre-LayerNorm: whether the first layer has one before its attention


FAMILY_RULES = {
    "bert": FamilyRules(),
    "roberta": FamilyRules(pooler_dropout=True, mlm_act="gelu"),
    "albert": FamilyRules(),
    "distilbert": FamilyRules(pooler_activation="relu", pooler_without_head=False),
    "modernbert": FamilyRules(pooler_activation="linear", pooler_without_head=False, transform=True, first_norm=False),
}

# ---- what is allowed

_LARGEST = 1 << 24
# Smallest and largest value of numbers; of other whole numbers: 1 and _LARGEST
_LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("type_vocab_size", "pad_token_id", "embedding_size", "position_offset"), (0, _LARGEST)),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), (0, 0.999)),
    "num_hidden_layers": (0, 1_000),
    "attention_window": (0, 1 << 31),
    "global_every": (1, 1 << 31),
    "layer_norm_eps": (0, 1),
    "initializer_range": (0, 1e3),
    "rope_theta": (1, 1e12),
    "local_rope_theta": (0, 1e12),
}
# A field and its values that require values of another field
_REQUIRED: tuple[tuple[str, tuple[str, ...], str, tuple[Any, ...]], ...] = (
    ("layer_type", ("lstm", "gru"), "position_embedding_type", ("learned", "sinusoidal")),
    ("layer_type", ("lstm", "gru"), "shared_layers", ("none",)),
    ("layer_type", ("lstm", "gru"), "norm", ("post",)),
    ("layer_type", ("lstm", "gru"), "feed_forward", ("dense",)),
    ("layer_type", ("lstm", "gru"), "attention_window", (0,)),
    ("layer_type", ("lstm", "gru"), "bias", (True,)),
    ("position_embedding_type", ("rotary",), "position_offset", (0,)),
    ("start", ("position-heads",), "position_embedding_type", ("learned",)),
    ("start", ("position-heads",), "layer_type", ("attention",)),
    ("start", ("position-heads",), "embedding_size", (0,)),
    ("direction", ("pair",), "classifier_pooling", ("cls",)),  # its pooler reads one token of each encoder
)


def check_fields(config: Any, limits: Mapping[str, tuple[float, float]], prefix: str = "") -> None:
    """Raises ValueError for a value that its Literal type excludes, or that is outside its limits."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if get_origin(field.type) is Literal and value not in get_args(field.type):
            raise ValueError(f"{prefix}{name} = {value!r}; expected one of {', '.join(get_args(field.type))}")
        low, high = limits.get(name, (0, 0))
        if value is not None and name in limits and not low <= value <= high:
            raise ValueError(f"{prefix}{name} = {value}; expected a number from {low} to {high:,}")


NO_TOP = TopConfig()  # heads read the encoder itself
