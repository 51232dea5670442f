"""Exported folders: the names in their graphs, and the engine that runs them. apps/export writes such folders.

    config.json, tokenizer files      as in the folder that was exported; no weights
    onnx/model.onnx                   or onnx/model_quantized.onnx
    certificate.json                  what was exported, from what, and how much the scores differ

Shapes: B sequences, L positions, D width of the encoder, K labels, M masks, V vocabulary.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..batch import Batch
from ..checkpoint.folder import read_config
from ..checkpoint.locate import CERTIFICATE, CONFIG
from ..checkpoint.metadata import labels_of, top_of
from ..checkpoint.names import heads_in
from ..files import InputError, check_version, checksum, read_json_object
from ..model.build import build_model
from ..model.heads import Model
from ..typed import check_fields
from .engines import INPUTS

FORMAT = 1
CARD = "README.md"  # which users may edit
READ = (".json", ".txt", ".model", ".onnx")  # suffixes of files that are read where they exist
STATES, SENTENCE = "last_hidden_state", "sentence_embedding"  # outputs without a head
_OUTPUTS = {  # of a head
    **dict.fromkeys(("mlm", "classifier", "choice", "tagger"), ("logits",)),
    **{"nsp": ("seq_relationship_logits",), "sop": ("sop_logits",), "span": ("start_logits", "end_logits")},
}
_GRAPH = {"to": str, "precision": str, "outputs": {str: str}, "parts": [str], "labels": range(0, 1 << 24)}
_SCHEMA = {"export": {"files": {str: str}}, "graph": _GRAPH}


def outputs_of(model: Model) -> dict[str, str]:
    """The outputs of a graph of this model, each with the part of the model that computes it.

    A model with a supervised head has that head's scores alone; every other one vectors too.
    """
    head = model.supervised_head
    heads = [head] if head else list(model.heads)
    named = {name: part for part in heads for name in _OUTPUTS[part]}
    return named if head else {**named, STATES: STATES, SENTENCE: STATES}


def read_certificate(folder: Path) -> dict[str, Any]:
    """The certificate of an exported folder. Raises InputError if it is damaged, or of another version."""
    file = folder / CERTIFICATE
    certificate = read_json_object(file)
    check_version(certificate.get("format"), range(1, FORMAT + 1), str(file), "export again")
    check_fields(certificate, _SCHEMA, str(file), "export again")
    return certificate


def check_export(folder: Path) -> None:
    """Raises InputError that names the files of an export that are altered, missing, or new and would be read."""
    certified = read_certificate(folder)["export"]["files"]
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    new = {name for name in there if name.endswith(READ) and not name.startswith(".")} - {*certified, CERTIFICATE}
    listed = certified.keys() - {CARD}
    altered = {name for name in listed & there.keys() if checksum(there[name]) != certified[name]}
    problems = {"missing": listed - there.keys(), "altered": altered, "not of this export": new}
    if found := [f"{what}: {', '.join(sorted(names)[:4])}" for what, names in problems.items() if names]:
        expected = f"the {len(certified)} files that {CERTIFICATE} lists, unchanged"
        advice = "export again, or copy the folder again into an empty one"
        raise InputError(f"{folder}: {'; '.join(found)}; expected {expected}; {advice}")


def empty_model(folder: Path) -> Model:
    """The model of an exported folder without its weights: its shape, heads and outputs."""
    config, settings = read_config(folder)
    graph = read_certificate(folder)["graph"]
    where = str(folder / CERTIFICATE)
    labels = len(labels_of(settings, where) or ()) or graph["labels"]
    with torch.device("meta"):
        try:
            parts, top = graph["parts"], top_of(settings, where)
            return build_model(config, heads_in(parts), labels, pooler="pooler" in parts, top=top).eval()
        except (InputError, ValueError) as error:
            raise InputError(f"{where}: {error}; export again") from None


class Exported:
    """The engine of an exported folder (engines.py). Batches may have any size and length that the model has."""

    def __init__(self, folder: Path, model: Model):
        """model: the folder's `empty_model`. Raises InputError if a file is missing."""
        graph = read_certificate(folder)["graph"]
        self.files: dict[str, str] = graph["outputs"]  # of each output
        for name in sorted({*self.files.values()}):
            if ".." in Path(name).parts or Path(name).is_absolute() or not (folder / name).is_file():
                raise InputError(f"{folder}: no file {name}, which {CERTIFICATE} names; copy it or export again")
        self.folder, self.name, self.precision = folder, graph["to"], graph["precision"]
        self.segments = model.config.type_vocab_size > 1
        self._open: dict[tuple[str, int], OnnxFile] = {}

    def states(self, batch: Batch) -> Tensor:
        """(B, L, D) of the last layer. Raises InputError if the export has none."""
        return self._run(batch, [STATES])[0]

    def scores(self, batch: Batch, head: str) -> Tensor:
        """Scores of a head before any softmax: (B, K), of a token head (B, L, K)."""
        if head == "choice":  # its graph takes choices as an axis of their own
            batch = {name: batch[name][:, None] for name in INPUTS}
        outputs = self._run(batch, _OUTPUTS[head])
        return torch.stack(outputs, -1) if head == "span" else outputs[0]

    def masked(self, batch: Batch, positions: Tensor) -> Tensor:
        """(M, V) scores of the masked-LM head at (M,) positions of the flattened batch; all are computed."""
        return self._run(batch, ["logits"])[0].flatten(0, 1)[positions]  # of (B, L, V)

    def check(self, names: Sequence[str]) -> None:
        """Raises InputError if the export lacks one of these outputs."""
        if missing := [name for name in names if name not in self.files]:
            raise InputError(f"{self.folder} was exported with {', '.join(self.files)}; it has no {missing[0]}")

    def _run(self, batch: Batch, names: Sequence[str]) -> list[Tensor]:
        self.check(names)
        inputs = [batch[name].to("cpu", torch.int64).contiguous() for name in INPUTS[: 3 if self.segments else 2]]
        return self._runner(self.files[names[0]]).run(inputs, names)

    def _runner(self, file: str) -> "OnnxFile":
        """What runs a file, loaded at the first use in each process: a forked one lacks the threads of ONNX Runtime."""
        key = file, os.getpid()
        if key not in self._open:
            self._open[key] = OnnxFile(self.folder / file)
        return self._open[key]


class OnnxFile:
    """An ONNX file in ONNX Runtime, on the CPU, with as many threads as torch has."""

    def __init__(self, path: Path):
        if importlib.util.find_spec("onnxruntime") is None:
            raise InputError(f"{path} needs the package onnxruntime; install it: pip install 'bertworks[export]'")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # no slower, and faster beside others
        try:
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"], enable_fallback=0
            )  # its fallback prints, and there is nothing but the CPU to fall back to
        except Exception as error:  # onnxruntime has a class of its own for each failure
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{path}: not readable by ONNX Runtime ({line}); export again") from None
        self.path, self.how = path, onnxruntime.RunOptions()
        self.how.only_execute_path_to_fetches = True
        self.inputs = [value.name for value in self.session.get_inputs()]

    def run(self, inputs: list[Tensor], names: Any) -> list[Tensor]:
        """The outputs of these names."""
        feed = {name: value.numpy() for name, value in zip(INPUTS, inputs, strict=False)}
        try:
            return [torch.from_numpy(value) for value in self.session.run(list(names), feed, self.how)]
        except Exception as error:  # inputs or sizes that the graph does not have
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{self.path}: ONNX Runtime cannot run it ({line}); is {CONFIG} of another export? Export "
                             "again") from None  # fmt: skip
