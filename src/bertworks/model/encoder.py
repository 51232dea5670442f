"""The encoder (Devlin et al. 2019, section 3; original code modeling.py): embeddings, Transformer layers, pooler. It
has no loss and no tokenizer.

BERT's relatives and the paper's comparators are settings of it (config.py): a context of one side (section 5.1),
recurrent layers (recurrent.py). Two encoders side by side are in pair.py. Padding is removed before the first layer and
put back only where someone asks for a rectangle (packing.py).

Shapes: B sequences, L positions, T rows of a packed batch, E embedding width, D hidden width, N heads, V vocabulary.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .activations import FUNCTIONS
from .attention import Blocks, is_flash_possible, rotation, worth_by_sequence
from .config import ModelConfig
from .dropout import Dropout, DropoutKey, LayerMasks
from .fused import FusedLayers
from .kernels import ROWS, Kernels
from .layer import Layer, LayerContext, Transform, compute, layer_norm, run_layer
from .packing import Packing
from .recurrent import RecurrentLayer

_POOLER_SITE = (1 << 16) - 1  # of the dropout before RoBERTa's pooler: the last one, which no layer or head has


class UsedRows(NamedTuple):
    """Where the rows of a shortened table belong."""

    rows: Tensor  # (V,) row of each token in the shortened table, K + 1, so out of range, for others
    tokens: Tensor  # (K,) the tokens that texts have
    table: Tensor  # (V, E) the whole table as it was


class Embeddings(nn.Module):
    """Word + position + segment embeddings, LayerNorm (section 3, figure 2). The encoder drops and projects them.

    A table of one segment adds the same vector to every token, whatever its segment.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        E, table = config.embedding_width, config.position_embedding_type != "rotary"
        self.offset = config.position_offset
        self.word = nn.Embedding(config.vocab_size, E)
        self.used: UsedRows | None = None  # which rows `word` has, if it has only some (used_rows.py)
        self.position = nn.Embedding(config.max_position_embeddings, E) if table else None
        self.token_type = nn.Embedding(config.type_vocab_size, E) if config.type_vocab_size else None
        self.norm = layer_norm(config, E)
        self.projection = nn.Linear(E, config.hidden_size, config.bias) if config.embedding_size else None
        if self.position is not None:
            self.position.weight.requires_grad = config.position_embedding_type == "learned"

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing) -> Tensor:
        """(B, L) ids and segments to (T, E)."""
        ids, types = input_ids.reshape(-1), None if token_type_ids is None else token_type_ids.reshape(-1)
        if packing.index is not None:
            ids = ids[packing.index]  # (T,)
            types = None if types is None else types[packing.index]
        x = self.word(ids if self.used is None else self.used.rows[ids])  # (T, E)
        if self.position is not None:
            x = x + self.position(self._positions(packing, input_ids.device))
        if self.token_type is not None:
            one = types is None or self.token_type.num_embeddings == 1
            x = x + (self.token_type.weight[0] if one else self.token_type(types))
        return self.norm(x)

    def _positions(self, packing: Packing, device: torch.device) -> Tensor:
        """(T,) rows of the table. With an offset only real tokens are counted, as in fairseq; else every cell."""
        if self.offset and packing.mask is not None:
            positions = (packing.mask.cumsum(1) - 1).clamp(min=0).view(-1) + self.offset
        else:
            positions = torch.arange(packing.L, device=device).expand(packing.B, -1).reshape(-1) + self.offset
        return positions if packing.index is None else positions[packing.index]


