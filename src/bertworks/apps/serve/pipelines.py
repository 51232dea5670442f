"""The tasks of Hugging Face Inference: from a payload to rows of a step, from its results to what clients read.

Names of tasks, parameters and fields are those of huggingface_hub and @huggingface/inference. Parameters that are None
have the default of the model folder. Two things differ from transformers' pipelines, on purpose: entities and tags are
of whole words, as the tagger was trained, and long texts are always read in overlapping windows, so `stride`,
`doc_stride`, `max_seq_len` and `align_to_words` have no effect.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from ...inference.steps import HeadSteps
from ...tasks.calibration import function_of
from ...tasks.tagging import Entity, Unit
from ...tasks.tags import OUTSIDE
from .errors import HTTPError
from .models import ServedModel
from .routes import Body, Count, Direction, FailFastList
from .service import Options, check_size
from .vectors import Embedding, cosines

T = TypeVar("T")
TEMPLATE = 1_000  # characters of a hypothesis template
FILLED = 2_000_000  # characters of a fill-mask answer: each candidate comes with the whole text
TOP_K = 5  # tokens for each mask, unless the request says how many


class VectorParameters(Body):
    """Parameters of feature-extraction, which clients send beside `inputs`."""

    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None
    dimensions: Count | None = None


class Parameters(VectorParameters):
    """Parameters of all tasks; a task looks at its own."""

    top_k: Count | None = None  # classes, tokens or answers to return
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    targets: FailFastList[str] | None = None
    aggregation_strategy: Literal["none", "simple", "first"] | None = None  # scores are of words, so none to average
    ignore_labels: FailFastList[str] | None = None
    handle_impossible_answer: bool | None = None
    max_answer_len: Count | None = None
    max_question_len: Count | None = None
    candidate_labels: str | FailFastList[str] | None = None
    hypothesis_template: str | None = None
    multi_label: bool | None = None


class PipelineRequest(VectorParameters):
    """A payload of any task."""

    inputs: str | dict[str, Any] | FailFastList[str | dict[str, Any]]
    parameters: Parameters | None = None
    model: str | None = None  # where the path names none

    @property
    def all_parameters(self) -> Parameters:
        """The parameters, wherever they are."""
        beside = {name: getattr(self, name) for name in VectorParameters.model_fields}
        given = {name: value for name, value in beside.items() if value is not None}
        return (self.parameters or Parameters()).model_copy(update=given)

    @property
    def each(self) -> list[Any]:
        """The inputs as a list."""
        return self.inputs if isinstance(self.inputs, list) else [self.inputs]

    @property
    def labels(self) -> list[str]:
        """The candidate labels, from a list or a text with commas."""
        given = self.all_parameters.candidate_labels or ""
        return [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]

    def like_inputs(self, results: Sequence[T]) -> Any:
        """A list of results for a list of inputs, else the only one."""
        return list(results) if isinstance(self.inputs, list) else results[0]


@dataclass(frozen=True)
class Call:
    """A payload, translated."""

    step: str  # of models.STEPS
    rows: list[Any]
    options: Options
    shape: Callable[[Sequence[Any]], Any]  # the results of all rows to the response


def options_of(model: ServedModel, body: PipelineRequest, decode: Any, prepare: Any = None) -> Options:
    """The options of a request; its long inputs are cut if it says so."""
    return Options(model.name, body.all_parameters.truncate, prepare, decode)


def texts_of(body: PipelineRequest) -> list[str]:
    """The inputs as texts. Raises HTTPError (422) if one is none."""
    for i, value in enumerate(body.each):
        if not isinstance(value, str):
            raise HTTPError(422, f"inputs[{i}] is an object; expected a text, or a list of texts", param="inputs")
    return body.each


def fields_of(value: Any, names: tuple[str, ...], where: str) -> list[str]:
    """Texts by their names in an object. Raises HTTPError (422) if one is missing."""
    texts = [value.get(name) if isinstance(value, dict) else None for name in names]
    if not all(isinstance(text, str) for text in texts):
        raise HTTPError(422, f"{where}: expected an object with the texts {' and '.join(names)}", param="inputs")
    return texts  # type: ignore[return-value]


# ---- labels


def text_classification(model: ServedModel, body: PipelineRequest) -> Call:
    """Classes by falling score, for each text or pair; a list of them also for a single text, as the clients expect."""
    names, parameters = ("text", "text_pair"), body.all_parameters
    rows = [
        (value, None) if isinstance(value, str) else _pair(value, names, f"inputs[{i}]")
        for i, value in enumerate(body.each)
    ]
    function, loaded = parameters.function_to_apply, model.predictor.loaded
    raw = function not in (None, function_of(loaded.kind, len(loaded.labels)))

    def decode(prepared: Any, scores: Tensor) -> list[Any]:
        each = [zip(*row, strict=True) for row in prepared.best_first(scores, raw)]
        return [listed(names, applied(values, function if raw else None))[: parameters.top_k] for names, values in each]

    return Call("classify", rows, options_of(model, body, decode), list)


def _pair(value: Any, names: tuple[str, ...], where: str) -> tuple[str, str | None]:
    first, *second = fields_of(value, names if isinstance(value, dict) and value.get(names[1]) else names[:1], where)
    return first, (second[0] if second else None)


def applied(scores: Sequence[float], function: str | None) -> list[float]:
    """The scores of all labels after softmax or sigmoid; as they are for "none" or None."""
    values = torch.tensor(scores, dtype=torch.float64)
    if function in ("softmax", "sigmoid"):
        values = values.softmax(0) if function == "softmax" else values.sigmoid()
    results: list[float] = values.tolist()
    return results


def listed(names: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Labels with their scores, in this order."""
    return [{"label": name, "score": score} for name, score in zip(names, scores, strict=True)]


