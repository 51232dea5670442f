"""Engines that inference.py compares: each is a function from texts to vectors of length 1."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import common
from bertworks.apps.export.exportable import ExportableModel
from bertworks.apps.export.folder import export
from bertworks.checkpoint.folder import load_model
from bertworks.checkpoint.pooling import read_pooling
from bertworks.inference.exported import STATES
from bertworks.inference.predictor import Predictor

OURS = ("packed, float32", "packed, bfloat16")
THEIRS = (
    "sentence-transformers, float32",
    "sentence-transformers, bfloat16",
    "onnxruntime, float32",
    "onnxruntime, int8",
    "openvino, float32",
    "openvino, bfloat16",
)
EXPORTED = ("export, float32", "export, int8")  # folders of bertworks.export, opened by Predictor
SIDES, EXACT = OURS + EXPORTED + THEIRS, OURS[0]
BATCHES = (1, 4, 8, 16, 32)  # sizes that engines without batches of their own choose from
PASSES = 2  # over the texts in each size, in turns
Vectors = NDArray[np.float32]
Embed = Callable[[list[str]], Vectors]


class Batched:
    """An engine in batches of the size of BATCHES that is fastest for the first texts it gets."""

    def __init__(self, run: Callable[[list[str], int], Vectors]):
        self.run, self.batch = run, 0

    def __call__(self, texts: list[str]) -> Vectors:
        if not self.batch:
            found = [(self.seconds(texts, size), size) for _ in range(PASSES) for size in BATCHES]
            self.batch = min(found)[1]
        return self.run(texts, self.batch)

    def seconds(self, texts: list[str], size: int) -> float:
        """How long the texts take in batches of a size."""
        start = time.perf_counter()
        self.run(texts, size)
        return time.perf_counter() - start


def ours(folder: Path, precision: Any) -> Embed:
    """bertworks in one precision."""
    predictor = Predictor(folder, device="cpu", precision=precision)
    return lambda texts: predictor.embed(texts, "mean", normalize=True)


def sentence_transformers(folder: Path, precision: str) -> Embed:
    from sentence_transformers import SentenceTransformer

    kind = getattr(torch, precision)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": kind})
    return Batched(
        lambda texts, size: np.asarray(model.encode(texts, batch_size=size, normalize_embeddings=True), np.float32)
    )


def onnxruntime(folder: Path, graph: Path) -> Embed:
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(str(graph), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return sorted_by_length(folder, lambda arrays: session.run([STATES], {name: arrays[name] for name in names})[0])


def openvino(folder: Path, graph: Path, precision: str) -> Embed:
    import openvino as vino

    hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision]}
    hints |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    network = vino.Core().compile_model(str(graph), "CPU", hints)
    names = [port.get_any_name() for port in network.inputs]
    return sorted_by_length(folder, lambda arrays: network({name: arrays[name] for name in names})[STATES])


def limit_of(folder: Path) -> int:
    """The most tokens that all engines read of a text."""
    pooling = read_pooling(folder)[1]
    return (pooling and pooling.max_length) or 512


def sorted_by_length(folder: Path, run: Callable[[dict[str, NDArray[np.int64]]], Vectors]) -> Embed:
    """Tokenizing and mean pooling around a function from a batch's arrays to (B, L, D)."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    limit = limit_of(folder)

    def embed(texts: list[str], size: int) -> Vectors:
        def vectors(rows: list[int]) -> Vectors:
            batch = [texts[row] for row in rows]
            arrays = dict(tokenizer(batch, padding=True, truncation=True, max_length=limit, return_tensors="np"))
            mask = arrays["attention_mask"][:, :, None].astype(np.float32)
            means: Vectors = (run(arrays) * mask).sum(1) / mask.sum(1)
            return means / np.linalg.norm(means, axis=1, keepdims=True)

        return np.stack(common.by_length(vectors, [len(text) for text in texts], size))

    return Batched(embed)


def write_exports(folder: Path, work: Path, names: Sequence[str]) -> None:
    """What the named sides open in `work`: graphs of the encoder, and exported folders."""
    for name in names:
        if name in EXPORTED:
            precision: Any = name.split(", ")[1]
            export(folder, work / f"export-{precision}", precision)
    if any(name.startswith(("onnx", "openvino")) for name in names):
        write_graphs(folder, work, "onnxruntime, int8" in names)


def write_graphs(folder: Path, work: Path, int8: bool) -> None:
    """The ONNX graph of the encoder, and one with int8 matrices."""
    model = ExportableModel(load_model(folder), [STATES])
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in range(3))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = tuple({0: torch.export.Dim("B"), 1: torch.export.Dim("L", max=model.model.config.max_length)} for _ in names)
    torch.onnx.export(
        model,
        example,
        work / "model.onnx",
        input_names=names,
        output_names=[STATES],
        dynamic_shapes=axes,
        dynamo=True,
        verbose=False,
    )
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(work / "model.onnx", work / "int8.onnx")


def build(side: str, folder: Path, work: Path) -> Embed:
    """The function from texts to vectors of one side."""
    kind, precision = side.split(", ")
    if kind == "onnxruntime":
        return onnxruntime(folder, work / ("int8.onnx" if precision == "int8" else "model.onnx"))
    if kind == "export":
        predictor = Predictor(work / f"export-{precision}", device="cpu")
        return lambda texts: predictor.embed(texts, "mean", normalize=True)
    if kind == "openvino":
        return openvino(folder, work / "model.onnx", precision)
    return sentence_transformers(folder, precision) if kind == "sentence-transformers" else ours(folder, precision)
