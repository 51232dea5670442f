"""The BERT encoder (Devlin et al. 2019, section 3; original code modeling.py): embeddings, post-LayerNorm Transformer
layers, pooler. No loss and no tokenizer in here. The paper's comparators are settings of it: a context of one side
(section 5.1), recurrent layers (recurrent.py); two encoders side by side are in pair.py.

Padding is removed at the door and put back at the exit: between them every token-wise operation works on real tokens
alone, and only attention sees the rectangular form.

Shapes: B sequences, L positions, T real tokens of the batch, D hidden width, N heads, H head size, V vocabulary.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import fused_attention, keyed_attention, visible_attention
from .config import ACTIVATIONS
from .config import ModelConfig as ModelConfig
from .dropout import DropoutKey, LayerMasks, add_dropped, rescale
from .packing import Packing
from .recurrent import RecurrentLayer


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm, dropout (section 3, figure 2)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D, P = config.hidden_size, config.max_position_embeddings
        self.word = nn.Embedding(config.vocab_size, D)
        self.position = nn.Embedding(P, D)
        self.token_type = nn.Embedding(config.type_vocab_size, D) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(D, eps=config.layer_norm_eps)
        self.position.weight.requires_grad = config.position_embedding_type == "learned"

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing) -> Tensor:
        positions = torch.arange(packing.L, device=input_ids.device).expand(packing.B, -1).reshape(-1)
        ids, types = input_ids.reshape(-1), None if token_type_ids is None else token_type_ids.reshape(-1)
        if packing.index is not None:
            ids, positions = ids[packing.index], positions[packing.index]
            types = None if types is None else types[packing.index]
        x = self.word(ids) + self.position(positions)  # (T, D)
        if self.token_type is not None:
            x = x + (self.token_type.weight[0] if types is None else self.token_type(types))
        return self.norm(x)


class Layer(nn.Module):
    """One post-LayerNorm Transformer layer: x = LN(x + attention(x)); x = LN(x + feed_forward(x))."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D, wide, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.config = config
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.attention_output, self.attention_norm = nn.Linear(D, D), nn.LayerNorm(D, eps=eps)
        self.intermediate, self.output = nn.Linear(D, wide), nn.Linear(wide, D)
        self.output_norm = nn.LayerNorm(D, eps=eps)

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        masks: LayerMasks | None,
        head_mask: Tensor | None = None,
        attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(T, D) to (T, D), and the attention weights (B, N, L, L) if `attentions`.

        masks: keyed dropout; None leaves dropout in training to torch.
        """
        context, weights = self.attend(compute(x), packing, masks, head_mask, attentions)
        x = self.attention_norm(self._add(x, self.attention_output(context), masks, "attention_output"))
        hidden = ACTIVATIONS[self.config.hidden_act](self.intermediate(compute(x)))  # (T, I)
        return self.output_norm(self._add(x, self.output(hidden), masks, "output")), weights

    def _add(self, x: Tensor, update: Tensor, masks: LayerMasks | None, place: str) -> Tensor:
        return add_dropped(x, update, masks, place, self.config.hidden_dropout_prob, self.training)

    def attend(
        self, x: Tensor, packing: Packing, masks: LayerMasks | None, head_mask: Tensor | None, attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Multi-head self-attention, (T, D) to (T, D); padding keys are hidden from every query."""
        B, L, N = packing.B, packing.L, self.config.num_attention_heads
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        q, k, v = (  # (B, N, L, H) each
            packing.unpack(project(x)).view(B, L, N, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        visible = packing.visible(self.config.direction, x.device)
        mask, weights = masks.weights if masks else None, None
        if attentions or head_mask is not None:
            context, weights = visible_attention(q, k, v, visible, mask, rate, head_mask)
        elif masks is not None:
            context = keyed_attention(q, k, v, visible, mask, rate)
        else:
            context = fused_attention(q, k, v, visible, rate)
        return packing.pack(context.transpose(1, 2).reshape(B * L, -1)), weights if attentions else None


def compute(x: Tensor) -> Tensor:
    """`x` in the type of matrix products, cast once where autocast would cast it for each product anew."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder gives.

    `packed` (T, D) is the last layer on real tokens, `packing` says which cells they are; `states` are the embeddings
    and each layer's output in that form, `hidden_states` the same as (B, L, D), zeros on padding; `attentions` one
    (B, N, L, L) a layer; these only if asked for. `pooled` (B, D) is the tanh pooler on the first token, or on the last
    if tokens see only what stands left of them; None if the encoder has no pooler.
    """

    packed: Tensor
    packing: Packing
    pooled: Tensor | None
    states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

    @cached_property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """A tuple of (B, L, D), embeddings first."""
        return None if self.states is None else tuple(map(self.packing.restore, self.states))

    @cached_property
    def last_hidden_state(self) -> Tensor:
        """(B, L, D), zeros on padding."""
        return self.packing.restore(self.packed)


class Encoder(nn.Module):
    """`encoder(input_ids, attention_mask, token_type_ids)`, each (B, L), gives an EncoderOutput."""

    def __init__(self, config: ModelConfig, pooler: bool = True):
        super().__init__()
        self.config, self.width = config, config.hidden_size
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(build_layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(self.width, self.width) if pooler else None
        self.run_layer: Any = Layer.forward if config.layer_type == "attention" else RecurrentLayer.forward

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        dropout: DropoutKey | None = None,
        hidden_states: bool = True,
        attentions: bool = False,
        head_mask: Tensor | None = None,
        depth: int | None = None,
    ) -> EncoderOutput:
        """Encode a batch.

        attention_mask: 1 or True for real tokens. token_type_ids: segment of each token, all 0 if left out.
        dropout: key of the masks in training on a CPU; without it a module in training mode uses torch's own dropout.
        hidden_states, attentions: keep every layer's output, every head's weights. head_mask: (layers, N) factors.
        depth: compute only so many layers; nothing is pooled then. Raises ValueError if the sequences are longer than
        `max_position_embeddings`, or if a recurrent layer is asked for attention.
        """
        B, L = input_ids.shape
        if self.config.max_position_embeddings < L:
            raise ValueError(
                f"sequences of {L} tokens, but the model has {self.config.max_position_embeddings} positions; "
                "cut or window the input"
            )
        packing = Packing.of(attention_mask, B, L)
        x = self._embed(input_ids, token_type_ids, packing, dropout)
        states, weights = [x], []
        for i, layer in enumerate(self.layers[:depth]):
            masks = self._masks(i, dropout, packing)
            heads = None if head_mask is None else head_mask[i]
            x, w = self.run_layer(layer, x, packing, masks, heads, attentions)
            if hidden_states:
                states.append(x)
            if w is not None:
                weights.append(w)
        return EncoderOutput(
            packed=x,
            packing=packing,
            pooled=self._pool(x, packing) if len(self.layers[:depth]) == len(self.layers) else None,
            states=tuple(states) if hidden_states else None,
            attentions=tuple(weights) if attentions else None,
        )

    def _pool(self, x: Tensor, packing: Packing) -> Tensor | None:
        if self.pooler is None:
            return None
        return torch.tanh(self.pooler(x[packing.ends(x.device, last=self.config.direction == "left")]))  # (B, D)

    def _embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing, key: DropoutKey | None
    ) -> Tensor:
        x, rate = self.embeddings(input_ids, token_type_ids, packing), self.config.hidden_dropout_prob
        if key is None or not self.training:
            return F.dropout(x, rate, self.training)
        return x * self._hidden_mask(0, key, packing) * rescale(rate) if rate else x

    def _masks(self, layer: int, key: DropoutKey | None, packing: Packing) -> LayerMasks | None:
        """The keyed masks of a layer; None leaves dropout to torch."""
        c, place = self.config, 3 * layer + 1  # three dropouts a layer; place 0 is that of the embeddings
        if key is None or not self.training:
            return None
        weights = output = attention_output = None
        if c.attention_probs_dropout_prob and c.layer_type == "attention":
            shape = (packing.B, c.num_attention_heads, packing.L, packing.L)
            weights = key.mask(place, c.attention_probs_dropout_prob, shape)
        if c.hidden_dropout_prob:
            output = self._hidden_mask(place + 2, key, packing)
            if c.layer_type == "attention":
                attention_output = self._hidden_mask(place + 1, key, packing)
        return LayerMasks(weights, attention_output, output)

    def _hidden_mask(self, place: int, key: DropoutKey, packing: Packing) -> Tensor:
        """(T, D)."""
        shape = (packing.B, packing.L, self.config.hidden_size)
        mask = key.mask(place, self.config.hidden_dropout_prob, shape).view(-1, shape[2])
        return mask if packing.index is None else mask.index_select(0, packing.index)


def build_layer(config: ModelConfig) -> Layer | RecurrentLayer:
    """A layer of the kind that `layer_type` names."""
    if config.layer_type == "attention":
        return Layer(config)
    c = config
    return RecurrentLayer(c.hidden_size, c.layer_type, c.direction, c.layer_norm_eps, c.hidden_dropout_prob)


def compile_layers(encoder: nn.Module) -> None:
    """Compile the layer once for all layers (torch.compile): fuses what stands between the matrix products."""
    for part in encoder.modules():  # of a pair both
        if isinstance(part, Encoder) and part.config.layer_type == "attention":
            part.run_layer = torch.compile(Layer.forward)


@torch.no_grad()
def initialise(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Truncated normal within two `std` for matrices and embeddings, 0 for biases, 1 for LayerNorm gains (modeling.py).

    Recurrent layers: uniform within one over the root of their width. Sinusoidal positions (a table that requires no
    gradient) are filled by formula.
    """
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(child.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
            if isinstance(child, nn.Linear) and child.bias is not None:
                child.bias.zero_()
        elif isinstance(child, nn.RNNBase):  # torch's own way, from our generator
            for parameter in child.parameters():
                parameter.uniform_(-(child.hidden_size**-0.5), child.hidden_size**-0.5, generator=generator)
    for child in module.modules():  # afterwards: the loop above meets the table after the Embeddings that hold it
        if isinstance(child, Embeddings) and not child.position.weight.requires_grad:
            child.position.weight.copy_(sinusoids(*child.position.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) sines and cosines of Vaswani et al. (2017), section 3.5."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
