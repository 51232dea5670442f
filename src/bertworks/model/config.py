"""An encoder's shape: BERT by default (Devlin et al. 2019, section 3), its relatives and later ideas by setting.

Relatives: RoBERTa (Liu et al. 2019), ALBERT (Lan et al. 2019), DistilBERT (Sanh et al. 2019). Beyond BERT's limits:
rotary positions (Su et al. 2021), pre-LayerNorm (Xiong et al. 2020), GeGLU (Shazeer 2020), local attention in
alternation with global (Beltagy et al. 2020; Warner et al. 2024).
"""

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, get_args, get_origin

Activation = Literal["gelu", "gelu_new", "relu", "silu", "tanh", "linear"]  # bert.py has their functions
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
HeadName = Literal["mlm", "nsp", "sop", "classifier", "choice", "tagger", "span"]


class FamilyRules(NamedTuple):
    """What a family computes otherwise than BERT, where no field of ModelConfig says it."""

    pooler_activation: str = "tanh"
    pooler_dropout: bool = False  # before the pooler, at the rate of the heads
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
_MAY_BE_ZERO = (  # numbers that turn something off
    "type_vocab_size",
    "num_hidden_layers",
    "pad_token_id",
    "embedding_size",
    "position_offset",
    "attention_window",
)
_LARGEST = 1 << 24  # of any number but these: beyond it a config is a slip or an attack
_LARGEST_OF = {"num_hidden_layers": 1_000, "attention_window": 1 << 31, "global_every": 1 << 31}
_RANGES = {"layer_norm_eps": (0.0, 1.0), "initializer_range": (0.0, 1e3), "rope_theta": (1.0, 1e12)}
_RANGES |= {"local_rope_theta": (0.0, 1e12)}


