"""BERT's encoder (Devlin et al. 2019, section 3): embeddings (figure 2), Transformer layers (figure 3), pooler.

Attention is the only operation that mixes tokens; everything else works on single token vectors. Therefore attention
and dropout are passed in: embeddings, attention, feed-forward network and layer do not depend on padding, devices or
optimized implementations. Only Encoder uses the layout of a batch. attention.py and dropout.py have the definitions,
fast/ has faster implementations. BERT's relatives are settings of the same modules (config.py); recurrent.py and
comparators.py have the encoders that the paper compares with.

Shapes: B sequences, L positions, T tokens of a batch without its padding, except for some that fills T up to a multiple
(layout.py), E embedding width, D hidden width, I feed-forward width, V vocabulary. The paper's L, H and A are
`num_hidden_layers`, D and `num_attention_heads`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attention
from .config import ModelConfig
from .dropout import POOLER_SITE, DropoutKey, HeadDropout, LayerDropout, SiteDropout
from .forward import EncoderOutput, ForwardOptions, ReferenceBackend
from .layout import Layout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,  # exact (erf): the paper's first release and Hugging Face's "gelu"
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),  # the tanh form of the original code since February 2019
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "linear": lambda x: x,  # none
}


def layer_norm(config: ModelConfig, width: int) -> nn.LayerNorm:
    """LayerNorm of this width, with or without biases."""
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.bias)


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout (section 3, figure 2); ALBERT projects them to D."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        E, table = config.embedding_width, config.position_embedding_type != "rotary"
        self.word = nn.Embedding(config.vocab_size, E)
        self.position = nn.Embedding(config.max_position_embeddings, E) if table else None
        self.token_type = nn.Embedding(config.type_vocab_size, E) if config.type_vocab_size else None
        self.norm = layer_norm(config, E)
        self.projection = nn.Linear(E, config.hidden_size, config.bias) if config.embedding_size else None
        if self.position is not None:
            self.position.weight.requires_grad = config.position_embedding_type == "learned"

    def forward(self, ids: Tensor, segments: Tensor | None, positions: Tensor, dropout: SiteDropout) -> Tensor:
        """Token ids, segments (None: all 0) and positions of T tokens, (T,) each, to (T, D)."""
        x = self.word(ids)  # (T, E)
        if self.position is not None:
            x = x + self.position(positions)
        if self.token_type is not None:  # with a single segment type the same vector is added to every token
            single = segments is None or self.token_type.num_embeddings == 1
            x = x + (self.token_type.weight[0] if single else self.token_type(segments))
        x = dropout(self.norm(x))  # (T, E)
        # autocast gives bfloat16; x stays float32
        return x if self.projection is None else self.projection(x).to(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention: the weighted mean of the tokens that a token attends to (Vaswani et al. 2017)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(D, D, config.bias) for _ in range(3))
        self.output = nn.Linear(D, D, config.bias)

    def forward(self, x: Tensor, attention: Attention, dropout: SiteDropout) -> Tensor:
        """(T, D) to (T, D). attention: by heads. dropout: of the attention weights."""
        return self.output(attention([self.query(x), self.key(x), self.value(x)], dropout))


class FeedForward(nn.Module):
    """Two linear layers with an activation between them. GeGLU: the activation of one half times the other half."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D, wide = config.hidden_size, config.intermediate_size
        self.gated, self.activation = config.feed_forward == "geglu", config.hidden_act
        self.intermediate = nn.Linear(D, 2 * wide if self.gated else wide, config.bias)
        self.output = nn.Linear(wide, D, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) to (T, D)."""
        return self.output(self.activate(self.intermediate(x)))

    def activate(self, hidden: Tensor) -> Tensor:
        """(T, I), or with GeGLU (T, 2 I), to (T, I)."""
        if self.gated:
            hidden, gate = hidden.chunk(2, -1)
            return ACTIVATIONS[self.activation](hidden) * gate
        return ACTIVATIONS[self.activation](hidden)


class Layer(nn.Module):
    """x = LN(x + attention(x)); x = LN(x + feed_forward(x)). With norm "pre" x = x + f(LN(x)) for both."""

    def __init__(self, config: ModelConfig, first: bool = False):
        """first: whether it is the first layer of an encoder, which ModernBERT gives normalized embeddings."""
        super().__init__()
        if config.layer_type != "attention":
            raise ValueError(f"layer_type = {config.layer_type!r}: build the encoder with build_model (build.py)")
        self.pre = config.norm == "pre"
        self.attention = SelfAttention(config)
        has_norm = not (first and self.pre) or config.rules.first_norm
        self.attention_norm = layer_norm(config, config.hidden_size) if has_norm else nn.Identity()
        self.feed_forward = FeedForward(config)
        self.output_norm = layer_norm(config, config.hidden_size)

    def forward(self, x: Tensor, attention: Attention, dropout: LayerDropout) -> Tensor:
        """(T, D) to (T, D), or to the rows (R, D) that are used of the last layer."""
        if self.pre:
            update = self.attention(self.attention_norm(x), attention, dropout.attention_weights)
            x = dropout.attention_output.residual(attention.output_rows(x), update)  # x + dropout(update)
            return dropout.output.residual(x, self.feed_forward(self.output_norm(x)))
        update = self.attention(x, attention, dropout.attention_weights)
        x = self.attention_norm(dropout.attention_output.residual(attention.output_rows(x), update))
        return self.output_norm(dropout.output.residual(x, self.feed_forward(x)))


class Pooler(nn.Linear):
    """A dense layer and tanh (DistilBERT: ReLU) on one vector of each sequence, (B, D) to (B, D) (modeling.py).

    The paper's C is the last layer at [CLS]; the original code puts this layer between C and the heads that read it.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config.hidden_size, config.hidden_size, config.bias)
        self.activation = config.rules.pooler_activation

    def forward(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](super().forward(x))