@dataclass(frozen=True, repr=False)
class EncoderOutput:
    """What an encoder returns.

    `packed` (T, D) is the last layer on real tokens; `packing` says which cells they are. `pooled` (B, D) is the tanh
    pooler (DistilBERT: ReLU; ModernBERT: Transform) on the first token, on the last one if tokens see only what is left
    of them, or on the mean of all (`classifier_pooling`); None if the encoder has no pooler. The rest is there if asked
    for: `states`, the embeddings and each layer's output in packed form; `hidden_states`, the same as (B, L, D), zeros
    on padding; `attentions`, one (B, N, L, L) a layer. With pre-LayerNorm the last state alone is normalised.
    """

    packed: Tensor
    packing: Packing
    pooled: Tensor | None
    states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

    def __repr__(self) -> str:
        """The shapes of what it has: tensors themselves fill screens."""
        shapes: dict[str, tuple[int, ...]] = {
            "last_hidden_state": (self.packing.B, self.packing.L, self.packed.shape[-1])
        }
        shapes |= {} if self.pooled is None else {"pooled": tuple(self.pooled.shape)}
        kept = {"hidden_states": self.states, "attentions": self.attentions}
        lengths = [f"{name}={len(tensors)} tensors" for name, tensors in kept.items() if tensors is not None]
        return f"EncoderOutput({', '.join([*(f'{name}={shape}' for name, shape in shapes.items()), *lengths])})"

    @cached_property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """A tuple of (B, L, D), embeddings first."""
        return None if self.states is None else tuple(map(self.packing.restore, self.states))

    @cached_property
    def last_hidden_state(self) -> Tensor:
        """(B, L, D), zeros on padding."""
        return self.packing.restore(self.packed)


@dataclass(frozen=True)
class _Pass:
    """What one pass over a batch asks of the layers."""

    layers: range
    packing: Packing
    key: DropoutKey | None
    last: Tensor | None  # the cells that the last layer returns; None: all
    attentions: bool
    head_mask: Tensor | None
    flash: bool = False  # whether attention reads packed rows, by the flash kernel of a GPU


