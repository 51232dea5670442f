"""The choice of how the layers of an encoder are computed for a batch.

`choose` takes the first row of METHODS whose condition holds:

    recurrent    recurrent layers
    weights      attention step by step: its weights are returned or masked
    rectangle    a graph is recorded, so padding stays
    kernels      C kernels, in training in bfloat16 on a CPU
    flash        the flash kernel of a GPU, without any padding
    keyed        training on a CPU: dropout masks from a key
    sequences    inference on a CPU where padding costs more than a call for each sequence
    torch        torch's attention

`flash`, `keyed` and `torch` use the compiled layer where there is one. Over long sequences local layers compare blocks
of tokens, unless all weights are needed: to return, mask or drop them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Attention, TorchAttention, global_and_local
from ..bert import Encoder, encoders_in
from ..forward import ForwardOptions, ForwardPlan, ReferenceBackend, build_plan, run_layer
from ..initialization import Network
from ..layout import Layout
from .attention import Blocks, KeyedAttention, in_blocks, is_flash_possible, with_indices, without_padding
from .cpu import kernel_plan
from .kernels.functions import Kernels
from .products import JOINED, in_autocast_dtype, is_supported, product, with_classes


@dataclass(frozen=True)
class Facts:
    """What the choice depends on."""

    recurrent: bool = False
    weights: bool = False  # whether attention weights are returned or masked
    static: bool = False  # whether no shape may depend on the mask
    keyed: bool = False  # whether dropout masks come from a key: training on a CPU
    kernels: bool = False  # whether there are kernels for this model, in bfloat16 and with gradients
    compiled: bool = False  # whether there is a compiled layer for passes with (or without) gradients
    flash: bool = False  # whether the flash kernel takes this model's heads
    unpadded: bool = False  # whether sequences may be computed one after the other, and that is cheaper


METHODS: tuple[tuple[str, Callable[[Facts], bool]], ...] = (
    ("recurrent", lambda f: f.recurrent),
    ("weights", lambda f: f.weights),
    ("rectangle", lambda f: f.static),
    ("kernels", lambda f: f.keyed and f.kernels and not f.compiled),
    ("flash", lambda f: f.flash and not f.keyed),
    ("keyed", lambda f: f.keyed),
    ("sequences", lambda f: f.unpadded and not f.compiled),
    ("torch", lambda f: True),
)
# Scores that take as long to compute as one more call of torch's attention on a CPU. Measured with all-MiniLM-L6-v2 on
# an EPYC with AVX-512 (docs/log.md); other processors and models may have another break-even.
CALL_COST = 96 * 96
COMPILED = ("flash", "keyed", "torch")  # the methods that use a compiled layer
GRAPHS = 32  # of one compiled layer; local attention over lengths from 16 to 512 needs more than torch's default of 8


def choose(facts: Facts) -> str:
    """The name of the method."""
    return next(name for name, holds in METHODS if holds(facts))


class Backend:
    """Chooses for one encoder, and has what was made for it."""

    requested = False  # see ReferenceBackend

    def __init__(self) -> None:
        self.kernels: Kernels | None = None  # for training in bfloat16 on a CPU (use_kernels)
        self.compiled: Any = None  # `run_layer`, compiled (compile_layers)
        self.compiled_for_gradients = True  # whether it is used where gradients are on, or where they are off

    def __getstate__(self) -> dict[str, Any]:
        """Without the compiled layer, which cannot be pickled."""
        return {**vars(self), "compiled": None}

    def facts(self, encoder: Encoder, layout: Layout, options: ForwardOptions) -> Facts:
        """The facts of one pass over a batch."""
        config, gradients = encoder.config, torch.is_grad_enabled()
        recurrent = config.layer_type != "attention"
        products = in_autocast_dtype(encoder.embeddings.word.weight[:0])
        fits_kernels = encoder.embeddings.word.weight.dtype is torch.float32 and products.dtype is torch.bfloat16
        flash = is_flash_possible(products, config.hidden_size // config.num_attention_heads)
        return Facts(
            recurrent=recurrent,
            weights=options.attentions or options.head_mask is not None,
            static=layout.static,
            keyed=encoder.training and options.dropout is not None,
            kernels=self.kernels is not None and gradients and fits_kernels and not torch.compiler.is_compiling(),
            compiled=self.compiled is not None and gradients == self.compiled_for_gradients,
            flash=flash and not recurrent and config.direction != "right",
            unpadded=not (gradients or encoder.training or recurrent) and is_unpadded_cheaper(encoder, layout),
        )

    def make_plan(self, encoder: Encoder, layout: Layout, options: ForwardOptions, device: torch.device) -> ForwardPlan:
        """How to compute a batch."""
        config, facts = encoder.config, self.facts(encoder, layout, options)
        method = choose(facts)
        if method == "kernels":
            assert self.kernels is not None
            return kernel_plan(encoder, layout, options, self.kernels)
        compiled = facts.compiled and method in COMPILED
        if compiled or method == "flash":
            layout = with_indices(layout, device, in_sequence=method == "flash")
        blocks = None
        if method not in ("weights", "rectangle") and not (facts.keyed and config.attention_probs_dropout_prob):
            blocks = Blocks.of(config, layout, device)
        kind = Attention if method == "weights" else KeyedAttention if facts.keyed else TorchAttention
        scopes = global_and_local(kind, config, layout, device, local_mask=blocks is None)
        if method in ("flash", "sequences"):
            unpadded = without_padding(scopes[0], causal=config.direction == "left", flash=method == "flash")
            scopes = unpadded, unpadded if scopes[1] is scopes[0] else scopes[1]
        if blocks is not None:
            scopes = scopes[0], in_blocks(scopes[1], blocks)
        plan = build_plan(method, encoder, layout, scopes, options)
        return replace(plan, run_layer=self.compiled) if compiled else plan

    def product(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """As `ReferenceBackend.product`, which is slower on a CPU."""
        return product(x, weight, bias) if is_supported(x) else ReferenceBackend().product(x, weight, bias)


def is_unpadded_cheaper(encoder: Encoder, layout: Layout) -> bool:
    """Whether the sequences of a packed batch on a CPU are computed sooner one after the other."""
    on_cpu = encoder.embeddings.word.weight.device.type == "cpu"
    if not on_cpu or layout.index is None or layout.mask is None or encoder.config.direction == "right":
        return False
    lengths = layout.mask.sum(1).tolist()
    return sum(length * length + CALL_COST for length in lengths) < len(lengths) * layout.L**2


def accelerated(model: Network) -> Network:
    """The model with the faster methods of this folder: same parameters, same numbers up to rounding."""
    return _with_backends(with_classes(model, JOINED), Backend)


def reference(model: Network) -> Network:
    """The same parameters in modules of bert.py alone, computed by `ReferenceBackend`: the inverse of `accelerated`."""
    separate = {joined: separate for separate, joined in JOINED.items()}
    return _with_backends(with_classes(model, separate), lambda: ReferenceBackend(requested=True))


def _with_backends(model: Network, make: Callable[[], Any]) -> Network:
    for encoder in encoders_in(model):
        encoder.backend = make()
    return model


@torch.enable_grad()
def training_method(model: nn.Module, dtype: torch.dtype, keyed: bool) -> str:
    """The name of the method by which the layers of a model are trained, with matrix products in `dtype`.

    keyed: whether dropout masks come from a key.
    """
    encoder, layout = encoders_in(model)[0], Layout(1, 1, None, None, None)
    if not isinstance(backend := encoder.backend, Backend):
        return "reference"
    with torch.autocast(encoder.embeddings.word.weight.device.type, dtype, enabled=dtype is not torch.float32):
        facts = replace(backend.facts(encoder, layout, ForwardOptions()), keyed=keyed, unpadded=False)
    method = choose(facts)
    return f"{method}, compiled" if facts.compiled and method in COMPILED else method


# ---- torch.compile


def compile_layers(model: nn.Module, gradients: bool = True) -> None:
    """Compile the layer once for all layers (torch.compile), which fuses the operations between matrix products.

    gradients: whether the compiled layer is used where gradients are on (the updates of training) or where they are off
    (a teacher); elsewhere, and so in evaluation, the layer runs as it is written. torch compiles a graph for each new
    kind of input and gives up silently after a few for one function, so each encoder gets a function of its own.
    """
    import torch._dynamo  # seconds

    torch._dynamo.config.optimize_ddp = False  # it would cut the layer where a bucket of DDP's gradients ends
    torch._dynamo.config.skip_nnmodule_hook_guards = False  # else a graph without hooks serves a layer that has some
    torch._dynamo.config.recompile_limit = GRAPHS
    for encoder in encoders_in(model):
        if encoder.config.layer_type == "attention":
            own = FunctionType(run_layer.__code__.replace(), run_layer.__globals__, run_layer.__name__)
            encoder.backend.compiled, encoder.backend.compiled_for_gradients = torch.compile(own), gradients
