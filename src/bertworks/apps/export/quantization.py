"""An ONNX file in int8: matrices are stored and multiplied as 8-bit integers, all else stays float32.

Dynamic: each batch measures the range of its own activations. Static: the ranges are fixed by texts given for it, which
is faster and, on texts unlike those, less exact.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .graph import quiet

MODEL = "model_quantized.onnx"
Feed = Mapping[str, NDArray[np.int64]]  # one batch, by the names of the inputs
_PRODUCTS = ["MatMul", "Gemm", "Gather"]  # matrices, and tables of embeddings


def quantize(source: Path, target: Path, batches: Iterable[Feed] | None) -> None:
    """Write `target`, the int8 form of the float32 file `source`. `batches`: of texts to calibrate with; None: dynamic.

    Weights have one scale for each output. Attention's products of two activations stay float32.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, quiet(""):
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        common: dict[str, Any] = {
            "per_channel": True,
            "weight_type": QuantType.QInt8,
            "op_types_to_quantize": _PRODUCTS,
        }
        options: dict[str, Any] = {"MatMulConstBOnly": True, "DefaultTensorType": 1}
        if batches is None:
            quantize_dynamic(prepared, target, extra_options=options, **common)
        else:
            quantize_static(
                str(prepared),
                str(target),
                _Batches(batches),
                quant_format=QuantFormat.QDQ,
                nodes_to_exclude=_lookups_of_tied_tables(prepared),
                activation_type=QuantType.QUInt8,
                extra_options=options,
                **common,
            )


def _lookups_of_tied_tables(file: Path) -> list[str]:
    """Embedding look-ups whose table is also the matrix of an output layer. They stay float32.

    Static int8 has one scale for each row of that matrix, which ONNX Runtime does not accept for a look-up.
    """
    import onnx

    nodes = onnx.load(file, load_external_data=False).graph.node
    matrices = {name for node in nodes if node.op_type in ("MatMul", "Gemm") for name in node.input}
    return [node.name for node in nodes if node.op_type == "Gather" and node.input[0] in matrices]


class _Batches:
    """What onnxruntime asks for batches: one a call, None at the end."""

    def __init__(self, batches: Iterable[Feed]):
        self._left = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.int64]] | None:
        batch = next(self._left, None)
        return None if batch is None else dict(batch)
