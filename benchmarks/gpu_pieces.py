"""A finished run in pieces that travel: its model in bfloat16 and its records, cut at a number of bytes.

For machines that give back small files only. The pieces are one tar archive, cut: `piece-01-of-07` and so on, beside
`pieces.json` with the size and the checksum of each. `join` puts them together and unpacks a model folder. Nothing is
run from here.
"""

import io
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from bertworks.checkpoint.folder import find_model
from bertworks.checkpoint.weights import WEIGHTS, read_weights
from bertworks.files import checksum, read_json, write_json
from bertworks.typed import check_fields

INDEX = "pieces.json"
LIMIT = 15 << 20  # bytes of a piece, below the 16 MiB that a transfer may allow
RECORDS = ("results.json", "log.jsonl", "recipe.toml")  # of the run, beside its model
FORM = {"pieces": [{"name": str, "bytes": int, "checksum": str}]}


def write_pieces(run: Path, out: Path, limit: int = LIMIT, wanted: range | None = None) -> dict[str, Any]:
    """Write a run's model and records into `out`; returns what pieces.json has.

    wanted: the numbers of the pieces to write, from 1; None: all. pieces.json names all of them in any case. Equal runs
    give equal bytes, so pieces that were written at several times fit together.
    """
    archive = _archive(run)
    parts = [archive[start : start + limit] for start in range(0, len(archive), limit)]
    out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for number, part in enumerate(parts, 1):
            path = Path(work) / f"piece-{number:02}-of-{len(parts):02}"
            path.write_bytes(part)
            found.append({"name": path.name, "bytes": len(part), "checksum": checksum(path)})
            if wanted is None or number in wanted:
                shutil.move(path, out / path.name)
    index = {"pieces": found}
    write_json(out / INDEX, index)
    return index


def _archive(run: Path) -> bytes:
    """The tar archive: the model folder with weights in bfloat16, and the run's records. Clocks are left out."""
    model, target = find_model(run), io.BytesIO()
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()}
    contents = {WEIGHTS: safetensors.torch.save(weights, metadata={"format": "pt"})}
    contents |= {path.name: path.read_bytes() for path in sorted(model.iterdir()) if path.name != WEIGHTS}
    contents |= {name: (run / name).read_bytes() for name in RECORDS if (run / name).is_file()}
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def join(pieces: Path, out: Path) -> None:
    """Make a model folder of the pieces. Ends with one line if a piece is missing or damaged, or `out` exists."""
    if out.exists():
        raise SystemExit(f"found {out}; expected a path where there is nothing yet; give another --out")
    if not (pieces / INDEX).is_file():
        raise SystemExit(f"found no {INDEX} in {pieces}; expected it beside the pieces; copy it there")
    index = read_json(pieces / INDEX)
    check_fields(index, FORM, str(pieces / INDEX), "copy it again")
    with tempfile.TemporaryFile() as whole:
        for piece in index["pieces"]:
            path = pieces / piece["name"]
            if not path.is_file() or checksum(path) != piece["checksum"]:
                what = "other bytes" if path.is_file() else "no such file"
                raise SystemExit(f"{path}: found {what}; expected the checksum in {INDEX}; copy the piece again")
            whole.write(path.read_bytes())
        whole.seek(0)
        out.mkdir(parents=True)
        with tarfile.open(fileobj=whole) as archive:
            for entry in archive:
                data = archive.extractfile(entry)
                assert data is not None
                (out / Path(entry.name).name).write_bytes(data.read())
