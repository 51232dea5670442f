"""`bertworks explain`: one's own sentence through a model, as an HTML page."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..files import to_json, write_text
from .arguments import Positional, parse


@dataclass(frozen=True)
class Arguments:
    """Write a page that shows what the model computes on a text or a pair.

    The page needs no network. It shows embeddings, attention and predictions.

    Example:
        bertworks explain runs/base "The cat sat." "It slept." --out page.html

    """

    model: Positional[Path]  # model folder or run folder (or: --model MODEL)
    text: Positional[str]  # text to explain; with question answering the question
    pair: Positional[str | None] = None  # second text of a sentence pair; with question answering the context
    out: Path = field(kw_only=True)  # .html file to write, or .json for the numbers alone
    max_length: int | None = None  # tokens to explain, the rest is cut; none: 48, or the model's limit if it is less
    top_k: int = 5  # number of predictions to show for each hidden token


def explain(argv: list[str]) -> None:
    """Write the page."""
    arguments = parse(Arguments, argv, "explain", "--model")
    from ..apps.probing.explanation import explain as compute
    from ..apps.probing.explanation_page import explain_page
    from ..apps.probing.pictures import check_out
    from ..inference.predictor import Predictor

    out = arguments.out
    check_out(out, (".html", ".json"), folders=[arguments.model])
    predictor = Predictor(arguments.model)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    data = compute(predictor, arguments.text, arguments.pair, arguments.max_length, arguments.top_k)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, explain_page(data) if out.suffix.lower() == ".html" else to_json(data) + "\n")
    if data["cut"]:
        print(f"{data['cut']:,} tokens did not fit and were cut; --max-length raises the limit", file=sys.stderr)
    print(f"written: {out}", file=sys.stderr)
