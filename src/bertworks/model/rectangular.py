"""A model as one forward pass over rectangles: no shape or branch depends on the mask's values.

Removing padding (layout.py) saves work, but the number of rows is known only when a batch is there. Tools that record a
graph once and run it for every batch (torch.export, ONNX, Inductor) need this pass instead. Layers and weights are the
model's own.

Shapes: B sequences, L positions, D width of the encoder, V vocabulary, K labels.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from ..files import InputError
from .heads import TOKEN_HEADS, Model
from .layout import Layout

STATES = "last_hidden_state"


def recurrent_part(model: Model) -> str:
    """Where a model has recurrent layers, whose graph would hold for one length only; "" if it has none."""
    if model.config.layer_type != "attention":
        return f"layer_type = {model.config.layer_type!r}"
    return "a BiLSTM below its head" if model.top is not None and len(model.top.bilstm) else ""


class Rectangular(nn.Module):
    """`Rectangular(model)(input_ids, attention_mask, token_type_ids)`, each (B, L), returns tensors by name.

    Scores, before any softmax, by the name of the head: mlm (B, L, V); nsp and sop (B, 2); classifier (B, K); choice
    (B, 1); tagger (B, L, K); span (B, L, 2), start and end. `last_hidden_state` (B, L, D) is the encoder's last layer,
    zeros on padding. Scores of padding mean nothing. The attention mask is 1 or True for real tokens, of which each
    sequence needs one.
    """

    def __init__(self, model: Model, outputs: Sequence[str] = ()):
        """`model` shares its weights and is put into evaluation mode. outputs: names to compute; left out, all.

        To export, give the model as it was loaded: what `for_inference` returns has operators of its own. Raises
        InputError if the model has recurrent layers, whose graph would hold for one length only, or an output is
        unknown.
        """
        super().__init__()
        known = (STATES, *model.heads)
        unknown = [name for name in outputs if name not in known]
        if unknown:
            raise InputError(f"outputs: {unknown[0]!r} is unknown; expected some of {', '.join(known)}")
        if found := recurrent_part(model):
            raise InputError(
                f"the model has {found}: recurrent layers work on packed sequences only; expected attention layers; "
                "use the model folder itself"
            )
        self.model, self.outputs = model, tuple(outputs) or known
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> dict[str, Tensor]:
        """All outputs of a batch. Raises ValueError if L exceeds the model's positions."""
        model, (B, L) = self.model, input_ids.shape
        top, depth = model.top, None if STATES in self.outputs else model.depth
        inputs = {"layout": Layout.rectangle(attention_mask, B, L), "hidden_states": top is not None, "depth": depth}
        out = model.encoder(input_ids, attention_mask, token_type_ids, **inputs)
        read = out if top is None else top(out)
        results = {STATES: out.layout.restore(out.packed)} if STATES in self.outputs else {}
        for name in self.outputs:
            if name == "mlm":
                results[name] = model.masked_lm_logits(read.packed).view(B, L, -1)
            elif name in TOKEN_HEADS:
                results[name] = model.heads[name](read).view(B, L, -1)
            elif name != STATES:
                results[name] = model.heads[name](read.pooled)
        return results
