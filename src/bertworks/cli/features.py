"""`bertworks features`: vectors of texts from chosen layers."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..inference.config import FeatureConfig
from .arguments import Flat, Positional, parse


@dataclass(frozen=True)
class Arguments:
    """Write one vector per token, word or text, with its offsets in the text.

    Example:
        bertworks features runs/base texts.txt --out vectors.safetensors --pool mean
    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    # text file with one text per line; table: .csv, .tsv, .jsonl, .parquet, .xlsx; - for standard input (or: --data
    # DATA)
    data: Positional[str]
    out: Path  # file to write: .safetensors
    config: Flat[FeatureConfig] = field(default_factory=FeatureConfig)
    # text column of a table, or two columns separated by a comma for sentence pairs; empty: the columns used in
    # fine-tuning, or text
    text: str = ""
    encoding: str = "utf-8"  # text encoding of the file: utf-8, cp949, euc-kr, utf-16 or another Python codec
    sheet: str = ""  # sheet of a workbook (.xlsx, .xls, .ods); empty: its only one
    device: Literal["cpu", "cuda"] | None = None  # device to compute on; none: a GPU if available, else the CPU


def features(argv: list[str]) -> None:
    """Write the vectors, and print how many there are."""
    arguments = parse(Arguments, argv, "features")
    from .. import api
    from ..reporting.tables import counted

    given = {name: getattr(arguments, name) for name in ("text", "encoding", "sheet", "out", "device")}
    data = arguments.data if arguments.data == "-" else Path(arguments.data)
    done = api.features(arguments.model, data, **given, **vars(arguments.config))
    long = f", {done.windowed:,} of them through several windows" if done.windowed else ""
    summary = f"{counted(done.texts, 'text')}{long}, {counted(done.vectors, 'vector')} of width {done.width}"
    print(f"{summary}: {arguments.out}", file=sys.stderr)
