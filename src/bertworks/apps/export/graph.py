"""A model as a graph with the names of inputs and outputs that other software expects, for any batch and length.

Folders without a task give vectors; those with a supervised head give its scores alone.

Shapes: B sequences, L positions, C choices, D width, V vocabulary, K labels.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from ...checkpoint.pooling import Pooling
from ...files import InputError
from ...inference.engines import INPUTS
from ...inference.exported import SENTENCE, STATES, outputs_of
from ...model.heads import Model
from .exportable import ExportableModel

MODEL, QUANTIZED = "model.onnx", "model_quantized.onnx"  # as other software names them
_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
_EXAMPLE = (2, 9)  # B, L of the batch that the graph is recorded with; any other works later


class Exportable(nn.Module):
    """`Exportable(model, pooling)(input_ids, attention_mask[, token_type_ids])` returns the outputs in order.

    The graph of a model with one segment type has no token_type_ids, as in other software. Inputs are (B, L); those of
    a multiple choice are (B, C, L), and its scores (B, C).
    """

    def __init__(self, model: Model, pooling: Pooling):
        """Raises InputError if the model has recurrent layers."""
        super().__init__()
        self.outputs = outputs_of(model)  # name: the part of the model that computes it
        self.segments = model.config.type_vocab_size > 1
        self.choices = "choice" in model.heads
        self.model, self.pooling = model, pooling
        self.network = ExportableModel(model, tuple(dict.fromkeys(self.outputs.values())))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return INPUTS if self.segments else INPUTS[:2]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """The tensors of `outputs`, in order."""
        shape = input_ids.shape
        if self.choices:
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            token_type_ids = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        tensors = self.network(input_ids, attention_mask, types)
        out = []
        for name, part in self.outputs.items():
            value = tensors[part].float()
            if name == SENTENCE:
                value = self.pooling.pool(tensors[STATES].float(), attention_mask)
            elif part == "span":
                value = value[..., 0 if name.startswith("start") else 1]
            elif part == "choice":
                value = value.view(shape[0], shape[1])
            out.append(value)
        return tuple(out)

    def example(self) -> tuple[Tensor, ...]:
        """Inputs to record a graph with: one sequence is padded."""
        shape = (2, *_EXAMPLE) if self.choices else _EXAMPLE
        ids = torch.ones(shape, dtype=torch.int64)
        mask = ids.clone()
        mask[..., 0, -2:] = 0
        return (ids, mask, torch.zeros_like(ids))[: len(self.inputs)]

    def axes(self) -> tuple[dict[int, Any], ...]:
        """The names of the axes that vary, for each input."""
        batch = torch.export.Dim("batch_size")
        length = torch.export.Dim("sequence_length", max=self.model.config.max_length)
        axes = {0: batch, 1: torch.export.Dim("num_choices"), 2: length} if self.choices else {0: batch, 1: length}
        return (axes,) * len(self.inputs)

    def recorded(self) -> torch.export.ExportedProgram:
        """The graph by torch.export. Raises InputError if the model cannot be recorded for every batch and length."""
        try:
            with torch.no_grad(), quiet(*_LOGGERS):
                return torch.export.export(self.eval(), self.example(), dynamic_shapes=self.axes())
        except torch._dynamo.exc.UserError as error:
            line = str(error).strip().splitlines()[0]
            raise InputError(f"this model cannot be exported for all batches and lengths ({line})") from None


def write_onnx(module: Exportable, path: Path) -> None:
    """Write an ONNX file in float32. Raises InputError like `recorded`."""
    import onnx

    program = module.recorded()
    with torch.no_grad(), quiet(*_LOGGERS):
        names: dict[str, Any] = {"input_names": list(module.inputs), "output_names": list(module.outputs)}
        exported = torch.onnx.export(program, (), dynamo=True, verbose=False, **names)
    assert exported is not None
    proto = exported.model_proto
    _forget_places(proto)
    _name_axes(proto, module)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, str(path))


def write_int8(source: Path, target: Path) -> None:
    """Write the int8 form of a float32 ONNX file: matrices are 8-bit integers, all else stays float32.

    Weights have one scale for each output, and each batch measures the range of its own activations. Attention's
    products of two activations stay float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder, quiet(""):
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_dynamic(
            prepared,
            target,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],  # matrices, and tables of embeddings
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": 1},
        )


def _forget_places(proto: Any) -> None:
    """Remove what the exporter notes of every node: the source files of this machine."""
    proto.graph.ClearField("metadata_props")
    proto.ClearField("metadata_props")
    for item in (*proto.graph.node, *proto.graph.value_info, *proto.graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    for function in proto.functions:
        for node in function.node:
            node.ClearField("metadata_props")


def _name_axes(proto: Any, module: Exportable) -> None:
    """Give axes that vary the names of those of the inputs, which the exporter may have numbered."""
    names = ("batch_size", "num_choices", "sequence_length") if module.choices else ("batch_size", "sequence_length")
    first = proto.graph.input[0].type.tensor_type.shape.dim
    named = {axis.dim_param: name for axis, name in zip(first, names, strict=True)}
    for value in (*proto.graph.input, *proto.graph.value_info, *proto.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in named:
                axis.dim_param = named[axis.dim_param]


def require(*modules: str) -> None:
    """Raises InputError that names the extra if a package is missing."""
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"the package {missing[0]} is missing; install it: pip install 'bertworks[export]'")


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """No warnings and log lines of these loggers, which are for the authors of the libraries."""
    logs = [logging.getLogger(name) for name in names]
    levels = [log.level for log in logs]
    try:
        for log in logs:
            log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
