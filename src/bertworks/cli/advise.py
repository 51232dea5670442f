"""`bertworks advise`: which engine to use on this machine."""

from dataclasses import dataclass, field
from pathlib import Path

from ..apps.export.config import AdviceConfig
from .arguments import DevRows, Flat, Positional, dev_rows, parse


@dataclass(frozen=True)
class Arguments:
    """Measure which engine is fastest on this machine, and advise one.

    The table has speed, memory, and how much scores differ from float32.

    Example:
        bertworks advise runs/sst2
        bertworks advise runs/sst2 --texts reviews.txt
    """

    model: Positional[Path]  # run folder or model folder (or: --model MODEL)
    config: Flat[AdviceConfig] = field(default_factory=AdviceConfig)
    texts: Path | None = None  # file with texts of your own, a text in each line; none: English and Korean ones of ours
    rows: Flat[DevRows] = field(default_factory=DevRows)
    json: Path | None = None  # JSON file to write all figures to, besides printing them


def advise(argv: list[str]) -> None:
    """Measure, and print a table and the advice."""
    arguments = parse(Arguments, argv, "advise", "--model")
    from ..apps.export.advice import advise as measure
    from ..apps.export.advice import table
    from ..files import write_json
    from ..reporting.outputs import check_output

    rows = dev_rows(arguments.rows, arguments.model, argv)
    check_output(arguments.json, [arguments.texts, *(rows.find()[1] if rows else [])], [arguments.model])
    dev = rows.read() if rows else None
    report = measure(arguments.model, arguments.config, arguments.texts, dev)
    if arguments.json is not None:
        write_json(arguments.json, report)
    table(report).show()
