"""README.md of an exported folder: what it is, what it costs in exactness, and how to run it."""

from pathlib import Path
from typing import Any

from ...inference.engines import INPUTS
from ...inference.predictor import Predictor
from .samples import agreement

_EXAMPLES = {  # of a head: the call of Predictor, and the same row for the package tokenizers
    "classifier": ('classify(["a fine film"])', '"a fine film"'),
    "tagger": ('tag("Maria lives in Vienna.")', '"Maria lives in Vienna."'),
    "span": (
        'answer("Who lives in Vienna?", "Maria lives in Vienna.")',
        '("Who lives in Vienna?", "Maria lives in Vienna.")',
    ),
    "choice": (
        'choose("She opened the", ["door.", "sky."])',
        '("She opened the", "door."), ("She opened the", "sky.")',
    ),
    "mlm": ('fill_mask("The capital of France is {mask}.")', '"The capital of France is {mask}."'),
    "": ('embed(["one text", "another"])', '"one text", "another"'),
    "pair": ('classify("a fine film", "a good one")', '("a fine film", "a good one")'),
}


def export_card(predictor: Predictor, graph: dict[str, Any], facts: dict[str, Any]) -> str:
    """The card as Markdown (card.md), from the certificate's facts."""
    config, tokenizer = predictor.model.config, predictor.tokenizer
    masks = "mlm" in predictor.model.heads and config.direction == "both"
    head = predictor.model.supervised_head or ("mlm" if masks else "")
    call, row = _EXAMPLES["pair" if predictor.kind == "pair" else head]
    if head == "mlm":
        call, row = (text.format(mask=tokenizer.roles["mask"]) for text in (call, row))
    fields = dict(zip(INPUTS, ("ids", "attention_mask", "type_ids"), strict=True))
    names = INPUTS if config.type_vocab_size > 1 else INPUTS[:2]
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(
        precision=graph["precision"],
        outputs=", ".join(f"`{name}`" for name in graph["outputs"]),
        exactness="\n".join(_exactness(facts)),
        call=call,
        row=row,
        limit=predictor.max_length,
        pad=tokenizer.pad_id,
        inputs=", ".join(f'"{name}": [one.{fields[name]} for one in rows]' for name in names),
        file=next(iter(graph["outputs"].values())),
        value="[value]" if head == "choice" else "value",  # choices are an axis of their own
    )


def _exactness(facts: dict[str, Any]) -> list[str]:
    """What the certificate measured, in sentences."""
    one = facts["difference"]
    lines = [
        f"On {one['texts']} English and Korean texts its scores differ from the source's by at most "
        f"{one['largest']:.2g} (mean {one['mean']:.2g}, largest score {one['largest_score']:.3g}).",
    ]
    if equal := agreement(one)[1]:
        lines.append(f"{equal[0].upper()}{equal[1:]}.")
    if "scores" in facts:
        scores = facts["scores"]
        lines += ["", f"| {scores['rows']:,} rows of {scores['task']} | source | export |", "|---|---:|---:|"]
        lines += [f"| {name} | {value:.4f} | {scores['after'][name]:.4f} |" for name, value in scores["before"].items()]
    return lines
