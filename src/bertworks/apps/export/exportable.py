"""A model as one forward pass that keeps all padding: no shape or branch depends on the mask's values.

Removing padding (model/layout.py) saves work, but the number of tokens is known only when a batch is there. Tools that
record a graph once and run it for every batch (torch.export, ONNX, Inductor) need this pass instead. Layers and weights
are the model's own.

Shapes: B sequences, L positions, D width of the encoder, V vocabulary, K labels.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ...files import InputError
from ...inference.exported import STATES
from ...model.heads import TOKEN_HEADS, Model
from ...model.layout import Layout


class ExportableModel(nn.Module):
    """`ExportableModel(model)(input_ids, attention_mask, token_type_ids)`, each (B, L), returns tensors by name.

    Scores, before any softmax, by the name of the head: mlm (B, L, V); nsp and sop (B, 2); classifier (B, K); choice
    (B, 1); tagger (B, L, K); span (B, L, 2), start and end. `last_hidden_state` (B, L, D) is the encoder's last layer,
    zeros on padding. Scores of padding mean nothing. The attention mask is 1 or True for real tokens, of which each
    sequence needs one.
    """

    def __init__(self, model: Model, outputs: Sequence[str] = ()):
        """`model` shares its weights and is put into evaluation mode. outputs: names to compute; left out, all.

        To export, give the model as it was loaded: what `for_inference` returns has operators of its own. Raises
        InputError if the model has recurrent layers, whose graph would hold for one length only.
        """
        super().__init__()
        self.model, self.outputs = model, tuple(outputs) or (STATES, *model.heads)
        if model.config.layer_type != "attention" or (model.top is not None and len(model.top.bilstm)):
            raise InputError("the model has recurrent layers, which cannot be exported; use the model folder itself")
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict[str, Tensor]:
        """All outputs of a batch. Raises ValueError if L exceeds the model's positions."""
        model, (B, L) = self.model, input_ids.shape
        out = model.encoder(
            input_ids,
            attention_mask,
            token_type_ids,
            layout=Layout.rectangle(attention_mask, B, L),
            hidden_states=model.top is not None,
            depth=None if STATES in self.outputs else model.depth,
        )
        features = out if model.top is None else model.top(out)
        results = {}
        for name in self.outputs:
            if name == STATES:
                results[name] = out.layout.restore(out.packed)
            elif name == "mlm":
                results[name] = model.masked_lm_logits(features.packed).view(B, L, -1)
            elif name in TOKEN_HEADS:
                results[name] = model.heads[name](features).view(B, L, -1)
            else:
                results[name] = model.heads[name](features.pooled)
        return results
