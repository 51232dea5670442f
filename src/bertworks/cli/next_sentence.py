"""`bertworks next-sentence`: the probability that one text follows another."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import InputError
from .arguments import Positional, comma_separated, parse, refuse_beside, to_write

if TYPE_CHECKING:
    from ..inference.predictor import Predictor


@dataclass(frozen=True)
class Arguments:
    """Print the probability that text B follows text A.

    The next-sentence head of pre-training answers; fine-tuned folders have none.

    Example:
        bertworks next-sentence runs/base "He opened the door." "The room was dark."
        bertworks next-sentence runs/base --data pairs.csv --text question,answer

    """

    model: Positional[Path]  # model folder or run folder with a next-sentence head (or: --model MODEL)
    a: Positional[str] = ""  # first text
    b: Positional[str] = ""  # second text
    data: Path | None = (
        None  # table of pairs, instead of A and B: .csv, .tsv, .jsonl, .parquet or .xlsx; each row gives a result
    )
    text: str = "a,b"  # the two text columns of the table, separated by a comma
    # file to write: JSON lines, or a table if it ends in .csv, .tsv or .xlsx; none or -: standard output
    out: Path | None = None


def next_sentence(argv: list[str]) -> None:
    """Print the probability, or write that of every row of a table."""
    arguments = parse(Arguments, argv, "next-sentence", "--model")
    columns = comma_separated(arguments.text)
    texts = [text for text in (arguments.a, arguments.b) if text]
    if len(texts) != (0 if arguments.data else 2):
        raise InputError("give two texts, or --data with a table of pairs")
    if arguments.data and len(columns) != 2:
        raise InputError(f"--text {arguments.text!r}; expected two columns, separated by a comma")
    if not arguments.data:
        refuse_beside("two texts", {"--out": arguments.out})
    from ..inference.predictor import Predictor
    from ..inference.result_tables import check_file

    out = to_write(arguments.out)
    check_file(out, [arguments.data], [arguments.model])
    predictor = Predictor(arguments.model)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    if arguments.data:
        _write(predictor, str(arguments.data), (columns[0], columns[1]), out)
    else:
        found = predictor.next_sentence(arguments.a, arguments.b)
        cut = f"; {found['cut']:,} tokens did not fit and were cut" if found["cut"] else ""
        print(f"{found['score']:.4f}  B {'follows' if found['follows'] else 'does not follow'} A{cut}")


def _write(predictor: "Predictor", data: str, columns: tuple[str, str], out: Path | None) -> None:
    from ..inference.files import next_sentence_file

    counts, cut = next_sentence_file(predictor, data, columns, out), predictor.truncated
    lost = f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to {predictor.max_length}"
    empty = f", {counts.empty:,} of them with an empty text and not predicted" if counts.empty else ""
    written = f": {out}" if out else ""
    print(f"{counts.inputs:,} pairs{lost if cut['examples'] else ''}{empty}{written}", file=sys.stderr)
