"""`bertworks export`: a model for other engines, with a certificate of how exact it is."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..files import InputError
from .arguments import DevRows, Flat, Positional, flags_in, names_in, parse, refuse_beside


@dataclass(frozen=True)
class Arguments:
    """Export a model to ONNX, and measure how much its scores differ.

    Use the new folder like a model folder: `bertworks predict NEW reviews.txt`.

    --compare measures instead which engine is fastest on this machine.

    Example:
        bertworks export runs/sst2 --out sst2-onnx
        bertworks export runs/sst2 --precision int8 --out sst2-int8
        bertworks export --verify sst2-onnx
        bertworks export runs/sst2 --compare --texts reviews.txt
    """

    model: Positional[Path | None] = None
    """run folder, model folder or sentence-transformers folder (or: --model MODEL)"""
    out: Path | None = None  # folder to write; it must be new, empty, or an earlier export, which is replaced
    precision: Literal["float32", "int8"] = "float32"  # number type of matrix products
    rows: Flat[DevRows] = field(default_factory=DevRows)
    verify: Path | None = None
    """instead, check the files and scores of an exported folder; exit status 1 if they differ from its certificate"""
    compare: bool = False  # instead of exporting, measure speed and scores of the model with each engine
    texts: Path | None = None  # file with texts, one per line, for --compare; none: built-in English and Korean ones
    seconds: float = 60.0  # time limit of --compare


def export(argv: list[str]) -> None:
    """Export, verify or compare, and print the result."""
    arguments = parse(Arguments, argv, "export")
    if (arguments.model is None) == (arguments.verify is None):
        raise InputError("give one of MODEL, --verify")
    given = flags_in(argv)
    if arguments.verify is not None:
        refuse_beside("--verify", dict.fromkeys(sorted(given - {"--verify"}), True))
        return _verify(arguments.verify)
    if arguments.compare and arguments.model is not None:
        used = {"--compare", "--model", "--texts", "--seconds"}
        refuse_beside("--compare", dict.fromkeys(sorted(given - used), True))
        from ..apps.export.comparison import compare, table

        engines = compare(arguments.model, arguments.texts, arguments.seconds)
        return table(engines).show()
    if "--texts" in given:
        raise InputError("--texts is a setting of --compare; add it, or leave --texts out")
    if arguments.out is None:
        raise InputError("no folder to write; give it with --out DIR")
    from ..apps.export.folder import export as export_folder
    from ..apps.export.samples import SCORES
    from ..checkpoint.locate import is_export
    from ..inference.evaluation import remembered

    assert arguments.model is not None
    rows = arguments.rows
    dev = remembered(rows, arguments.model, names_in(argv)).read() if rows.task or rows.dev else None
    if is_export(arguments.out):
        print(f"replacing the earlier export {arguments.out}", file=sys.stderr)
    certificate = export_folder(arguments.model, arguments.out, arguments.precision, dev)
    print(f"{arguments.out}: {', '.join(sorted({*certificate['graph']['outputs'].values()}))}")
    _print_difference(f"{certificate['difference']['texts']} built-in texts", certificate["difference"])
    if "scores" in certificate:
        scores = certificate["scores"]
        for name, before in scores["before"].items():
            print(f"{name} on {scores['rows']:,} rows: {before:.4f} before, {scores['after'][name]:.4f} after")
    print(SCORES)


def _verify(folder: Path) -> None:
    from ..apps.export.certificate import verify
    from ..apps.export.samples import SCORES

    certificate = verify(folder)
    print(f"{folder}: {certificate['files']} files as certified")
    _print_difference(f"scores, certified to differ by at most {certificate['limit']:.2g}", certificate)
    print(SCORES)


def _print_difference(what: str, result: dict[str, Any]) -> None:
    from ..apps.export.samples import agreement

    _, equal = agreement(result)
    print(f"{what}: largest difference {result['largest']:.2g}, mean {result['mean']:.2g}{equal and f', {equal}'}")
