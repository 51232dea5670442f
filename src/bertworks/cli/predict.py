"""`bertworks predict`: a prediction for every line or row of a file."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..files import InputError
from .arguments import Positional, comma_separated, flags_in, parse, refuse_beside, to_write


@dataclass(frozen=True)
class Arguments:
    """Predict a label, entities, an answer or a choice for every row of a file.

    The model's task decides what is predicted. Each row gives a JSON object.

    Example:
        bertworks predict runs/sst2 reviews.txt --out labels.jsonl
        bertworks predict runs/squad --string "Who wrote it?" "Jane wrote it."
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    # text file with a text in each line (empty lines are not predicted); table .csv, .tsv, .jsonl, .json, .parquet or
    # .xlsx; sentences with a word per line .conll; SQuAD questions .json; - for standard input (or: --data DATA)
    data: Positional[str] = ""
    # texts of a single input, instead of a file: one text, a sentence pair, question and context, or text and choices
    string: tuple[str, ...] = ()
    # text column of a table, or two columns separated by a comma; empty: the columns of the table that the model was
    # fine-tuned on, or text (question answering: question,context)
    text: str = ""
    choices: str = ""  # columns with the choices of a multiple-choice table, comma-separated; empty: as in fine-tuning
    encoding: str = "utf-8"  # encoding of the file: utf-8, cp949, euc-kr, utf-16 or another one of Python's
    sheet: str = ""  # sheet of a workbook (.xlsx, .xls, .ods); empty: its only one
    header_row: int = 0  # row of a table with the names of its columns, from 1; 0: the first, in a sheet behind titles
    # file to write: JSON lines, or a table if it ends in .csv, .tsv or .xlsx; none or -: standard output
    out: Path | None = None
    # add the input to each result; of a .csv, .tsv or .xlsx table all its columns. In a table they keep their names,
    # with `input.` in front where a result has the name
    echo: bool = False
    excel: bool = False  # write a .csv or .tsv for Excel, with a byte order mark
    all_scores: bool = False  # classification: add the probabilities of all labels
    n_best: int = 1  # question answering: number of answers for each question
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """number type of weights and products; auto: bfloat16 where the processor multiplies it faster than float32"""
    # how batches are computed. compiled: for this processor, which takes a minute or two and then computes faster; it
    # needs a C++ compiler; auto: packed
    engine: Literal["auto", "packed", "compiled"] = "auto"


def predict(argv: list[str]) -> None:
    """Write the predictions, and print how many inputs were predicted and truncated, and the file written."""
    arguments = parse(Arguments, argv, "predict", "--model", "--data")
    if bool(arguments.data) == bool(arguments.string):
        raise InputError("give a file, - for standard input, or --string with the texts of one input")
    if arguments.string:
        idle = flags_in(argv) & {"--text", "--choices", "--encoding", "--sheet", "--header-row"}
        refuse_beside("--string", dict.fromkeys(sorted(idle), True))
    from ..inference.file_inputs import Columns
    from ..inference.files import predict_file, predict_string
    from ..inference.predictor import Predictor
    from ..inference.result_tables import check_file
    from ..reporting.tables import counted
    from ..tasks.table import TableForm

    out = to_write(arguments.out)
    check_file(out, [arguments.data], [arguments.model], arguments.excel)
    predictor = Predictor(arguments.model, precision=arguments.precision, engine=arguments.engine)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    how = (arguments.all_scores, arguments.n_best, arguments.echo, arguments.excel)
    written = f": {out}" if out else ""
    if arguments.string:
        predict_string(predictor, arguments.string, out, *how)
        if out:
            print(f"1 input{written}", file=sys.stderr)
        return
    form = TableForm(arguments.encoding, arguments.sheet, header_row=arguments.header_row)
    columns = Columns(comma_separated(arguments.text), comma_separated(arguments.choices), form)
    counts = predict_file(predictor, arguments.data, columns, out, *how)
    cut = predictor.truncated
    lost = f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to {predictor.max_length}"
    empty = f", {counts.empty:,} of them empty and not predicted" if counts.empty else ""
    print(f"{counted(counts.inputs, 'input')}{lost if cut['examples'] else ''}{empty}{written}", file=sys.stderr)
