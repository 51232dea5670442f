"""The functions of the compiled kernels, on tensors.

Shapes: T rows of a packed batch, R of them that a layer returns, D hidden width, B sequences, L positions, N heads,
H head size, M predictions, V vocabulary.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...dropout import BLOCK, DropoutKey, rescale, threshold
from ...layout import Layout
from ..products import joined, product
from .signatures import Function


class Dropout(ctypes.Structure):
    """Which random bytes decide what is dropped, as in kernels.h."""

    _fields_: ClassVar = [
        ("seed", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("blocks", ctypes.c_int64),
        ("dropped", ctypes.c_int64),
        ("scale", ctypes.c_float),
    ]

    @classmethod
    def of(cls, key: DropoutKey, site: int, rate: float, elements: int) -> "Dropout":
        """Dropout with the mask of a site with this number of elements per row; one byte decides an element."""
        if not rate:
            return cls(scale=1.0)
        blocks = -(-elements // BLOCK)
        return cls(key.seed, key.stream(site), key.row * blocks, blocks, threshold(rate)[0], rescale(rate))


WIDTH = 16  # numbers that are computed at a time; widths are multiples of it
ROWS = 8  # rows that linear layers compute at a time
WIDE = 32  # widths of linear layers are multiples of it, except on processors with AMX


class AttentionShape(ctypes.Structure):
    """What a model's attention is like, as in attention.c."""

    _fields_: ClassVar = [
        ("N", ctypes.c_int64),
        ("H", ctypes.c_int64),
        ("side", ctypes.c_int64),
        ("factor", ctypes.c_float),
        ("rotations", ctypes.c_void_p),
    ]
    tensor: Tensor | None

    @classmethod
    def of(cls, heads: int, width: int, direction: str, rotations: Tensor | None) -> "AttentionShape":
        """rotations (2, L, H / 2): of rotary positions."""
        H = width // heads
        address = None if rotations is None else rotations.data_ptr()
        shape = cls(heads, H, {"left": -1, "both": 0, "right": 1}[direction], H**-0.5, address)
        shape.tensor = rotations  # its memory must live as long as the address
        return shape


@dataclass(frozen=True)
class Rows:
    """Where the rows of a packed batch are in its rectangle."""

    B: int
    L: int
    row_at: Tensor  # (B L,) row of each flat position, -1 for padding
    positions: Tensor | None  # (T,) flat position of each row; None: row t is position t

    @classmethod
    def of(cls, layout: Layout) -> "Rows":
        """The rows of this layout."""
        B, L, index = layout.B, layout.L, layout.index
        row_at = torch.arange(B * L)
        if index is not None:
            row_at = torch.full_like(row_at, -1).index_copy_(0, index, row_at[: len(index)])
        if layout.mask is not None:
            row_at = torch.where(layout.mask.flatten(), row_at, -1)
        return cls(B, L, row_at, None if index is None else index.contiguous())

    def __len__(self) -> int:
        return self.B * self.L if self.positions is None else self.positions.shape[0]  # sooner than len of a tensor


