"""Export a model folder: the graph, what other software needs beside it, the certificate."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checkpoint.folder import load_model, load_tokenizer, parts_in
from ...checkpoint.locate import CERTIFICATE, CONFIG, find_model, is_export, new_folder, refuse_export
from ...checkpoint.pooling import Pooling, cross_encoder_settings, read_pooling, write_pooling
from ...files import checksum, read_json_object, write_json, write_text
from ...inference.evaluation import Evaluation
from ...inference.exported import FORMAT
from ...inference.predictor import Predictor
from ...model.heads import Model
from ...tasks.base import Task
from .card import export_card
from .certificate import limit_of, write_certificate, write_reference
from .config import ExportConfig
from .graph import MODEL, Exportable, require, write_onnx
from .samples import Sample, shipped_texts, texts_in

_CALIBRATION_BATCH = 8  # texts; all batches have one length, because histograms are taken over them
Labelled = tuple[Task, Sequence[Any]]


def export(
    source: Path | str,
    out: Path | str,
    config: ExportConfig | None = None,
    texts: Path | None = None,
    dev: Labelled | None = None,
) -> dict[str, Any]:
    """Write the exported folder of a model or run folder; returns its certificate.

    An earlier export at `out` is replaced. texts: file with texts of your own on which scores are compared too. dev: a
    task and labelled rows, on which both are scored. Raises InputError if the source cannot be exported, a package is
    missing, `out` holds anything else, or a float32 export differs by more than rounding.
    """
    config, source = config or ExportConfig(), find_model(source)
    folder, pooling = read_pooling(source)
    refuse_export(folder)
    require("onnx", "onnxscript", "onnxruntime")
    own = None if texts is None else texts_in(texts)
    predictor = Predictor(source, device="cpu")
    model = load_model(folder)
    with new_folder(out, replaces=is_export) as staging:
        graph = _graph_of(model, config)
        _write_beside(folder, staging, pooling, predictor)
        graph["outputs"] = _write_graph(model, pooling or Pooling(), staging, config, predictor)
        write_json(staging / CERTIFICATE, {"format": FORMAT, "graph": graph})
        facts = _compare(predictor, staging, config, own, dev)
        if texts is not None:
            facts["own_texts"] |= {"file": texts.name, "checksum": checksum(texts)}
        write_text(staging / "README.md", export_card(predictor, graph, facts))
        write_certificate(staging, graph, folder, facts)
        certificate = read_json_object(staging / CERTIFICATE)
    return certificate


def _graph_of(model: Model, config: ExportConfig) -> dict[str, Any]:
    """What reading the export needs to know of its graph."""
    heads = (model.heads[name] for name in ("classifier", "tagger") if name in model.heads)
    return {
        "to": "onnx",
        "precision": config.precision,
        "parts": sorted(parts_in(model)),
        "labels": next((int(head.out_features) for head in heads), 0),  # type: ignore[arg-type]
    }


def _write_beside(folder: Path, staging: Path, pooling: Pooling | None, predictor: Predictor) -> None:
    """config.json, the tokenizer, and the files of sentence-transformers if the source has them."""
    staging.mkdir(parents=True)
    write_json(staging / CONFIG, read_json_object(folder / CONFIG) | cross_encoder_settings(folder))
    load_tokenizer(folder).save(staging, model_max_length=predictor.max_length)
    if pooling is not None:
        write_pooling(staging, pooling, predictor.model.encoder.width)


def _write_graph(
    model: Model, pooling: Pooling, staging: Path, config: ExportConfig, predictor: Predictor
) -> dict[str, str]:
    """Write the graph; returns the file of each output."""
    module = Exportable(model, pooling).eval()
    path = staging / "onnx" / MODEL
    write_onnx(module, path)
    if config.precision == "int8":
        from .quantization import MODEL as QUANTIZED
        from .quantization import quantize

        batches = None if config.calibrate is None else _calibration(module, predictor, texts_in(config.calibrate))
        quantize(path, path.with_name(QUANTIZED), batches)
        path.unlink()
        path = path.with_name(QUANTIZED)
    return dict.fromkeys(module.outputs, f"onnx/{path.name}")


def _calibration(module: Exportable, predictor: Predictor, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Batches of texts, by the names of the graph's inputs."""
    inputs = Sample.of(predictor, texts).prepared.inputs
    everything = np.arange(len(inputs))
    length = inputs.padded_length(everything)
    for rows in np.split(everything, everything[_CALIBRATION_BATCH::_CALIBRATION_BATCH]):
        batch = inputs.batch(rows, length)
        feed = {name: batch[name].to(torch.int64) for name in module.inputs}
        yield {name: (value[None] if module.choices else value).numpy() for name, value in feed.items()}


def _compare(
    predictor: Predictor, staging: Path, config: ExportConfig, own: Sequence[str] | None, dev: Labelled | None
) -> dict[str, Any]:
    """The differences of source and export, and their scores on labelled rows."""
    exported = Predictor(staging)
    expected, difference = _difference(predictor, exported, shipped_texts())
    write_reference(staging, expected)
    facts: dict[str, Any] = {"difference": {**difference, "limit": limit_of(difference, config.precision)}}
    facts["difference"]["texts"] = len(shipped_texts())
    if config.calibrate is not None:
        facts["calibration"] = {"texts": len(texts_in(config.calibrate)), "checksum": checksum(config.calibrate)}
    if own is not None:
        facts["own_texts"] = {"texts": len(own), **_difference(predictor, exported, own)[1]}
    if dev is not None:
        task, rows = dev
        before, after = (Evaluation.prepare(one.loaded, task, rows).run().metrics for one in (predictor, exported))
        facts["scores"] = {"task": task.name, "rows": len(rows), "before": before, "after": after}
    return facts


def _difference(source: Predictor, export: Predictor, texts: Sequence[str]) -> tuple[Tensor, dict[str, Any]]:
    """The source's scores of the texts, and how much those of the export differ."""
    expected, sample = Sample.of(source, texts).scores(), Sample.of(export, texts)
    return expected, sample.difference(expected, sample.scores())
