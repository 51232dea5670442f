"""The encoder (Devlin et al. 2019, section 3; original code modeling.py): embeddings, Transformer layers, pooler. No
loss and no tokenizer in here. BERT's relatives and the paper's comparators are settings of it (config.py): a context of
one side (section 5.1), recurrent layers (recurrent.py); two encoders side by side are in pair.py.

Padding is removed at the door and put back at the exit: between them every token-wise operation works on real tokens
alone, and only attention sees the rectangular form.

Shapes: B sequences, L positions, T real tokens of the batch, E embedding width, D hidden width, N heads, V vocabulary.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import ModelConfig as ModelConfig
from .dropout import DropoutKey, LayerMasks, drop, rescale
from .layer import Layer, Sight, run_layer
from .local import Blocks
from .packing import Packing
from .recurrent import RecurrentLayer
from .rotary import rotation

_POOLER = (1 << 16) - 1  # the place of the dropout before RoBERTa's pooler: the last, which no layer or head has


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm (section 3, figure 2); dropout and projection are the caller's.

    A table of one segment adds the same vector to every token, whatever its segment.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        E, table = config.embedding_width, config.position_embedding_type != "rotary"
        self.offset = config.position_offset
        self.word = nn.Embedding(config.vocab_size, E)
        self.position = nn.Embedding(config.max_position_embeddings, E) if table else None
        self.token_type = nn.Embedding(config.type_vocab_size, E) if config.type_vocab_size else None
        self.norm = nn.LayerNorm(E, eps=config.layer_norm_eps)
        self.projection = nn.Linear(E, config.hidden_size) if config.embedding_size else None
        if self.position is not None:
            self.position.weight.requires_grad = config.position_embedding_type == "learned"

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing) -> Tensor:
        """(T, E)."""
        ids, types = input_ids.reshape(-1), None if token_type_ids is None else token_type_ids.reshape(-1)
        if packing.index is not None:
            ids = ids[packing.index]
            types = None if types is None else types[packing.index]
        x = self.word(ids)
        if self.position is not None:
            x = x + self.position(self._positions(packing, input_ids.device))
        if self.token_type is not None:
            one = types is None or self.token_type.num_embeddings == 1
            x = x + (self.token_type.weight[0] if one else self.token_type(types))
        return self.norm(x)

    def _positions(self, packing: Packing, device: torch.device) -> Tensor:
        """(T,) rows of the table. Behind an offset real tokens alone count, as in fairseq; else every cell."""
        if self.offset and packing.mask is not None:
            positions = (packing.mask.cumsum(1) - 1).clamp(min=0).view(-1) + self.offset
        else:
            positions = torch.arange(packing.L, device=device).expand(packing.B, -1).reshape(-1) + self.offset
        return positions if packing.index is None else positions[packing.index]


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder gives.

    `packed` (T, D) is the last layer on real tokens, `packing` says which cells they are; `states` are the embeddings
    and each layer's output in that form, `hidden_states` the same as (B, L, D), zeros on padding; `attentions` one
    (B, N, L, L) a layer; these only if asked for. With pre-LayerNorm the last state alone is normalised. `pooled`
    (B, D) is the tanh pooler (DistilBERT: ReLU) on the first token, or on the last if tokens see only what stands left
    of them; None if the encoder has no pooler.
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
        own = min(1, config.num_hidden_layers) if config.shared_layers == "all" else config.num_hidden_layers
        self.layers = nn.ModuleList(build_layer(config, number) for number in range(own))
        self.final_norm = nn.LayerNorm(self.width, eps=config.layer_norm_eps) if config.norm == "pre" else None
        self.pooler = nn.Linear(self.width, self.width) if pooler else None
        self.run_layer: Any = run_layer

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
        `max_length`, or if a recurrent layer is asked for attention.
        """
        B, L = input_ids.shape
        if self.config.max_length < L:
            limit = self.config.max_length
            raise ValueError(f"sequences of {L} tokens, but the model has {limit} positions; cut or window the input")
        packing = Packing.of(attention_mask, B, L)
        x = self._embed(input_ids, token_type_ids, packing, dropout)
        states, weights = [x], []
        keyed = dropout is not None and self.training and self.config.attention_probs_dropout_prob > 0
        whole = attentions or keyed  # what wants every weight cannot have them in blocks
        wide, local = self._sights(packing, x.device, whole, attentions)
        run = range(self.config.num_hidden_layers)[:depth]
        for i in run:
            sight = wide if i % self.config.global_every == 0 else local
            sight = sight if head_mask is None else dataclasses.replace(sight, head_mask=head_mask[i])
            x, w = self._layer(i, x, sight, self._masks(i, dropout, packing))
            if hidden_states:
                states.append(x)
            if w is not None:
                weights.append(w)
        complete = len(run) == self.config.num_hidden_layers
        if complete and self.final_norm is not None:
            x = states[-1] = self.final_norm(x)
        return EncoderOutput(
            packed=x,
            packing=packing,
            pooled=self._pool(x, packing, dropout) if complete else None,
            states=tuple(states) if hidden_states else None,
            attentions=tuple(weights) if attentions else None,
        )

    def _sights(self, packing: Packing, device: torch.device, whole: bool, attentions: bool) -> tuple[Sight, Sight]:
        """What layers see that see all, and what local ones see, in blocks unless they are to have `whole` weights."""
        c, turn = self.config, None
        if c.layer_type != "attention":
            return (Sight(packing, None, attentions=attentions),) * 2
        if c.position_embedding_type == "rotary":
            turn = rotation(packing.L, c.hidden_size // c.num_attention_heads, c.rope_theta, device)
        wide = Sight(packing, packing.visible(c.direction, device), turn, attentions=attentions)
        if not c.attention_window:
            return wide, wide
        if not whole and (blocks := Blocks.of(packing, c.direction, c.attention_window, device)):
            return wide, dataclasses.replace(wide, visible=None, blocks=blocks)
        return wide, dataclasses.replace(wide, visible=packing.visible(c.direction, device, c.attention_window))

    def _layer(self, i: int, x: Tensor, sight: Sight, masks: LayerMasks | None) -> tuple[Tensor, Tensor | None]:
        shared, result = self.config.shared_layers, None
        if self.config.layer_type != "attention":
            result = self.layers[i](x, sight, masks)
        else:
            halves = (self.layers[0 if shared in ("all", half) else i] for half in ("attention", "ffn"))
            result = self.run_layer(*halves, x, sight, masks)
        return result  # type: ignore[no-any-return]

    def _pool(self, x: Tensor, packing: Packing, key: DropoutKey | None) -> Tensor | None:
        if self.pooler is None:
            return None
        c = self.config
        x = x[packing.ends(x.device, last=c.direction == "left")]  # (B, D)
        if c.family == "roberta":
            x = drop(x, key, _POOLER, c.head_dropout, self.training)
        return torch.relu(self.pooler(x)) if c.family == "distilbert" else torch.tanh(self.pooler(x))

    def _embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing, key: DropoutKey | None
    ) -> Tensor:
        x, rate = self.embeddings(input_ids, token_type_ids, packing), self.config.hidden_dropout_prob
        if key is None or not self.training:
            x = F.dropout(x, rate, self.training)
        elif rate:
            x = x * self._hidden_mask(0, key, packing, x.shape[1]) * rescale(rate)
        projection = self.embeddings.projection
        return x if projection is None else projection(x).to(x.dtype)

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
            output = self._hidden_mask(place + 2, key, packing, c.hidden_size)
            if c.layer_type == "attention":
                attention_output = self._hidden_mask(place + 1, key, packing, c.hidden_size)
        return LayerMasks(weights, attention_output, output)

    def _hidden_mask(self, place: int, key: DropoutKey, packing: Packing, width: int) -> Tensor:
        """(T, width)."""
        shape = (packing.B, packing.L, width)
        mask = key.mask(place, self.config.hidden_dropout_prob, shape).view(-1, width)
        return mask if packing.index is None else mask.index_select(0, packing.index)


def build_layer(config: ModelConfig, number: int = 0) -> Layer | RecurrentLayer:
    """A layer of the kind that `layer_type` names; `number` 0 has what the layers share."""
    c = config
    if c.layer_type == "attention":
        return Layer(c, number == 0 or c.shared_layers != "attention", number == 0 or c.shared_layers != "ffn")
    return RecurrentLayer(c.hidden_size, c.layer_type, c.direction, c.layer_norm_eps, c.hidden_dropout_prob)


def compile_layers(encoder: nn.Module) -> None:
    """Compile the layer once for all layers (torch.compile): fuses what stands between the matrix products."""
    for part in encoder.modules():  # of a pair both
        if isinstance(part, Encoder) and part.config.layer_type == "attention":
            part.run_layer = torch.compile(run_layer)


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
        table = child.position if isinstance(child, Embeddings) else None
        if table is not None and not table.weight.requires_grad:
            table.weight.copy_(sinusoids(*table.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) sines and cosines of Vaswani et al. (2017), section 3.5."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