class Encoder(nn.Module):
    """`encoder(input_ids, attention_mask, token_type_ids)`, each (B, L), returns an EncoderOutput."""

    def __init__(self, config: ModelConfig, pooler: bool = True):
        super().__init__()
        self.config, self.width = config, config.hidden_size
        self.embeddings = Embeddings(config)
        self.embedding_dropout = Dropout(config.hidden_dropout_prob, site=0)
        own = min(1, config.num_hidden_layers) if config.shared_layers == "all" else config.num_hidden_layers
        self.layers = nn.ModuleList(build_layer(config, number) for number in range(own))
        self.final_norm = layer_norm(config, self.width) if config.norm == "pre" else None
        self.pooler = build_pooler(config) if pooler else None
        self.pooler_dropout = Dropout(config.head_dropout, _POOLER_SITE) if config.rules.pooler_dropout else None
        self.kernels: Kernels | None = None  # for training in bfloat16 on a CPU (kernels/)
        self.run_layer: Any = run_layer
        self.compiled_layer: Any = None  # the same, compiled (prepare.py)
        self.compiled_for_gradients = True  # whether it is used where gradients are on, or where they are off

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
        packed: bool = True,
        packing: Packing | None = None,
        last_cells: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch.

        attention_mask: 1 or True for real tokens. token_type_ids: segment of each token, all 0 if left out.
        dropout: key of the masks in training on a CPU; without it a module in training mode uses torch's own dropout.
        hidden_states, attentions: return every layer's output, every head's weights. head_mask: (layers, N) factors.
        depth: compute only so many layers, and pool nothing. packed: remove padding before the first layer; False
        keeps the rectangle (rectangular.py). packing: the batch's, if it is known. last_cells: (R,) flat cells of real
        tokens, none twice where there is a gradient, whose vectors are read, those of pooled tokens too. Behind its
        attention the last layer computes no other token, unless hidden_states or attentions need all. Raises ValueError
        if the sequences are longer than `max_length`, or if a recurrent layer is asked for attention.
        """
        B, L = input_ids.shape
        self._check_length(L)
        packing = packing or (Packing.of if packed else Packing.rectangle)(attention_mask, B, L)
        run = self.run_layer
        key = dropout if self.training else None
        heads = attentions or head_mask is not None
        if flash := key is None and not (packing.recorded or heads) and self._takes_flash():
            packing = packing.in_sequence(input_ids.device)
        if self.compiled_layer is not None and torch.is_grad_enabled() == self.compiled_for_gradients:
            run, packing = self.compiled_layer, packing.filled(input_ids.device)
        layers = range(self.config.num_hidden_layers)[:depth]
        complete = len(layers) == self.config.num_hidden_layers
        divided = complete and self.is_last_divisible and not (hidden_states or attentions)
        read = last_cells if divided else None
        fused = run is self.run_layer and self._is_fused(key, heads)
        if read is not None and fused and self._takes_any_rows():
            packing = packing.trimmed(ROWS)
        x = self._embed(input_ids, token_type_ids, packing, key)  # (T, D)
        last = read if read is not None and len(read) < len(x) else None
        asked = _Pass(layers, packing, key, last, attentions, head_mask, flash)
        outputs, states, weights = self._run_fused(x, asked) if fused else self._run(run, x, asked), [x], []
        for x, w in outputs:  # (T, D), (B, N, L, L)
            states += [x] if hidden_states else []
            weights += [] if w is None else [w]
        packing = packing if last is None else packing.at(last)
        if complete and self.final_norm is not None:
            x = states[-1] = self.final_norm(x)
        return EncoderOutput(
            packed=x,
            packing=packing,
            pooled=self._pool(x, packing, key) if complete else None,
            states=tuple(states) if hidden_states else None,
            attentions=tuple(weights) if attentions else None,
        )

    def _check_length(self, L: int) -> None:
        if (limit := self.config.max_length) < L:
            raise ValueError(f"sequences of {L} tokens, but the model has {limit} positions; cut or window the input")

    def _embed(
        self, input_ids: Tensor, token_type_ids: Tensor | None, packing: Packing, key: DropoutKey | None
    ) -> Tensor:
        """(T, D): embeddings, dropout, and where E is not D the projection."""
        x = self.embedding_dropout(self.embeddings(input_ids, token_type_ids, packing), key, packing)  # (T, E)
        projection = self.embeddings.projection
        return x if projection is None else projection(x).to(x.dtype)  # type: ignore[no-any-return]

    def _takes_any_rows(self) -> bool:
        """Whether a batch may have any number of rows in training: oneDNN's products take long to prepare for each."""
        c = self.config
        multiplies = self.kernels is not None and self.kernels.multiplies(c.hidden_size, c.intermediate_size)
        return multiplies and self.embeddings.projection is None

    def _is_fused(self, key: DropoutKey | None, heads: bool) -> bool:
        """Whether the layers are computed with kernels. heads: whether someone asks for single attention heads."""
        if self.kernels is None or key is None or heads or torch.compiler.is_compiling():
            return False
        table = self.embeddings.word.weight[:0]
        return torch.is_grad_enabled() and table.dtype is torch.float32 and compute(table).dtype is torch.bfloat16

    def _takes_flash(self) -> bool:
        """Whether the flash kernel of a GPU computes attention; not where tokens see the right side alone."""
        c = self.config
        possible = c.layer_type == "attention" and c.direction != "right"
        return possible and is_flash_possible(
            compute(self.embeddings.word.weight[:0]), self.width // c.num_attention_heads
        )

    def _run_fused(self, x: Tensor, asked: "_Pass") -> Iterator[tuple[Tensor, None]]:
        """The output of each layer, computed with kernels."""
        assert self.kernels is not None and asked.key is not None
        rotations = self._rotations(self.config.rope_theta, asked.packing.L, x.device)
        layers = FusedLayers(self.kernels, self.config, asked.packing, asked.key, rotations, asked.last)
        return ((x, None) for x in layers.run([self._halves(i) for i in asked.layers], x))

    def _run(self, run: Any, x: Tensor, asked: "_Pass") -> Iterator[tuple[Tensor, Tensor | None]]:
        """The output of each layer, and its weights if asked for. `run`: `run_layer`, plain or compiled."""
        c, packing, key, last = self.config, asked.packing, asked.key, asked.last
        dense = asked.attentions or packing.recorded or (key is not None and c.attention_probs_dropout_prob > 0)
        everywhere, local = self._contexts(packing, x.device, asked.attentions, dense)
        plain = run is self.run_layer and asked.head_mask is None
        if asked.flash:
            everywhere, local = self._by_bounds(everywhere, local)
        elif plain and not (dense or self.training or torch.is_grad_enabled()):
            everywhere, local = self._by_sequence(everywhere, local, x.device)
        masks = self._masks(asked.layers, key, packing, last)
        for i in asked.layers:
            context = self._context(i, everywhere, local, asked.head_mask, last)
            if c.layer_type == "attention":
                x, w = run(*self._halves(i), x, context, masks[i])
            else:
                x, w = self.layers[i](x, context, masks[i])
            masks[i] = None  # kept by the gradient, if there is one
            yield x, w

    def _halves(self, i: int) -> tuple[Layer, Layer]:
        """The modules of layer i's attention and feed-forward network."""
        shared = self.config.shared_layers
        return tuple(self.layers[0 if shared in ("all", half) else i] for half in ("attention", "ffn"))  # type: ignore[return-value]

    def _contexts(
        self, packing: Packing, device: torch.device, attentions: bool, dense: bool
    ) -> tuple[LayerContext, LayerContext]:
        """The context of layers that see every token, and that of local ones.

        Local layers work in blocks, unless someone needs `dense` (L, L) weights: to return them, to drop some, or
        because L is not known yet.
        """
        c, span = self.config, self.config.attention_window
        if c.layer_type != "attention":
            return (LayerContext(packing, None, attentions=attentions),) * 2
        rotations = self._rotations(c.rope_theta, packing.L, device)
        everywhere = LayerContext(packing, packing.visible(c.direction, device), rotations, attentions=attentions)
        if not span:
            return everywhere, everywhere
        if c.local_rope_theta:
            rotations = self._rotations(c.local_rope_theta, packing.L, device)
        if not dense and (blocks := Blocks.of(packing, c.direction, span, device)):
            return everywhere, dataclasses.replace(everywhere, visible=None, rotations=rotations, blocks=blocks)
        visible = packing.visible(c.direction, device, span)
        return everywhere, dataclasses.replace(everywhere, visible=visible, rotations=rotations)

    def _context(
        self, i: int, everywhere: LayerContext, local: LayerContext, head_mask: Tensor | None, last: Tensor | None
    ) -> LayerContext:
        """That of layer i; `last`: the cells that the last layer returns."""
        context = everywhere if i % self.config.global_every == 0 else local
        if head_mask is not None:
            context = dataclasses.replace(context, head_mask=head_mask[i])
        if last is not None and i == self.config.num_hidden_layers - 1:
            context = dataclasses.replace(context, cells=last)
        return context

    def _by_sequence(
        self, everywhere: LayerContext, local: LayerContext, device: torch.device
    ) -> tuple[LayerContext, LayerContext]:
        """The contexts with attention sequence by sequence, on a CPU and where that costs less than the padding."""
        packing, direction = everywhere.packing, self.config.direction
        if device.type != "cpu" or packing.index is None or packing.mask is None or direction == "right":
            return everywhere, local
        lengths = tuple(packing.mask.sum(1).tolist())
        if self.config.layer_type != "attention" or not worth_by_sequence(lengths, packing.L):
            return everywhere, local
        own = dataclasses.replace(everywhere, lengths=lengths, **self._of_rows(everywhere))
        return own, own if local is everywhere else local

    def _by_bounds(self, everywhere: LayerContext, local: LayerContext) -> tuple[LayerContext, LayerContext]:
        """The contexts with attention by the flash kernel, except that of local layers."""
        bounds = everywhere.packing.bounds()
        own = dataclasses.replace(everywhere, visible=None, bounds=bounds, **self._of_rows(everywhere))
        return own, own if local is everywhere else local

    def _of_rows(self, context: LayerContext) -> dict[str, Any]:
        """Rotations of packed rows, and the order of reading."""
        packing, rotations = context.packing, context.rotations
        if rotations is not None and packing.index is not None:
            rotations = rotations[:, packing.index % packing.L]
        return {"rotations": rotations, "causal": self.config.direction == "left"}

    def _rotations(self, theta: float, L: int, device: torch.device) -> Tensor | None:
        """(2, L, H / 2) of rotary positions; None without them."""
        rotary, H = self.config.position_embedding_type == "rotary", self.width // self.config.num_attention_heads
        return rotation(L, H, theta, device) if rotary else None

    def _masks(
        self, layers: range, key: DropoutKey | None, packing: Packing, last: Tensor | None = None
    ) -> list[LayerMasks | None]:
        """The keyed masks of each layer; None leaves dropout to torch. last: the cells that the last layer returns."""
        if key is None:
            return [None] * len(layers)
        c, attends, B, L = self.config, self.config.layer_type == "attention", packing.B, packing.L
        hidden, square, rows = c.hidden_dropout_prob, (B, c.num_attention_heads, L, L), (B, L, c.hidden_size)
        kinds = (
            (c.attention_probs_dropout_prob if attends else 0.0, square),
            (hidden if attends else 0.0, rows),
            (hidden, rows),
        )
        # three dropouts a layer; site 0 is that of the embeddings
        masks = key.masks([(3 * i + j, *kind) for i in layers for j, kind in enumerate(kinds, 1)])
        packed = [
            mask if mask is None or mask.shape == square else packing.pack(mask.flatten(0, 1), last if late else None)
            for mask, late in zip(masks, [i == layers[-1] for i in layers for _ in kinds], strict=True)
        ]
        return [LayerMasks(*packed[3 * i : 3 * i + 3]) for i in layers]

    @property
    def is_last_divisible(self) -> bool:
        """Whether the last layer can be computed for some tokens alone."""
        pools_all = self.pooler is not None and self.config.classifier_pooling == "mean"
        return self.config.layer_type == "attention" and bool(self.layers) and not pools_all

    def pooled_cells(self, packing: Packing, device: torch.device) -> Tensor:
        """(B,) flat cells of the tokens that the pooler reads, unless it reads the mean of all."""
        return packing.end_cells(device, last=self.config.direction == "left")

    def _pool(self, x: Tensor, packing: Packing, key: DropoutKey | None) -> Tensor | None:
        """(T, D) to (B, D)."""
        if self.pooler is None:
            return None
        if self.config.classifier_pooling == "mean":
            x = packing.mean(x)  # (B, D)
        else:
            x = x[packing.rows(self.pooled_cells(packing, x.device))]  # (B, D)
        if self.pooler_dropout is not None:
            x = self.pooler_dropout(x, key)
        return FUNCTIONS[self.config.rules.pooler_activation](self.pooler(x))


def build_pooler(config: ModelConfig) -> nn.Module:
    """A dense layer, whose activation the encoder applies; ModernBERT's has activation and LayerNorm of its own."""
    D = config.hidden_size
    return Transform(config, D, D, config.hidden_act) if config.rules.transform else nn.Linear(D, D, config.bias)


def build_layer(config: ModelConfig, number: int = 0) -> Layer | RecurrentLayer:
    """A layer of the kind that `layer_type` names; layer 0 has what the layers share."""
    c = config
    if c.layer_type == "attention":
        layer = Layer(c, number == 0 or c.shared_layers != "attention", number == 0 or c.shared_layers != "ffn")
        if number == 0 and layer.pre and not c.rules.first_norm and c.shared_layers in ("none", "ffn"):
            layer.attention_norm = nn.Identity()  # it would normalise the embeddings again
        return layer
    return RecurrentLayer(c.hidden_size, c.layer_type, c.direction, c.layer_norm_eps, c.hidden_dropout_prob)
