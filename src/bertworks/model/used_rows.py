"""Training without the rows of the word embedding table whose tokens no text has.

A vocabulary has 30,522 tokens and more, of which the texts of a fine-tuning have some thousands. The other rows get no
gradient, so an update does nothing to them but weight decay. Still an optimizer reads and writes these rows, their
gradient and both of their moments at every step. `keep_used_rows` takes them out of the table, `restore_rows` puts them
back, decayed as if they had stayed. That holds for Adam; LAMB scales an update by the norm of a whole table.

Shapes: V vocabulary, K tokens that texts have, E embedding width.
"""

import torch
from torch import Tensor, nn

from .encoder import Embeddings, UsedRows


@torch.no_grad()
def keep_used_rows(model: nn.Module, tokens: Tensor) -> None:
    """Shorten the word embedding tables of a model to the rows of `tokens`, (K,) and none twice, if they are trained.

    A table has K + 1 rows then. The last one has no token and begins with ones: decay is all that happens to it, so it
    shows what decay leaves of the rows that were taken out. A model with a masked-LM head is left as it is.
    """
    if "mlm" in getattr(model, "heads", ()):
        return
    for part in model.modules():
        if not isinstance(part, Embeddings) or not part.word.weight.requires_grad:
            continue
        table, K = part.word.weight.detach(), len(tokens)
        if len(table) <= K + 1:
            continue
        tokens = tokens.to(table.device)
        rows = torch.full((len(table),), K + 1, device=table.device)
        rows[tokens] = torch.arange(K, device=table.device)
        part.used = UsedRows(rows, tokens, table)
        part.word.weight = nn.Parameter(torch.cat([table[tokens], table.new_ones(1, table.shape[1])]))


@torch.no_grad()
def restore_rows(model: nn.Module) -> None:
    """Put back what `keep_used_rows` has taken out."""
    for part in model.modules():
        if isinstance(part, Embeddings) and part.used is not None:
            learned, table = part.word.weight.detach(), part.used.table * part.word.weight.detach()[-1]
            table[part.used.tokens] = learned[:-1]
            part.word.weight, part.used = nn.Parameter(table), None
