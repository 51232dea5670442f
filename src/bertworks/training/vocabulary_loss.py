"""The cross entropy over the vocabulary (paper, 3.1, task 1), a chunk of predictions at a time.

`linear_cross_entropy(OutputLayer(hidden, weight, bias), labels).loss` is

    scores = F.linear(hidden, weight, bias)  # (M, V)
    loss = F.cross_entropy(scores, labels, ignore_index=-100, reduction="sum")

The rest of this file saves memory and time: unused slots are left out, and the gradient of each chunk's scores (softmax
minus one-hot) is computed together with its loss, while the probabilities are in memory.

Shapes: M slots for predictions (unused ones have the label -100), m of them that are used (and some more), c of a
chunk, D width (E where embeddings are narrower), V vocabulary.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED
from ..model.forward import ReferenceBackend
from ..model.heads import MaskedLMHead, Model

if TYPE_CHECKING:
    from ..model.acceleration import Kernels

ROWS = 1024  # predictions of a chunk: 60 MB of bfloat16 scores with a vocabulary of 30,522
SCORES_OF_GPU = 160_000_000  # scores (c V) of a chunk on a GPU, where small products take less time than their launch
ALIGNED = 32  # rows of scores begin at multiples of so many numbers, which products write faster
PADDING_LOGIT = -1e30  # score of a column that belongs to no word, at any temperature
CERTAIN_LOGIT = 1e30  # score of the label of an unused slot: its probability is then 1, its loss and gradient 0
FILL = 64  # the number of used slots is rounded up to a multiple of this, for the reason given in model/layout.py


def _is_on_gpu(x: Tensor) -> bool:
    return x.device.type != "cpu"


@dataclass(frozen=True)
class Term:
    """One part of a loss, summed over its predictions: the loss and, where they were counted, the correct ones."""

    loss: Tensor
    correct: Tensor | None


def cross_entropy(logits: Tensor, labels: Tensor) -> Term:
    """Summed cross entropy in float32 and number of correct predictions; labels -100 are left out."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return Term(loss, (logits.argmax(-1) == labels).sum().detach())


def used_slots(used: Tensor) -> Tensor:
    """(m,) the slots of a (M,) mask that are used, then a few that are not, so that not every batch has a new shape.

    On a GPU their number would have to be waited for, so objectives compute them on the CPU.
    """
    return torch.argsort(~used, stable=True)[: -(-int(used.sum()) // FILL) * FILL]


class OutputLayer(NamedTuple):
    """A language model's last step: (M, D) inputs, ready for the product with a (V, D) matrix, and a bias (V,)."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor
    product: Callable[[Tensor, Tensor, Tensor], Tensor] = ReferenceBackend().product  # or that of the model's backend

    @classmethod
    def of(cls, model: Model, x: Tensor) -> "OutputLayer":
        """x: (M, D) of the last layer."""
        head = model.heads["mlm"]
        assert isinstance(head, MaskedLMHead)
        return cls(head(x), model.decoder, head.bias, model.encoder.backend.product)

    def at(self, slots: Tensor) -> "OutputLayer":
        """For these inputs alone, in the type of matrix products."""
        hidden, device = self.hidden.index_select(0, slots), self.hidden.device.type
        if torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        return self._replace(hidden=hidden)

    def cast(self) -> "OutputLayer":
        """With weight and bias in the type of the inputs.

        On a GPU also with columns that belong to no word, to a number whose products take a third of the time.
        """
        weight, bias = self.weight.to(self.hidden.dtype), self.bias.to(self.hidden.dtype)
        if more := -len(weight) % ALIGNED if _is_on_gpu(weight) else 0:
            weight, bias = F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=PADDING_LOGIT)
        return self._replace(weight=weight, bias=bias)

    def chunks(self) -> Iterator[slice]:
        """The inputs that are scored at a time."""
        size = max(ROWS, SCORES_OF_GPU // len(self.weight)) if _is_on_gpu(self.hidden) else ROWS
        return (slice(start, start + size) for start in range(0, len(self.hidden), size))

    def scores(self, chunk: slice) -> Tensor:
        """(c, V) of some inputs."""
        return self.product(self.hidden[chunk], self.weight, self.bias)


# of a chunk: the summed loss, its gradient over the scores (c, V), and the sum of this gradient over the chunk, (V,)
LossAndGrad = Callable[[OutputLayer, slice], tuple[Tensor, Tensor, Tensor]]


def linear_cross_entropy(
    layer: OutputLayer, labels: Tensor, slots: Tensor | None = None, kernels: "Kernels | None" = None
) -> Term:
    """`cross_entropy(F.linear(hidden, weight, bias), labels)` without holding all (M, V) scores.

    labels (M,), -100 for unused slots. slots: `used_slots` of the labels, if they are known. kernels: for training in
    bfloat16 on a CPU. Correct predictions are counted only where no gradient is needed (evaluation): the search for the
    largest score costs as much as a matrix product.
    """
    slots = used_slots(labels != IGNORED) if slots is None else slots
    layer, labels = layer.at(slots), labels[slots]
    with torch.autocast(layer.hidden.device.type, enabled=False):  # it would copy probabilities to float32 and back
        if torch.is_grad_enabled():
            usable = kernels if layer.hidden.dtype is torch.bfloat16 else None
            loss_and_grad = _chunk_cross_entropy(labels) if usable is None else _kernel_cross_entropy(labels, usable)
            return Term(ChunkedLoss.apply(*layer, loss_and_grad), None)
        return _without_gradient(layer, labels)


def _without_gradient(layer: OutputLayer, labels: Tensor) -> Term:
    """Loss and correct predictions of the used slots, for evaluation."""
    loss, correct = layer.hidden.new_zeros((), dtype=torch.float32), labels.new_zeros(())
    weight, bias = layer.weight.to(layer.hidden.dtype), layer.bias.to(layer.hidden.dtype)
    for chunk in layer.chunks():
        term = cross_entropy(F.linear(layer.hidden[chunk], weight, bias), labels[chunk])
        loss += term.loss
        correct += term.correct  # type: ignore[operator,arg-type]
    return Term(loss, correct)


class ChunkedLoss(torch.autograd.Function):
    """Loss and gradients of an output layer, a chunk at a time.

    The gradient is that of the sum, so forward makes it while the probabilities are in memory; backward only scales it.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, product, loss_and_grad):  # type: ignore[no-untyped-def]
        ctx.dtypes, V = (weight.dtype, bias.dtype), len(weight)
        layer = OutputLayer(hidden, weight, bias, product).cast()
        loss, d_hidden = hidden.new_zeros((), dtype=torch.float32), torch.empty_like(hidden)
        d_weight = d_bias = None
        for chunk in layer.chunks():
            chunk_loss, d_scores, d_chunk_bias = loss_and_grad(layer, chunk)
            loss += chunk_loss
            torch.mm(d_scores, layer.weight, out=d_hidden[chunk])
            d_chunk_weight = d_scores.T @ hidden[chunk]
            d_weight = d_chunk_weight if d_weight is None else d_weight + d_chunk_weight
            d_bias = d_chunk_bias if d_bias is None else d_bias + d_chunk_bias
        if d_weight is None:  # no prediction in this batch
            d_weight, d_bias = torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)
        ctx.save_for_backward(d_hidden, d_weight[:V], d_bias[:V])  # type: ignore[index]
        return loss

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        grads = ((d_weight, ctx.dtypes[0]), (d_bias, ctx.dtypes[1]))
        return d_hidden * scale, *(grad.to(dtype, copy=True).mul_(scale) for grad, dtype in grads), None, None