class Transform(nn.Module):
    """Dense, activation, LayerNorm: before the decoder of a masked-LM head; ModernBERT's pooler and heads have one."""

    def __init__(self, config: ModelConfig, width: int, out: int, hidden_act: str):
        super().__init__()
        self.dense = nn.Linear(width, out, config.bias)
        self.norm = layer_norm(config, out)
        self.hidden_act = hidden_act

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., out)."""
        return self.norm(ACTIVATIONS[self.hidden_act](self.dense(x)))


class Encoder(nn.Module):
    """`encoder(input_ids, attention_mask, token_type_ids)`, each (B, L), returns an EncoderOutput.

    `train()` and `eval()` of the encoder turn dropout on and off for all of its layers.
    """

    def __init__(self, config: ModelConfig, pooler: bool = True, layer: Callable[..., nn.Module] = Layer):
        """layer: the class of the layers: Layer, or RecurrentLayer for a `layer_type` other than attention."""
        super().__init__()
        self.config, self.width = config, config.hidden_size
        self.embeddings = Embeddings(config)
        shared = config.shared_layers == "all"
        count = min(1, config.num_hidden_layers) if shared else config.num_hidden_layers
        self.layers = nn.ModuleList(layer(config, first=number == 0 and not shared) for number in range(count))
        self.final_norm = layer_norm(config, self.width) if config.norm == "pre" else None
        self.pooler = build_pooler(config) if pooler else None
        self.pooler_dropout = HeadDropout(config.head_dropout, POOLER_SITE) if config.rules.pooler_dropout else None
        self.backend: Any = ReferenceBackend()  # chooses how a batch is computed; build_model puts fast/'s Backend here

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        layout: Layout | None = None,
        dropout: DropoutKey | None = None,
        hidden_states: bool = True,
        attentions: bool = False,
        head_mask: Tensor | None = None,
        depth: int | None = None,
        output_positions: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch.

        attention_mask: 1 or True for real tokens. token_type_ids: segment of each token, all 0 if left out.
        layout: the batch's, if it is known (layout.py). The others: see ForwardOptions. Raises ValueError if the
        sequences are longer than `max_length`, or if attention weights of recurrent layers are requested.
        """
        B, L = input_ids.shape
        if (limit := self.config.max_length) < L:
            raise ValueError(f"sequences of {L} tokens, but the model has {limit} positions; cut or window the input")
        options = ForwardOptions(dropout, hidden_states, attentions, head_mask, depth, output_positions)
        plan = self.backend.make_plan(self, layout or Layout.of(attention_mask, B, L), options, input_ids.device)
        inputs = plan.layout.token_inputs(input_ids, token_type_ids, self.config.position_offset)
        x = self.embeddings(*inputs, plan.dropout.embeddings)  # (T, D)
        states: list[Tensor] = []
        for i, attention in enumerate(plan.layer_attentions):
            if hidden_states:
                states.append(x)
            # ALBERT applies one layer n times
            x = plan.run_layer(self.layers[i % len(self.layers)], x, attention, plan.dropout.layers[i])
        complete = len(plan.layer_attentions) == self.config.num_hidden_layers
        if complete and self.final_norm is not None:
            x = self.final_norm(x)
        layout = plan.output_layout  # of the rows that the last layer returned
        pooled = self._pool(x, layout, dropout) if complete and self.pooler is not None else None
        weights = plan.layer_attentions[0].weights or () if plan.layer_attentions else ()  # of all layers, in one list
        outputs = (*states, x) if hidden_states else None
        return EncoderOutput(x, layout, pooled, outputs, tuple(weights) if attentions else None)

    def pooled_positions(self, layout: Layout, device: torch.device) -> Tensor:
        """(B,) flat positions of the tokens that the pooler reads, unless it reads the mean of all."""
        return layout.end_positions(device, last=self.config.direction == "left")

    def _pool(self, x: Tensor, layout: Layout, key: DropoutKey | None) -> Tensor:
        """(T, D) to (B, D)."""
        if self.config.classifier_pooling == "mean":
            x = layout.mean(x)  # (B, D)
        else:
            positions = self.pooled_positions(layout, x.device)
            if layout.is_subset and x.is_cpu and not layout.has(positions):
                raise ValueError("output_positions lacks tokens that the pooler reads; add Encoder.pooled_positions")
            x = x[layout.rows(positions)]  # (B, D)
        if self.pooler_dropout is not None:
            x = self.pooler_dropout(x, key)
        return self.pooler(x)  # type: ignore[misc]


def encoders_in(model: nn.Module) -> list[Encoder]:
    """The encoders of a model, of concatenated ones both."""
    return [module for module in model.modules() if isinstance(module, Encoder)]


def build_pooler(config: ModelConfig) -> nn.Module:
    """A dense layer with its activation; ModernBERT's has a LayerNorm too."""
    D = config.hidden_size
    return Transform(config, D, D, config.hidden_act) if config.rules.transform else Pooler(config)