def zero_shot_classification(model: ServedModel, body: PipelineRequest) -> Call:
    """Whether a text entails "This example is LABEL.", for each label: by a model of natural language inference."""
    parameters, texts = body.all_parameters, texts_of(body)
    if model.entailment is None:
        labels = ", ".join(model.predictor.loaded.labels)[:200] or "no labels"
        raise HTTPError(
            424,
            f"the model {model.name!r} has {labels}; zero-shot classification needs entailment and contradiction, so a "
            "model that was fine-tuned on natural language inference (MNLI)",
        )
    entails, denies = model.entailment
    names = body.labels
    template = "This example is {}." if parameters.hypothesis_template is None else parameters.hypothesis_template
    if not names or not all(names):
        raise HTTPError(422, "candidate_labels has none, or an empty one; expected names", param="candidate_labels")
    if template.count("{}") != 1 or len(template) > TEMPLATE:
        message = (
            f"hypothesis_template has {template.count('{}'):,} {{}} and {len(template):,} characters; expected one {{}}"
        )
        most = f"at the label's position, and at most {TEMPLATE:,} characters"
        raise HTTPError(422, f"{message}, {most}", param="parameters")
    hypotheses = [template.replace("{}", name) for name in names]
    rows = [(text, hypothesis) for text in texts for hypothesis in hypotheses]

    def decode(prepared: Any, scores: Tensor) -> Sequence[Any]:
        return scores[:, [denies, entails]].tolist()  # a pair is one sequence

    def shape(results: Sequence[Any]) -> Any:
        logits = torch.tensor(results, dtype=torch.float64).view(len(texts), len(names), 2)
        each = parameters.multi_label or len(names) == 1
        # ordered by logits, because probabilities near 1 are equal by rounding
        ordered, order = (logits.diff()[..., 0] if each else logits[..., 1]).sort(descending=True, stable=True)
        values = ordered.sigmoid() if each else ordered.softmax(-1)
        rows = zip(order.tolist(), values.tolist(), strict=True)
        return body.like_inputs([listed([names[i] for i in order], scores) for order, scores in rows])

    return Call("classify", rows, options_of(model, body, decode), shape)


# ---- tags


def token_classification(model: ServedModel, body: PipelineRequest) -> Call:
    """The entities of each text; with the aggregation "none" its tagged words."""
    parameters, texts = body.all_parameters, texts_of(body)
    strategy = parameters.aggregation_strategy or "simple"
    ignored = {OUTSIDE} if parameters.ignore_labels is None else {*parameters.ignore_labels}

    def decode(prepared: Any, scores: Tensor) -> list[Any]:
        units = prepared.units(scores)
        if strategy == "none":
            results = [words(row, prepared.type_of) for row in units]
        else:
            entities = prepared.decode(scores, model.predictor.loaded.settings)
            results = [groups(row, *both) for row, *both in zip(texts, entities, units, strict=True)]
        return [[item for item in row if not ignored & {item.get("entity"), item["entity_group"]}] for row in results]

    return Call("tag", texts, options_of(model, body, decode), body.like_inputs)


