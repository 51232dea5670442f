"""Export a model folder: the graph, what other software needs beside it, the certificate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from ...checkpoint.folder import load_model, load_tokenizer, parts_in
from ...checkpoint.locate import CERTIFICATE, CONFIG, find_model, is_export, new_folder, refuse_export
from ...checkpoint.pooling import Pooling, cross_encoder_settings, read_pooling, write_pooling
from ...files import InputError, read_json_object, write_json, write_text
from ...inference.evaluation import Evaluation
from ...inference.exported import FORMAT
from ...inference.predictor import Predictor
from ...model.heads import Model
from ...tasks.base import Task
from .card import export_card
from .certificate import PACKAGES, file_sums, limit_of, write_certificate, write_reference
from .graph import MODEL, QUANTIZED, Exportable, require, write_int8, write_onnx
from .samples import Sample, shipped_texts

ExportPrecision = Literal["float32", "int8"]
Labelled = tuple[Task, Sequence[Any]]


def export(
    source: Path | str,
    out: Path | str,
    precision: ExportPrecision = "float32",
    dev: Labelled | None = None,
) -> dict[str, Any]:
    """Write the exported folder of a model or run folder; returns its certificate.

    An earlier export at `out` is replaced. precision: number type of matrix products. dev: a task and labelled rows, on
    which source and export are scored. Raises InputError if the source cannot be exported, a package is missing, `out`
    holds anything else, or a float32 export differs by more than rounding.
    """
    if precision not in get_args(ExportPrecision):
        raise InputError(f"precision = {precision!r}; expected float32 or int8")
    source = find_model(source)
    folder, pooling = read_pooling(source)
    refuse_export(folder)
    require(*PACKAGES)
    predictor = Predictor(source, device="cpu")
    model = load_model(folder)
    with new_folder(out, replaces=is_export) as staging:
        staging.mkdir(parents=True)
        write_json(staging / CONFIG, read_json_object(folder / CONFIG) | cross_encoder_settings(folder))
        load_tokenizer(folder).save(staging, model_max_length=predictor.max_length)
        if pooling is not None:
            write_pooling(staging, pooling, predictor.model.encoder.width)
        graph = _write_graph(model, pooling or Pooling(), staging, precision)
        certificate = {"format": FORMAT, "graph": graph, "export": {"files": file_sums(staging)}}
        write_json(staging / CERTIFICATE, certificate)
        expected, facts = _compare(predictor, staging, precision, dev)
        write_reference(staging, expected)
        write_text(staging / "README.md", export_card(predictor, graph, facts))
        return write_certificate(staging, graph, folder, facts)


def _write_graph(model: Model, pooling: Pooling, staging: Path, precision: str) -> dict[str, Any]:
    """Write the graph; returns what reading the export needs to know of it."""
    module = Exportable(model, pooling).eval()
    path = staging / "onnx" / MODEL
    write_onnx(module, path)
    if precision == "int8":
        write_int8(path, path.with_name(QUANTIZED))
        path.unlink()
        path = path.with_name(QUANTIZED)
    heads = (model.heads[name] for name in ("classifier", "tagger") if name in model.heads)
    return {
        "to": "onnx",
        "precision": precision,
        "parts": sorted(parts_in(model)),
        "labels": next((int(head.out_features) for head in heads), 0),  # type: ignore[arg-type]
        "outputs": dict.fromkeys(module.outputs, f"onnx/{path.name}"),
    }


def _compare(
    predictor: Predictor, staging: Path, precision: str, dev: Labelled | None
) -> tuple[Tensor, dict[str, Any]]:
    """The source's scores of the shipped texts; the differences of source and export, and metrics on labelled rows."""
    exported, texts = Predictor(staging), shipped_texts()
    expected, sample = Sample.of(predictor, texts).scores(), Sample.of(exported, texts)
    difference = sample.difference(expected, sample.scores())
    limit = limit_of(difference, precision)
    facts: dict[str, Any] = {"difference": {**difference, "limit": limit, "texts": len(texts)}}
    if dev is not None:
        task, rows = dev
        before, after = (Evaluation.prepare(one.loaded, task, rows).run().metrics for one in (predictor, exported))
        facts["scores"] = {"task": task.name, "rows": len(rows), "before": before, "after": after}
    return expected, facts