class Kernels:
    """The functions of the library. They run on as many threads as torch, and take contiguous tensors on the CPU."""

    def __init__(self, functions: Mapping[str, Function], name: str, load: Callable[[], "Kernels | None"]):
        self.name = name  # changes with what rounding depends on: source, compiler, processor
        self._functions = functions
        self._load = load  # gives another process the same
        # on AMX oneDNN is faster; a compiler that does not know AMX compiles them there too
        self.has_linear = "linear" in functions and not torch.cpu._is_amx_tile_supported()

    def __reduce__(self) -> Any:
        return self._load, ()  # a copy is the same: `load` returns what this process has loaded

    def multiplies(self, *widths: int) -> bool:
        """Whether linear layers of these widths are computed here, not by oneDNN."""
        return self.has_linear and all(width % WIDE == 0 for width in widths)

    def add_norm(
        self, x: Tensor, update: Tensor, rows: Rows, dropout: Dropout, gain: Tensor, bias: Tensor, eps: float
    ) -> tuple[Any, ...]:
        """LayerNorm of x + dropout(update), of (T, D) float32 and bfloat16.

        Returns the output in float32 and bfloat16, and what the grads need: the sum, mean and scale of its rows, and
        the bits of what dropout retains.
        """
        T, D = update.shape
        out, out16, total = torch.empty(T, D), torch.empty(T, D, dtype=torch.bfloat16), torch.empty(T, D)
        retained = torch.empty(T, D // WIDTH, dtype=torch.int16) if dropout.dropped else None
        outputs = (total, out, out16, mean := torch.empty(T), scale := torch.empty(T), retained)
        given = (x, update, rows.positions, T, D, rows.L, dropout, gain, bias, eps)
        self._call("add_norm", *given, *outputs)
        return out, out16, total, mean, scale, retained

    def add_norm_backward(
        self, grads: Sequence[Tensor | None], saved: Sequence[Tensor | None], gain: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The grads of x (T, D), update (T, D), gain (D) and bias (D).

        grads: of the output in float32 and bfloat16, at least one of them; saved: sum, mean, scale, bits.
        """
        assert saved[0] is not None
        T, D = saved[0].shape
        grads = [None if one is None else one.contiguous() for one in grads]
        outputs = torch.empty(T, D), torch.empty(T, D, dtype=torch.bfloat16), torch.empty(D), torch.empty(D)
        self._call("add_norm_backward", *grads, *saved, gain, T, D, dropout.scale, *outputs)
        return outputs

    def drop(self, x: Tensor, rows: Rows, dropout: Dropout) -> Tensor:
        """Dropout of x (T, D) float32; of its grad too."""
        out = torch.empty_like(x)
        self._call("drop", x, rows.positions, *x.shape, rows.L, dropout, out)
        return out

    def gelu(self, x: Tensor, tanh: bool) -> Tensor:
        """(T, D) bfloat16, exact or in the tanh form."""
        out = torch.empty_like(x)
        self._call("gelu", x, *x.shape, tanh, out)
        return out

    def gelu_backward(self, x: Tensor, grad: Tensor, tanh: bool) -> Tensor:
        """`grad` (T, D) of the output becomes that of x; returns its sum over rows, (D,) float32."""
        sums = torch.empty(x.shape[1])
        self._call("gelu_backward", x, grad, *x.shape, tanh, sums)
        return sums

    def attention(
        self, parts: Sequence[Tensor], rows: Rows, returned: Rows, shape: AttentionShape, dropout: Dropout
    ) -> list[Tensor | None]:
        """Queries, keys and values to the context (R, D) of the rows that are `returned`.

        parts: all three concatenated, (T, 3 D), if all rows are returned; else queries (R, D), and keys and values
        concatenated, (T, 2 D). No position is returned twice. Returns the context and what the grads need: log-sums
        (B, N, L) and the bits of what dropout retains.
        """
        assert len(parts[0]) == len(returned) and len(parts[-1]) == len(rows), [part.shape for part in parts]
        B, L, N = rows.B, rows.L, shape.N
        context, log_sums = parts[0].new_empty(len(returned), N * shape.H), torch.empty(B, N, L)
        retained = torch.empty(B, N, L, -(-L // 64), dtype=torch.int64) if dropout.dropped else None
        given = (rows.row_at, returned.row_at, B, L, shape, dropout, returned.positions, len(returned))
        self._call("attention", *_queries_and_rest(parts), *given, context, log_sums, retained)
        return [context, log_sums, retained]

    def attention_backward(
        self,
        grad: Tensor,
        parts: Sequence[Tensor],
        saved: Sequence[Tensor | None],
        rows: Rows,
        returned: Rows,
        shape: AttentionShape,
        dropout: Dropout,
    ) -> list[Tensor]:
        """The grads of the parts from that of the context (R, D). saved: log-sums, bits."""
        grads = [torch.empty_like(part) for part in parts]
        d_q, _, d_rest, _ = _queries_and_rest(grads)
        given = (grad.contiguous(), rows.row_at, returned.row_at, rows.B, rows.L, shape, dropout, *saved)
        positions = returned.positions, len(returned), rows.positions, len(rows)
        self._call("attention_backward", *_queries_and_rest(parts), *given, *positions, d_q, d_rest)
        return grads

    def linear(
        self, x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], keep: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Concatenated linear layers, (T, K) to (T, N), and what `grad_input` needs if it is called: `keep`.

        Parameters are float32. What is retained has two bytes per weight.
        """
        if not self.multiplies(*(width for weight in weights for width in weight.shape)):
            weight = joined(weights, x.dtype)
            return product(x, weight, joined(biases, x.dtype)), weight
        plain, transposed = self._pack(weights, keep)
        return self._multiply(x, transposed, joined(biases, torch.float32)), plain

    def grad_input(self, dy: Tensor, weights: Tensor) -> Tensor:
        """The grad of x (T, K) from that of the output (T, N) of `linear`."""
        packed = weights.dim() > 2  # else oneDNN multiplies
        return self._multiply(dy.contiguous(), weights, None) if packed else dy @ weights

    def grad_weights(self, dy: Tensor, x: Tensor, d_biases: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The grads of the weights (N, K) and the biases (N,) of `linear`, float32. d_biases: if they are known."""
        (T, N), K = dy.shape, x.shape[1]
        if not self.multiplies(N, K):
            return (dy.T @ x).float(), dy.sum(0).float() if d_biases is None else d_biases
        d_weights, sums = torch.empty(N, K), torch.empty(N)
        working = x.new_empty(T + WIDE, min(N, K)), torch.empty(K, N) if K > N else None
        outputs = d_weights, sums if d_biases is None else None
        self._call("grad_weights", dy.contiguous(), x, T, N, K, *working, *outputs)
        return d_weights, sums if d_biases is None else d_biases

    def _pack(self, weights: Sequence[Tensor], both: bool) -> tuple[Tensor | None, Tensor]:
        """Weights (N, K), one below the other, if `both`, and their transpose, as right operands of products.

        An operand (depth, columns) is (columns / 16, depth / 2, 16, 2): the numbers of two rows alternate.
        """
        total, K, first = sum(map(len, weights)), weights[0].shape[1], 0
        transposed = torch.empty(total // WIDTH, K // 2, WIDTH, 2, dtype=torch.bfloat16)
        plain = transposed.new_empty(K // WIDTH, total // 2, WIDTH, 2) if both else None
        rounded = transposed.new_empty(torch.get_num_threads(), WIDE, K)
        for weight in weights:
            given = weight.float().contiguous(), weight.shape[0], K, first, total
            self._call("pack_weights", *given, rounded, plain, transposed)
            first += weight.shape[0]
        return plain, transposed

    def _multiply(self, x: Tensor, operand: Tensor, bias: Tensor | None) -> Tensor:
        """x times a right operand, plus bias, if there is one."""
        columns, depth = WIDTH * operand.shape[0], 2 * operand.shape[1]
        assert x.shape[1] == depth, (x.shape, operand.shape)
        out = x.new_empty(x.shape[0], columns)
        self._call("linear", x, operand, bias, x.shape[0], depth, columns, out)
        return out

    def cross_entropy(self, scores: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """`scores` (M, V) become the grads of the summed loss of scores + bias (V,).

        Returns losses (M,) and the sums of the grads over rows (V,). A row whose label is negative has neither loss
        nor grad. The rows of `scores` may be apart; what is between them becomes 0.
        """
        (M, V), stride = scores.shape, scores.stride(0)
        assert scores.dtype is torch.bfloat16 and scores.stride(1) == 1, (scores.dtype, scores.stride())
        if M and int(labels.max()) >= V:
            raise IndexError(f"label {int(labels.max())}; expected at most {V - 1}")
        losses, sums = torch.empty(M), torch.empty(V)
        self._call("cross_entropy", scores.data_ptr(), bias, labels, M, V, stride, losses, sums)
        return losses, sums

    def norm(self, tensors: Sequence[Tensor]) -> Tensor:
        """The norm of float32 tensors together, the same with any number of threads."""
        addresses = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        sizes = (ctypes.c_int64 * len(tensors))(*(tensor.numel() for tensor in tensors))
        out = torch.empty(())
        self._call("norm", addresses, sizes, len(tensors), out)
        return out

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function with as many threads as torch has."""
        self._functions[name](*arguments, torch.get_num_threads())


def _queries_and_rest(parts: Sequence[Tensor]) -> tuple[Any, ...]:
    """Where queries start and how wide their rows are; the same of keys and values. parts: see `Kernels.attention`."""
    first, last = parts[0], parts[-1]
    assert all(part.is_contiguous() and part.dtype == torch.bfloat16 for part in parts), parts
    behind = first.shape[1] // 3 if len(parts) == 1 else 0
    return first.data_ptr(), first.shape[1], last.data_ptr() + behind * last.element_size(), last.shape[1]
