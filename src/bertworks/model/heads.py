"""Heads on the encoder, and the model that holds both. build.py makes one. The losses are in training/objectives.py.

Shapes: M masked positions, B sequences, L positions, T rows of a packed batch, D hidden width, V vocabulary, K labels.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .bert import Transform, encoders_in
from .config import HeadName, ModelConfig
from .dropout import DropoutKey, HeadDropout, head_site
from .forward import EncoderOutput
from .layout import Layout, with_layout

if TYPE_CHECKING:
    from .comparators import FeatureHead

TOKEN_HEADS = ("tagger", "span")  # they score every token
POOLED_MULTIPLE = 16  # in inference the number of pooled tokens that the last layer computes is a multiple of this


class MaskedLMHead(Transform):
    """What is below the output matrix, and its bias: dense, activation, LayerNorm (3.1; run_pretraining.py).

    `head(x)` takes (M, D) to (M, E), no logits yet: `Model.masked_lm_logits` has the product with the output matrix
    too, which is the word embeddings. A config without `tie_word_embeddings` has another one, `decoder`.
    """

    def __init__(self, config: ModelConfig):
        E = config.embedding_width
        super().__init__(config, config.hidden_size, E, config.rules.mlm_act or config.hidden_act)
        self.decoder = None if config.tie_word_embeddings else nn.Linear(E, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))


class ClassificationHead(nn.Linear):
    """Dropout of the pooled output (B, D), K scores, whose softmax is P (section 4.1); K = 1 is a regression.

    The paper's heads read C, the last layer at [CLS]; the original code has the pooler between C and them.

    The head of next-sentence prediction is one without dropout (3.1, task 2): label 0 = B follows A, 1 = B is random.
    ALBERT's sentence-order head is one too: label 0 = A and B in their order, 1 = swapped.
    """

    def __init__(self, config: ModelConfig, labels: int, width: int, rate: float):
        super().__init__(width, labels)
        self.dropout = HeadDropout(rate, head_site(config.num_hidden_layers))

    def forward(self, pooled: Tensor, dropout: DropoutKey | None = None) -> Tensor:
        """(B, D) to (B, K). `dropout`: key of the mask in training; None leaves it to torch."""
        return super().forward(self.dropout(pooled, dropout))


class TokenHead(nn.Linear):
    """The last layer of every token, dropout, K scores: tags (5.3), or start and end of a span (4.2)."""

    def __init__(self, config: ModelConfig, labels: int, width: int, rate: float):
        super().__init__(width, labels)
        self.transform = Transform(config, width, width, config.hidden_act) if config.rules.transform else None
        self.dropout = HeadDropout(rate, head_site(config.num_hidden_layers))

    def forward(self, out: EncoderOutput, dropout: DropoutKey | None = None) -> Tensor:  # type: ignore[override]
        """(T, K) scores of the packed rows. `dropout`: key of the mask in training; None leaves it to torch."""
        x = out.packed if self.transform is None else self.transform(out.packed)
        return super().forward(self.dropout(x, dropout, out.layout))


class Model(nn.Module):
    """An encoder, its heads by name (HeadName), and optionally a feature head, `top`, between them."""

    def __init__(self, encoder: nn.Module, heads: Mapping[HeadName, nn.Module], top: "FeatureHead | None" = None):
        super().__init__()
        self.encoder: Any = encoder
        self.top = top
        self.heads = nn.ModuleDict({str(name): head for name, head in heads.items()})
        self.frozen = False
        self.kernels: Any = None  # fast/kernels, for training in bfloat16 on a CPU
        self.folder: Path | None = None  # that it was loaded from

    @property
    def config(self) -> ModelConfig:
        return self.encoder.config

    @property
    def decoder(self) -> Tensor:
        """(V, E): the word embeddings, or the masked-LM head's own matrix if it has one."""
        head: Any = self.heads["mlm"]
        return (head.decoder or self.encoder.embeddings.word).weight

    def masked_lm_logits(self, hidden: Tensor) -> Tensor:
        """(M, D) encoder output at some positions to (M, V) scores; training does it in chunks (`OutputLayer`)."""
        head = self.heads["mlm"]
        return F.linear(head(hidden), self.decoder, head.bias)  # type: ignore[arg-type]

    def encode(
        self, batch: Mapping[str, Tensor], dropout: DropoutKey | None = None, output_positions: Tensor | None = None
    ) -> EncoderOutput:
        """The input of the heads for a batch (batch.py). `dropout`: key of the masks in training on a CPU.

        output_positions: as of Encoder, without a feature head or a second encoder, which need every token.
        """
        out: EncoderOutput = self.encoder(
            batch["input_ids"],
            batch["attention_mask"],
            batch["token_type_ids"],
            dropout=dropout,
            hidden_states=self.top is not None,
            depth=self.depth,
            layout=Layout.of_batch(batch),
            output_positions=output_positions,
        )
        return out if self.top is None else self.top(out, dropout)

    # ---- fine-tuning and inference

    @property
    def supervised_head(self) -> str | None:
        """The name of the head that is no pre-training objective's; None without one."""
        return next((name for name in self.heads if name not in ("mlm", "nsp", "sop")), None)

    @property
    def depth(self) -> int | None:
        """How many of the encoder's layers are computed; None: all, and its pooler."""
        return None if self.top is None or self.top.config.needs_pooler else self.top.choice.depth

    def pool(self, batch: Mapping[str, Tensor], dropout: DropoutKey | None = None) -> Tensor | None:
        """`encode(batch, dropout).pooled`, (B, D), for which the last layer computes the pooled tokens only."""
        if self.config.direction == "pair":
            return self.encode(batch, dropout).pooled
        batch = with_layout(dict(batch))  # so that `encode` need not find the layout again
        positions = self.encoder.pooled_positions(Layout.of_batch(batch), batch["input_ids"].device)
        if not torch.is_grad_enabled():  # the first is repeated up to a multiple: few shapes of products (layout.py)
            positions = torch.cat([positions, positions[:1].expand(-len(positions) % POOLED_MULTIPLE)])
        return self.encode(batch, dropout, positions).pooled

    def freeze_unused_layers(self) -> None:
        """Turn off the gradients of layers above those that the feature head reads: they have no part in any loss."""
        depth = self.config.num_hidden_layers if self.depth is None else self.depth
        for encoder in encoders_in(self):
            encoder.layers[depth:].requires_grad_(False)
            if encoder.final_norm is not None and depth < self.config.num_hidden_layers:
                encoder.final_norm.requires_grad_(False)

    def freeze(self) -> None:
        """Turn off gradients and dropout of the encoder's layers and embeddings. Its pooler is still trained."""
        self.frozen = True
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad = name.startswith("pooler.")
        self.train(self.training)

    def train(self, mode: bool = True) -> "Model":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self
