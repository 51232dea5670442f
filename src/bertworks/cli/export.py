"""`bertworks export`: a model for other engines, with a certificate of how exact it is."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..apps.export.config import ExportConfig
from ..files import InputError
from .arguments import DevRows, Flat, Positional, dev_rows, parse, refuse_beside


@dataclass(frozen=True)
class Arguments:
    """Export a model to ONNX, or compile it for this machine.

    A certificate says how much its scores differ.

    Use the new folder like a model folder: `bertworks predict NEW reviews.txt`.

    Example:
        bertworks export runs/sst2 --out sst2-onnx
        bertworks export runs/sst2 --precision int8 --out sst2-int8
        bertworks export --verify sst2-onnx
    """

    model: Positional[Path | None] = None
    """run folder, model folder or sentence-transformers folder (or: --model MODEL)"""
    out: Path | None = None  # folder to write; it must be new, empty, or an earlier export, which is replaced
    config: Flat[ExportConfig] = field(default_factory=ExportConfig)
    # file with texts of your own, a text in each line, on which source and export are compared too; English and Korean
    # built-in texts are always compared
    texts: Path | None = None
    rows: Flat[DevRows] = field(default_factory=DevRows)
    verify: Path | None = None
    """check an exported folder instead: its files, and its scores on our texts; exit status 1 if something differs"""
    trust: Path | None = None
    """instead, note that you trust the machine code in an exported folder, compiled on another machine like this one"""


def export(argv: list[str]) -> None:
    """Export, verify or trust, and print what was found."""
    arguments = parse(Arguments, argv, "export", "--model")
    given = {"MODEL": arguments.model, "--verify": arguments.verify, "--trust": arguments.trust}
    if sum(value is not None for value in given.values()) != 1:
        raise InputError(f"give one of {', '.join(given)}")
    if arguments.model is None:
        refuse_beside("--verify and --trust", {"--out": arguments.out, "--texts": arguments.texts})
        return _check(arguments)
    if arguments.out is None:
        raise InputError("no folder to write; give it with --out DIR")
    from ..apps.export.folder import export as export_folder
    from ..apps.export.samples import SCORES
    from ..checkpoint.locate import is_export

    rows = dev_rows(arguments.rows, arguments.model, argv)
    dev = rows.read() if rows else None
    if is_export(arguments.out):
        print(f"{arguments.out}: an earlier export, which is replaced", file=sys.stderr)
    certificate = export_folder(arguments.model, arguments.out, arguments.config, arguments.texts, dev)
    print(f"{arguments.out}: {', '.join(sorted({*certificate['graph']['outputs'].values()}))}")
    _print_difference(f"{certificate['difference']['texts']} built-in texts", certificate["difference"])
    if "own_texts" in certificate:
        _print_difference(f"{certificate['own_texts']['texts']:,} texts of {arguments.texts}", certificate["own_texts"])
    if "scores" in certificate:
        scores = certificate["scores"]
        for name, before in scores["before"].items():
            print(f"{name} on {scores['rows']:,} rows: {before:.4f} before, {scores['after'][name]:.4f} after")
    print(SCORES)


def _check(arguments: Arguments) -> None:
    if arguments.trust is not None:
        from ..inference.exported import trust

        print(f"trusted: {', '.join(trust(arguments.trust))}")
        return
    from ..apps.export.certificate import verify
    from ..apps.export.samples import SCORES

    assert arguments.verify is not None
    found = verify(arguments.verify)
    print(f"{arguments.verify}: {found['files']} files as certified")
    _print_difference(f"scores, certified to differ by at most {found['limit']:.2g}", found)
    print(SCORES)


def _print_difference(what: str, found: dict[str, Any]) -> None:
    from ..apps.export.samples import agreement

    _, equal = agreement(found)
    print(f"{what}: largest difference {found['largest']:.2g}, mean {found['mean']:.2g}{equal and f', {equal}'}")