def _chunk_cross_entropy(labels: Tensor) -> LossAndGrad:
    """Cross entropy with labels (m,); those of -100 count for nothing."""

    def loss_and_grad(layer: OutputLayer, chunk: slice) -> tuple[Tensor, Tensor, Tensor]:
        scores, y = layer.scores(chunk), labels[chunk]
        used = y != IGNORED
        index = torch.arange(len(y), device=y.device), y.clamp(min=0)  # the score of each label
        scores[index] = scores[index].masked_fill(~used, CERTAIN_LOGIT)
        grad = torch.softmax(scores, -1)  # the probabilities, which become the gradient in place
        loss = -(_log_probabilities(scores, grad, index) * used).sum()
        grad[index] -= 1  # softmax minus one-hot
        return loss, grad, grad.sum(0)

    return loss_and_grad


def _log_probabilities(scores: Tensor, probabilities: Tensor, index: tuple[Tensor, Tensor]) -> Tensor:
    """(c,) float32 logarithms of `probabilities`, the softmax of `scores`, at the label of each prediction."""
    selected = probabilities[index].float()
    # on a GPU the comparison would have to be waited for; on a CPU the searches below cost as much as the softmax
    if not _is_on_gpu(scores) and bool((selected >= torch.finfo(torch.float32).tiny).all()):
        return selected.log()
    # from the largest probability, which is never below 1 / V and so never underflows
    return scores[index].float() - scores.amax(-1).float() + probabilities.amax(-1).float().log()


def _kernel_cross_entropy(labels: Tensor, kernels: "Kernels") -> LossAndGrad:
    """`_chunk_cross_entropy` in one pass over the scores."""

    def loss_and_grad(layer: OutputLayer, chunk: slice) -> tuple[Tensor, Tensor, Tensor]:
        hidden, V = layer.hidden[chunk], len(layer.weight)
        scores = hidden.new_empty(len(hidden), -(-V // ALIGNED) * ALIGNED)[:, :V]
        torch.mm(hidden, layer.weight.T, out=scores)  # without the bias, which the kernel adds
        losses, grad_sum = kernels.cross_entropy(scores, layer.bias.float(), labels[chunk])
        return losses.sum(), scores, grad_sum  # the kernel has overwritten the scores with their gradient

    return loss_and_grad
