"""The certificate of an export: from which files it was made, where, and how much its scores differ from the source's.

The source's scores on the texts that come with bertworks are kept beside it, so that `verify` needs neither the source
nor its texts.
"""

import importlib.metadata
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from ...checkpoint.locate import CERTIFICATE, find_model, is_export, run_name
from ...files import InputError, checksum, write_json
from ...inference.exported import FORMAT, check_export, read_certificate
from ...inference.predictor import Predictor
from ...training.machine import facts
from ...typed import check_fields
from .samples import Sample, shipped_texts

REFERENCE = "reference.safetensors"  # the source's scores
EXACT = 1e-4  # what float32 scores may differ by, of values up to 1; of larger ones in proportion
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_NUMBERS = {"largest": float, "mean": float, "largest_score": float, "answers": int, "equal_answers": (float, None)}
_SCHEMA = {"source": {"files": {str: str}}, "difference": {**_NUMBERS, "limit": float}}


def file_sums(folder: Path) -> dict[str, str]:
    """The checksum of every file of a folder but its certificate, by name inside it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): checksum(path) for path in files}
    return {name: value for name, value in sums.items() if name != CERTIFICATE}


def write_reference(folder: Path, scores: Tensor) -> None:
    """Keep the source's scores on the shipped texts."""
    safetensors.torch.save_file({"scores": scores.contiguous()}, folder / REFERENCE)


def limit_of(difference: dict[str, Any], precision: str) -> float:
    """How much scores may differ when the export is verified, on this machine or another.

    Raises InputError if a float32 export differs by more than rounding.
    """
    largest: float = difference["largest"]
    exact = EXACT * max(1.0, difference["largest_score"])
    if precision != "float32":
        return max(1.5 * largest, exact)
    if not largest <= exact:
        raise InputError(
            f"the export's scores differ by up to {largest:.3g} from the source's; expected at most {exact:.3g} in "
            "float32; nothing was written: report this as a defect"
        )
    return exact


def write_certificate(folder: Path, graph: dict[str, Any], source: Path, more: dict[str, Any]) -> dict[str, Any]:
    """Write the certificate of a folder that is otherwise complete, and return it. `more`: differences, scores."""
    certificate = {
        "format": FORMAT,
        "graph": graph,
        "source": {"name": run_name(source), "files": file_sums(source)},
        "export": {"files": file_sums(folder)},
        **more,
        "machine": facts() | {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    write_json(folder / CERTIFICATE, certificate)
    return certificate


def verify(folder: Path | str) -> dict[str, Any]:
    """Check an exported folder: its files' checksums, then its scores on the shipped texts. Returns the differences.

    Raises InputError if a file is altered, missing or new, or scores differ more than certified.
    """
    folder = find_model(folder)
    if not is_export(folder):
        raise InputError(f"{folder}: no {CERTIFICATE}; expected a folder that `bertworks export` wrote")
    certified = read_certificate(folder)
    check_fields(certified, _SCHEMA, str(folder / CERTIFICATE), "export again")
    check_export(folder)
    sample = Sample.of(Predictor(folder), shipped_texts())
    difference = sample.difference(_reference(folder), sample.scores())
    limit = certified["difference"]["limit"]
    if not difference["largest"] <= limit:
        raise InputError(
            f"{folder}: scores differ from the source's by up to {difference['largest']:.3g}; certified are at most "
            f"{limit:.3g}; export again on this machine"
        )
    return {**difference, "limit": limit, "files": len(certified["export"]["files"])}


def _reference(folder: Path) -> Tensor:
    try:
        return safetensors.torch.load_file(folder / REFERENCE)["scores"]
    except (safetensors.SafetensorError, KeyError, OSError) as error:
        raise InputError(f"{folder / REFERENCE}: not readable ({error}); export again") from None
