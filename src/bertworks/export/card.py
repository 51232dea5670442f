"""README.md of an exported folder: what it is, what it costs in exactness, and how to run it."""

from typing import Any

from ..inference.exported import SENTENCE
from ..inference.predictor import Predictor

_CALLS = {  # of a head
    "classifier": 'classify(["a fine film"])',
    "tagger": 'tag("Maria lives in Vienna.")',
    "span": 'answer("Who lives in Vienna?", "Maria lives in Vienna.")',
    "choice": 'choose("She opened the", ["door.", "sky."])',
    "mlm": 'fill_mask("The capital of France is {mask}.")',
}
_TASKS = {"classifier": "text-classification", "tagger": "token-classification", "mlm": "fill-mask"}


def export_card(predictor: Predictor, graph: dict[str, Any], facts: dict[str, Any], settings: dict[str, Any]) -> str:
    """The card as Markdown, from the certificate's facts and the folder's config.json."""
    head = predictor.model.supervised_head or ("mlm" if "mlm" in predictor.model.heads else "")
    what = "ONNX graph" if graph["to"] == "onnx" else "package of compiled code (AOTInductor)"
    call = _CALLS.get(head, 'embed(["one text", "another"])').format(mask=predictor.tokenizer.roles["mask"])
    lines = ["---", "library_name: bertworks", "tags: [bertworks, export]", "---", ""]
    lines += [f"# {what}, {graph['precision']}", ""]
    lines += [
        "`bertworks export` made this folder from a model folder; `certificate.json` names the files of both.",
        "",
    ]
    lines += [f"Outputs: {', '.join(f'`{name}`' for name in graph['outputs'])}.", *_exactness(facts), ""]
    lines += ["## Use", "", *_code("python", "import bertworks", "", f'bertworks.Predictor("this folder").{call}')]
    if graph["to"] == "torch":
        lines += [
            f"It runs on {graph['capability']} only. It holds machine code: load no package of unknown origin.",
            "",
        ]
    else:
        lines += _elsewhere(predictor, graph, head, settings)
    return "\n".join([*lines, "Check it with `bertworks export --verify FOLDER`.", ""])


def _exactness(facts: dict[str, Any]) -> list[str]:
    """What the certificate measured, in sentences."""
    one = facts["difference"]
    lines = [
        "",
        f"On {one['texts']} English and Korean texts its scores differ from the source's by at most "
        f"{one['largest']:.2g} (mean {one['mean']:.2g}, largest score {one['largest_score']:.3g}).",
    ]
    if one["equal_answers"] is not None:
        lines.append(f"Equal answers: {one['equal_answers']:.1%} of {one['answers']:,}.")
    if "scores" in facts:
        scores = facts["scores"]
        lines += ["", f"| {scores['rows']:,} rows of {scores['task']} | source | export |", "|---|---:|---:|"]
        lines += [f"| {name} | {value:.4f} | {scores['after'][name]:.4f} |" for name, value in scores["before"].items()]
    return lines


def _elsewhere(predictor: Predictor, graph: dict[str, Any], head: str, settings: dict[str, Any]) -> list[str]:
    """How other software runs an ONNX graph."""
    file = next(iter(graph["outputs"].values()))
    names = ", ".join(f'"{name}": ...' for name in _inputs(predictor))
    lines = ["ONNX Runtime (int64 arrays; batch and length vary):", ""]
    lines += _code("python", "import onnxruntime", "", f'session = onnxruntime.InferenceSession("{file}")')[:-2]
    lines += [f"session.run(None, {{{names}}})", "```", ""]
    if settings.get("model_type") == "bertworks":
        return [*lines, "Its `config.json` has a model type that transformers and transformers.js do not know.", ""]
    if SENTENCE in graph["outputs"]:
        named = "" if file.endswith("/model.onnx") else f', model_kwargs={{"file_name": "{file}"}}'
        lines += ["sentence-transformers with optimum-onnx:", ""]
        made = f'SentenceTransformer("this folder", backend="onnx"{named}).encode(["one text"])'
        lines += _code("python", "from sentence_transformers import SentenceTransformer", "", made)
    task = _TASKS.get(head, "question-answering" if head == "span" else "feature-extraction" if not head else "")
    if task:
        dtype = "q8" if graph["precision"] == "int8" else "fp32"
        lines += ["transformers.js:", ""]
        made = f'const run = await pipeline("{task}", "this folder", {{ dtype: "{dtype}" }});'
        lines += _code("js", 'import { pipeline } from "@huggingface/transformers";', made)
    return lines


def _inputs(predictor: Predictor) -> tuple[str, ...]:
    from ..inference.exported import INPUTS

    return INPUTS if predictor.model.config.type_vocab_size > 1 else INPUTS[:2]


def _code(language: str, *lines: str) -> list[str]:
    return [f"```{language}", *lines, "```", ""]