def words(units: Sequence[Unit], type_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """Every word with its tag; @huggingface/inference refuses items without `entity_group`."""
    return [
        {"entity": unit["tag"], "entity_group": type_of(unit["tag"]), "index": i, "score": unit["score"]}
        | {"word": unit["text"], "start": unit["start"], "end": unit["end"]}
        for i, unit in enumerate(units, 1)
    ]


def groups(text: str, entities: Sequence[Entity], units: Sequence[Unit]) -> list[dict[str, Any]]:
    """Entities, and between them the words outside, together, as the group O."""
    spans = [(one["type"], one["score"], one["start"], one["end"]) for one in entities]
    for tag, run in itertools.groupby(units, lambda unit: unit["tag"]):
        if tag == OUTSIDE:
            outside = list(run)
            score = sum(unit["score"] for unit in outside) / len(outside)
            spans.append((OUTSIDE, score, outside[0]["start"], outside[-1]["end"]))
    return [
        {"entity_group": kind, "score": score, "word": text[start:end], "start": start, "end": end}
        for kind, score, start, end in sorted(spans, key=lambda span: span[2])
    ]


# ---- answers


def question_answering(model: ServedModel, body: PipelineRequest) -> Call:
    """The answer to each question; a list of the `top_k` best ones if that is above 1."""
    parameters, loaded, most = body.all_parameters, model.predictor.loaded, body.all_parameters.top_k or 1
    rows = [tuple(fields_of(v, ("question", "context"), f"inputs[{i}]")) for i, v in enumerate(body.each)]
    settings = dict(loaded.settings)
    if parameters.handle_impossible_answer is not None:
        settings["version_2"] = parameters.handle_impossible_answer
    most_tokens = loaded.limits.max_seq_length
    lengths = {  # half of the positions are the context's: the fewer, the more windows
        "max_answer_length": (parameters.max_answer_len, most_tokens),
        "max_query_length": (parameters.max_question_len, max(1, most_tokens // 2)),
    }
    given = {name: min(n, limit) for name, (n, limit) in lengths.items() if n is not None}
    limits = replace(loaded.limits, **given)

    def prepare(rows: Sequence[Any]) -> Any:
        return HeadSteps(replace(loaded, limits=limits), "span").prepare(rows)

    def decode(prepared: Any, scores: Tensor) -> list[Any]:
        answers = [[_answer(one) for one in best[:most]] for best in prepared.decode(scores, settings)]
        return answers if most > 1 else [best[0] for best in answers]

    return Call("answer", rows, options_of(model, body, decode, prepare if given else None), body.like_inputs)


def _answer(one: Any) -> dict[str, Any]:
    return {"answer": one["text"], "score": one["score"], "start": one["start"], "end": one["end"]}


# ---- masks


def fill_mask(model: ServedModel, body: PipelineRequest) -> Call:
    """The likeliest tokens for the mask of each text; a list of them for each mask if a text has several."""
    parameters, texts = body.all_parameters, texts_of(body)
    tokenizer, top_k = model.predictor.tokenizer, parameters.top_k or TOP_K
    characters = sum(len(text) * text.count(tokenizer.roles["mask"]) for text in texts) * min(
        top_k, tokenizer.vocab_size
    )
    advice = "lower top_k, or send shorter texts or fewer masks"
    check_size(characters, FILLED, "the filled texts would have {} characters", advice)

    def decode(prepared: Any, scores: Tensor) -> list[Any]:
        results = prepared.decode(scores, top_k, parameters.targets or ())
        tokens = [[[_candidate(one) for one in mask] for mask in masks] for masks in results]
        return [masks[0] if len(masks) == 1 else masks for masks in tokens]

    def _candidate(one: Any) -> dict[str, Any]:
        token = tokenizer.decode([one["id"]], skip_specials=False)
        return {"score": one["score"], "token": one["id"], "token_str": token, "sequence": one["text"]}

    return Call("fill_mask", texts, options_of(model, body, decode), body.like_inputs)


# ---- vectors


def feature_extraction(model: ServedModel, body: PipelineRequest) -> Call:
    """A vector for each text, of length 1 unless `normalize` is false; a list of one also for a single text."""
    parameters = body.all_parameters
    left, normalize = parameters.truncation_direction == "Left", parameters.normalize is not False
    how = Embedding(parameters.prompt_name, left, normalize, parameters.dimensions).options(model, parameters.truncate)
    return Call("embed", texts_of(body), how, lambda vectors: vectors)


def sentence_similarity(model: ServedModel, body: PipelineRequest) -> Call:
    """The cosine of the source sentence and each of the others."""
    if not isinstance(body.inputs, dict):
        raise HTTPError(422, "inputs: expected an object with source_sentence and sentences", param="inputs")
    (source,) = fields_of(body.inputs, ("source_sentence",), "inputs")
    others = body.inputs.get("sentences")
    if not isinstance(others, list) or not others or not all(isinstance(text, str) for text in others):
        raise HTTPError(422, "inputs.sentences: expected a list of texts", param="inputs")
    options = options_of(model, body, lambda rows, scores: cosines(scores))
    return Call("embed", [source, *others], options, lambda cosines: cosines)


TASKS: dict[str, tuple[str, Callable[[ServedModel, PipelineRequest], Call]]] = {
    "text-classification": ("classify", text_classification),
    "zero-shot-classification": ("classify", zero_shot_classification),
    "token-classification": ("tag", token_classification),
    "question-answering": ("answer", question_answering),
    "fill-mask": ("fill_mask", fill_mask),
    "feature-extraction": ("embed", feature_extraction),
    "sentence-similarity": ("embed", sentence_similarity),
}
