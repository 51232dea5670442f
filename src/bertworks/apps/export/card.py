"""README.md of an exported folder: what it is, what it costs in exactness, and how to run it."""

from typing import Any

from ...inference.exported import INPUTS
from ...inference.predictor import Predictor
from .samples import agreement

_CALLS = {  # of a head
    "classifier": 'classify(["a fine film"])',
    "tagger": 'tag("Maria lives in Vienna.")',
    "span": 'answer("Who lives in Vienna?", "Maria lives in Vienna.")',
    "choice": 'choose("She opened the", ["door.", "sky."])',
    "mlm": 'fill_mask("The capital of France is {mask}.")',
}
_ONNX = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({limit})
tokenizer.enable_padding(pad_id={pad})
rows = tokenizer.encode_batch([{texts}])
inputs = {{{inputs}}}
session = onnxruntime.InferenceSession("{file}")
print(session.run(None, {{name: np.array({value}, np.int64) for name, value in inputs.items()}}))"""


def export_card(predictor: Predictor, graph: dict[str, Any], facts: dict[str, Any]) -> str:
    """The card as Markdown, from the certificate's facts."""
    masks = "mlm" in predictor.model.heads and predictor.model.config.direction == "both"
    head = predictor.model.supervised_head or ("mlm" if masks else "")
    call = _CALLS.get(head, 'embed(["one text", "another"])').format(mask=predictor.tokenizer.roles["mask"])
    lines = ["---", "library_name: bertworks", "tags: [bertworks, export]", "---", ""]
    lines += [f"# ONNX graph, {graph['precision']}", ""]
    lines += [
        "`bertworks export` made this folder from a model folder; `certificate.json` names the files of both.",
        "",
    ]
    lines += [f"Outputs: {', '.join(f'`{name}`' for name in graph['outputs'])}.", *_exactness(facts), ""]
    lines += ["## Use", "", "Run these examples in this folder.", ""]
    lines += _code("python", "import bertworks", "", f'print(bertworks.Predictor(".").{call})')
    lines += _onnx_runtime(predictor, graph, head)
    return "\n".join([*lines, "Check it with `bertworks export --verify FOLDER`.", ""])


def _exactness(facts: dict[str, Any]) -> list[str]:
    """What the certificate measured, in sentences."""
    one = facts["difference"]
    lines = [
        "",
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


def _onnx_runtime(predictor: Predictor, graph: dict[str, Any], head: str) -> list[str]:
    """How ONNX Runtime alone runs the graph."""
    file = next(iter(graph["outputs"].values()))
    value = "[value]" if head == "choice" else "value"  # choices are an axis of their own
    lines = ["ONNX Runtime (int64 arrays; batch and length vary):", ""]
    parts = {"file": file, "texts": _texts(predictor, head), "inputs": _inputs(predictor), "value": value}
    parts |= {"limit": predictor.max_length, "pad": predictor.tokenizer.pad_id}
    lines += _code("python", *_ONNX.format(**parts).split("\n"))
    return lines


def _texts(predictor: Predictor, head: str) -> str:
    """The inputs of one row, as the tokenizer of the example takes them."""
    texts = {
        "span": '("Who lives in Vienna?", "Maria lives in Vienna.")',
        "choice": '("She opened the", "door."), ("She opened the", "sky.")',
        "mlm": f'"The capital of France is {predictor.tokenizer.roles["mask"]}."',
    }
    pair = '("a fine film", "a good one")' if predictor.kind == "pair" else '"a fine film"'
    return texts.get(head, pair)


def _inputs(predictor: Predictor) -> str:
    """The inputs of the graph, from the encodings of the example."""
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    names = INPUTS if predictor.model.config.type_vocab_size > 1 else INPUTS[:2]
    return ", ".join(f'"{name}": [one.{fields[name]} for one in rows]' for name in names)


def _code(language: str, *lines: str) -> list[str]:
    return [f"```{language}", *lines, "```", ""]