@dataclass(frozen=True)
class ModelConfig:
    """An encoder's shape, in the names of bert_config.json. Every field changes a number or removes a part."""

    vocab_size: int = 30522  # rows of the word embedding table
    hidden_size: int = 768  # width D of the residual stream
    num_hidden_layers: int = 12  # Transformer layers; 0: embeddings alone
    num_attention_heads: int = 12  # heads N a layer; D must be divisible by it
    intermediate_size: int = 3072  # width of the feed-forward layer
    hidden_act: Activation = "gelu"  # activation of the feed-forward layer; gelu: exact, gelu_new: tanh form
    hidden_dropout_prob: float = 0.1  # dropout rate on embeddings and on each sub-layer's output
    attention_probs_dropout_prob: float = 0.1  # dropout rate on attention weights
    max_position_embeddings: int = 512  # rows of the position table; without a table: the longest sequence, in tokens
    type_vocab_size: int = 2  # segment types; 1: the same vector on every token; 0: none
    initializer_range: float = 0.02  # standard deviation of the truncated normal that starts every matrix
    layer_norm_eps: float = 1e-12  # added to the variance in LayerNorm
    pad_token_id: int = 0  # token id that fills up a batch
    # learned: a table of vectors (BERT); sinusoidal: a fixed table (Vaswani et al. 2017); rotary: no table
    position_embedding_type: Literal["learned", "sinusoidal", "rotary"] = "learned"
    # which tokens a token sees: both sides, left or right of itself; pair: one encoder for each side
    direction: Literal["both", "left", "right", "pair"] = "both"
    layer_type: Literal["attention", "lstm", "gru"] = "attention"  # lstm, gru: recurrent layers, for comparison
    # tensor names in its folder, pooler
    family: Literal["bert", "roberta", "albert", "distilbert", "modernbert"] = "bert"
    # width E of the embedding tables, projected to D (ALBERT: 128); 0: E = D
    embedding_size: int = 0
    # unused rows of the position table before the first token's (RoBERTa: 2)
    position_offset: int = 0
    # what layers share (ALBERT: all)
    shared_layers: Literal["none", "all"] = "none"
    # LayerNorm after each sub-layer, or before it and once at the end
    norm: Literal["post", "pre"] = "post"
    # geglu: the activation of one half times another half
    feed_forward: Literal["dense", "geglu"] = "dense"
    rope_theta: float = 10000.0  # base of rotary positions' wavelengths
    # attention span of local layers, in tokens on each side; 0: no layer is local
    attention_window: int = 0
    # with an attention span: layers 0, n, 2 n, ... see all tokens, the others are local
    global_every: int = 3
    # dropout rate before a classifier's last matrix; none: hidden_dropout_prob
    classifier_dropout: float | None = None
    # the decoder of the masked-LM head shares the word embedding table
    tie_word_embeddings: bool = True
    # first weights: normal (the paper's truncated normal); position-heads (for learned positions): some attention heads
    # begin by looking at a token's neighbours
    start: Literal["normal", "position-heads"] = "normal"
    # matrices and LayerNorms add a bias; false: only the last matrix of each head does (ModernBERT)
    bias: bool = True
    # base of rotary positions' wavelengths in local layers; 0: rope_theta
    local_rope_theta: float = 0.0
    # what the pooler reads: cls, the first token (with a left context the last one), or the mean of all tokens
    classifier_pooling: Literal["cls", "mean"] = "cls"

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        if self.layer_type != "attention":
            self._check_recurrent()
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size = {self.hidden_size} is not divisible by num_attention_heads = {self.num_attention_heads}"
            )
        self._check_positions()
        self._check_effects()

    def _check_choices(self) -> None:
        known = {f.name: get_args(f.type) for f in fields(self) if get_origin(f.type) is Literal}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} = {getattr(self, name)!r}; expected one of {', '.join(choices)}")

    def _check_numbers(self) -> None:
        for name in (f.name for f in fields(self) if f.type is int):
            least, most = 0 if name in _MAY_BE_ZERO else 1, _LARGEST_OF.get(name, _LARGEST)
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} = {getattr(self, name)}; expected a positive number of at most {most:,}")
        for name, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, name) <= highest:
                raise ValueError(f"{name} = {getattr(self, name)}; expected a number from {lowest:g} to {highest:g}")
        for name in (f.name for f in fields(self) if f.name.endswith(("dropout", "dropout_prob"))):
            if not 0 <= (getattr(self, name) or 0) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; expected a rate from 0, below 1")

    def _check_recurrent(self) -> None:
        if self.direction == "both" and self.hidden_size % 2:
            raise ValueError(f"hidden_size = {self.hidden_size}; recurrent layers that read both ways need an even one")
        plain = {"shared_layers": "none", "norm": "post", "feed_forward": "dense", "attention_window": 0, "bias": True}
        unlike = [f"{name} = {getattr(self, name)!r}" for name, value in plain.items() if getattr(self, name) != value]
        if self.position_embedding_type == "rotary":
            unlike.append("position_embedding_type = 'rotary'")
        if unlike:
            raise ValueError(f"layer_type = {self.layer_type!r} with {', '.join(unlike)}; recurrent layers have none")

    def _check_positions(self) -> None:
        rotary, width = self.position_embedding_type == "rotary", self.hidden_size // self.num_attention_heads
        if rotary and (width % 2 or self.position_offset):
            raise ValueError(
                f"rotary positions with heads of width {width} and position_offset = {self.position_offset}; "
                "expected an even width and an offset of 0"
            )
        if self.start == "position-heads":
            self._check_position_heads()
        if self.max_length < 1:
            raise ValueError(
                f"position_offset = {self.position_offset} leaves none of max_position_embeddings = "
                f"{self.max_position_embeddings}"
            )

    def _check_effects(self) -> None:
        """Raises ValueError for a setting that would change nothing."""
        local = self.position_embedding_type == "rotary" and self.attention_window and self.global_every > 1
        if self.local_rope_theta and not local:
            raise ValueError(
                f"local_rope_theta = {self.local_rope_theta:g} with position_embedding_type = "
                f"{self.position_embedding_type!r}, attention_window = {self.attention_window}, global_every = "
                f"{self.global_every}; expected rotary positions and local layers; set local_rope_theta to 0"
            )
        if 0 < self.local_rope_theta < 1:
            raise ValueError(f"local_rope_theta = {self.local_rope_theta:g}; expected 0 (rope_theta), or 1 or more")
        if self.direction == "pair" and self.classifier_pooling != "cls":
            raise ValueError(
                f"classifier_pooling = {self.classifier_pooling!r} with direction = 'pair'; expected 'cls': a pair's "
                "pooler reads one token of each side"
            )

    def _check_position_heads(self) -> None:
        needed = {"position_embedding_type": "learned", "layer_type": "attention", "embedding_size": 0}
        unlike = [
            f"{name} = {getattr(self, name)!r} (expected {value!r})"
            for name, value in needed.items()
            if getattr(self, name) != value
        ]
        if (width := self.hidden_size // self.num_attention_heads) % 2:
            unlike.append(f"heads of width {width} (expected an even one)")
        if self.num_attention_heads == 1:  # the plane of positions would leave words no dimension
            unlike.append("num_attention_heads = 1 (expected 2 or more)")
        if unlike:
            raise ValueError(
                f"start = 'position-heads' with {', '.join(unlike)}; correct that or give start = 'normal'"
            )

    @property
    def max_length(self) -> int:
        """The longest sequence, in tokens."""
        return self.max_position_embeddings - self.position_offset

    @property
    def embedding_width(self) -> int:
        """E, the width of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def rules(self) -> FamilyRules:
        """What the family computes otherwise than BERT."""
        return FAMILY_RULES[self.family]

    @property
    def head_dropout(self) -> float:
        """The rate before the last matrix of a classifier."""
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
        if self.cell not in ("lstm", "gru"):
            raise ValueError(f"top.cell = {self.cell!r}; expected one of lstm, gru")
        if not 0 <= self.bilstm_layers <= 100 or not 1 <= self.bilstm_width <= 1 << 16:
            raise ValueError("expected top.bilstm_layers of 0 to 100, top.bilstm_width of 1 to 65,536")

    @property
    def needs_pooler(self) -> bool:
        """Whether a head that reads whole sequences reads the encoder's pooler."""
        return self.pooler and not self.bilstm_layers and self.layers == "last"


NO_TOP = TopConfig()  # heads read the encoder itself
