"""Training without the rows of the word embedding table whose tokens no text has.

A vocabulary has 30,522 tokens and more, of which the texts of a fine-tuning have some thousands. The other rows get no
gradient, so an update does nothing to them but weight decay. Still an optimizer reads and writes these rows, their
gradient and both of their moments at every step. `shrink_embeddings` takes them out of the table,
`restore_embeddings` puts them back, decayed as if they had stayed. That holds for Adam; LAMB scales an update by the
norm of a whole table.

Shapes: V vocabulary, K tokens that texts have, E embedding width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..model.bert import Embeddings


class SubsetEmbedding(nn.Module):
    """The rows of an embedding table whose tokens texts have, called with token ids like the whole table.

    `weight` has K + 1 rows. The last one has no token and begins with ones: decay is all that happens to it, so it
    shows what decay leaves of the rows that were taken out.
    """

    def __init__(self, whole: nn.Embedding, tokens: Tensor):
        """tokens: (K,), none twice."""
        super().__init__()
        self.whole, self.tokens = whole.weight.detach(), tokens.to(whole.weight.device)
        self.rows = torch.full((len(self.whole),), len(tokens) + 1, device=self.tokens.device)  # out of range: no row
        self.rows[self.tokens] = torch.arange(len(tokens), device=self.tokens.device)
        ones = self.whole.new_ones(1, self.whole.shape[1])
        self.weight = nn.Parameter(torch.cat([self.whole[self.tokens], ones]))

    def forward(self, ids: Tensor) -> Tensor:
        """(...,) token ids to (..., E)."""
        return F.embedding(self.rows[ids], self.weight)

    def restored(self) -> nn.Embedding:
        """The whole table, with what was learned."""
        learned = self.weight.detach()
        table = self.whole * learned[-1]
        table[self.tokens] = learned[:-1]
        return nn.Embedding.from_pretrained(table, freeze=False)


@torch.no_grad()
def shrink_embeddings(model: nn.Module, tokens: Tensor) -> None:
    """Put a SubsetEmbedding of these tokens in place of each word embedding table that is trained and larger.

    A model with a masked-LM head is left as it is.
    """
    if "mlm" in getattr(model, "heads", ()):
        return
    for part in model.modules():
        if isinstance(part, Embeddings) and part.word.weight.requires_grad and len(part.word.weight) > len(tokens) + 1:
            part.word = SubsetEmbedding(part.word, tokens)  # type: ignore[assignment]


@torch.no_grad()
def restore_embeddings(model: nn.Module) -> None:
    """Undo `shrink_embeddings`."""
    for part in model.modules():
        if isinstance(part, Embeddings) and isinstance(part.word, SubsetEmbedding):
            part.word = part.word.restored()
