"""`bertworks predict`, `predict fill-mask` and `predict next-sentence`: predictions for a file or a text."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..files import InputError
from .arguments import Positional, comma_separated, parse, required

if TYPE_CHECKING:
    from ..inference.engines import Precision
    from ..inference.predictor import Predictor


@dataclass(frozen=True)
class Arguments:
    """Predict a label, entities, an answer or a choice for every row of a file.

    The task of the model decides which. The output is one JSON object per row.

    Example:
        bertworks predict runs/sst2 reviews.txt --out labels.jsonl
        bertworks predict runs/squad --string "Who wrote it?" "Jane wrote it."

    A pre-trained encoder: `bertworks predict fill-mask`, `predict next-sentence`.
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    # text file with one text per line (empty lines are skipped); table: .csv, .tsv, .jsonl, .json, .parquet, .xlsx;
    # sentences with one word per line: .conll; SQuAD questions: .json; - for standard input (or: --data DATA)
    data: Positional[str] = ""
    # texts of a single input, instead of a file: one text, a sentence pair, question and context, or text and choices
    string: tuple[str, ...] = ()
    # text column of a table, or two columns separated by a comma; empty: the columns used in fine-tuning, or text
    # (question answering: question,context)
    text: str = ""
    choices: str = ""  # columns with the choices of a multiple-choice table, comma-separated; empty: as in fine-tuning
    encoding: str = "utf-8"  # text encoding of the file: utf-8, cp949, euc-kr, utf-16 or another Python codec
    sheet: str = ""  # sheet of a workbook (.xlsx, .xls, .ods); empty: its only one
    # file to write: a table if its name ends in .csv or .tsv, else JSON lines; none or -: standard output
    out: Path | None = None
    echo: bool = False  # add the input text (or a list of texts) to each result as `input`
    excel: bool = False  # write a byte order mark at the start of a .csv or .tsv, so that Excel reads it as UTF-8
    all_scores: bool = False  # classification: add the probabilities of all labels
    n_best: int = 1  # question answering: number of answers per question
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """number type of weights and products; auto: bfloat16 where the processor multiplies it faster than float32"""


def predict(argv: list[str]) -> None:
    """Write the predictions, and print how many inputs were predicted and truncated, and the file written."""
    arguments = parse(Arguments, argv, "predict")
    if bool(arguments.data) == bool(arguments.string):
        raise InputError("give a file, - for standard input, or --string with the texts of one input")
    from ..inference.file_inputs import Columns
    from ..inference.files import Counts, check_file, predict_data, write_results
    from ..pretrained.data import from_hub
    from ..reporting.tables import counted
    from ..tasks.table import TableForm

    out = None if arguments.out == Path("-") else arguments.out
    if arguments.excel and (out is None or out.suffix not in (".csv", ".tsv")):
        raise InputError(f"--excel: found --out {out or '-'}; expected a name that ends in .csv or .tsv")
    check_file(out, [arguments.data], [arguments.model])
    predictor = _loaded(arguments.model, arguments.precision)
    form = TableForm(arguments.encoding, arguments.sheet)
    columns = Columns(comma_separated(arguments.text), comma_separated(arguments.choices), form)
    data = [arguments.string] if arguments.string else from_hub(arguments.data)
    counts, how = Counts(), (arguments.all_scores, arguments.n_best, arguments.echo)
    if out and out.is_file():
        print(f"replacing the earlier {out}", file=sys.stderr)
    write_results(predict_data(predictor, data, columns, counts, *how), out, arguments.excel)
    if arguments.string and not out:
        return
    cut = predictor.truncated
    lost = f", {cut['examples']:,} of them cut by {cut['tokens']:,} tokens to {predictor.max_length}"
    empty = f", {counts.empty:,} of them empty and not predicted" if counts.empty else ""
    written = f": {out}" if out else ""
    print(f"{counted(counts.inputs, 'input')}{lost if cut['examples'] else ''}{empty}{written}", file=sys.stderr)


@dataclass(frozen=True)
class FillMaskArguments:
    """Print the most probable tokens for each [MASK] of one text or several.

    Example:
        bertworks predict fill-mask runs/base "The capital of France is [MASK]."
    """

    model: Positional[Path]  # model folder or run folder with a masked-LM head (or: --model MODEL)
    texts: Annotated[tuple[str, ...], Positional, required("TEXT")]  # texts, each with one or more [MASK]
    top_k: int = 5  # number of tokens to print for each [MASK]


def fill_mask(argv: list[str]) -> None:
    """Print the predictions."""
    arguments = parse(FillMaskArguments, argv, "predict fill-mask")
    predictor = _loaded(arguments.model)
    for text, masks in zip(arguments.texts, predictor.fill_mask(arguments.texts, arguments.top_k), strict=True):
        if len(arguments.texts) > 1:
            print(text)
        for number, candidates in enumerate(masks, 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")


@dataclass(frozen=True)
class NextSentenceArguments:
    """Print the probability that text B follows text A.

    This needs the next-sentence head of pre-training; fine-tuned folders have none.

    Example:
        bertworks predict next-sentence runs/base "He opened it." "It was dark."
    """

    model: Positional[Path]  # model folder or run folder with a next-sentence head (or: --model MODEL)
    a: Positional[str]  # first text
    b: Positional[str]  # second text


def next_sentence(argv: list[str]) -> None:
    """Print the probability."""
    arguments = parse(NextSentenceArguments, argv, "predict next-sentence")
    result = _loaded(arguments.model).next_sentence(arguments.a, arguments.b)
    cut = f"; {result['cut']:,} tokens did not fit and were cut" if result["cut"] else ""
    print(f"{result['score']:.4f}  B {'follows' if result['follows'] else 'does not follow'} A{cut}")


def _loaded(model: Path, precision: "Precision" = "float32") -> "Predictor":
    """The model to predict with; what there is to know about it is printed on stderr."""
    from ..inference.predictor import Predictor

    predictor = Predictor(model, precision=precision)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    return predictor
