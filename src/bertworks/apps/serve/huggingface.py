"""Routes that the clients of Hugging Face Inference post to: the bare URL, `/models/N`, and `/pipeline/TASK`.

| task | inputs | parameters | answer |
|---|---|---|---|
| text-classification | texts, or {text, text_pair} | top_k, function_to_apply | [[{label, score}]], a list for each |
| zero-shot-classification | texts | candidate_labels, multi_label, hypothesis_template | [{label, score}] |
| token-classification | texts | aggregation_strategy, ignore_labels | [{entity_group, score, word, start, end}] |
| question-answering | {question, context} | top_k, handle_impossible_answer, max_answer_len, max_question_len | [1] |
| fill-mask | texts with [MASK] | top_k, targets | [{score, token, token_str, sequence}] |
| feature-extraction | texts | normalize, truncate, dimensions, prompt_name | [[numbers]], a vector for each |
| sentence-similarity | {source_sentence, sentences} | | [numbers] |

[1] {answer, score, start, end}; a list of them if top_k is above 1. A list of inputs gives a list of these answers.
Without a task in the path, the payload and the model's head decide (`task_of`).
"""

from fastapi import Request, Response

from .errors import HTTPError
from .models import ServedModel
from .pipelines import TASKS, PipelineRequest
from .routes import api_router, reply, service_of
from .service import check_tokens

router = api_router("Hugging Face Inference")


PAIR = 4  # tokens of a pair, at least


@router.post("/")
async def bare(body: PipelineRequest, request: Request) -> Response:
    """The task that payload and head decide on, by `model` or the first folder that has a head for it."""
    return await answer(body, request, body.model)


@router.post("/pipeline/{task}")
async def bare_task(task: str, body: PipelineRequest, request: Request) -> Response:
    """A task by name, by `model` or the first folder that has a head for it."""
    return await answer(body, request, body.model, task)


@router.post("/models/{name:path}/pipeline/{task}")
async def named_task(name: str, task: str, body: PipelineRequest, request: Request) -> Response:
    """A task by name, by one folder."""
    return await answer(body, request, name, task)


@router.post("/models/{name:path}")
async def named(name: str, body: PipelineRequest, request: Request) -> Response:
    """The task that payload and head decide on, by one folder."""
    return await answer(body, request, name)


async def answer(body: PipelineRequest, request: Request, name: str | None = None, task: str | None = None) -> Response:
    """The response to a payload. Raises HTTPError: 404 for an unknown task, 413 for too many pairs."""
    service = service_of(request)
    if task is not None and task not in TASKS:
        raise HTTPError(404, f"no task {task[:80]!r}; expected one of {', '.join(TASKS)}")
    task = task or task_of_payload(body)
    zero_shot = task == "zero-shot-classification"
    can = (lambda model: model.entailment is not None) if zero_shot else (lambda model: True)
    model = service.find(name, TASKS[task][0] if task else "", can)
    if zero_shot:
        texts, labels = len(body.each), len(body.labels)
        least = f"{texts:,} texts with {labels:,} labels each: at least "
        check_tokens(PAIR * texts * labels, service.config.max_tokens, least)  # before the pairs are built
    _, translate = TASKS[task or task_of(model, body)]
    call = translate(model, body)
    answers = await service.run(request, call.step, call.rows, call.options)
    return reply(call.shape(answers.results), answers)


def task_of_payload(body: PipelineRequest) -> str | None:
    """The task that a payload can only be for; None: texts, which many tasks take."""
    first = body.each[0] if body.each else ""
    if isinstance(first, dict):
        if "source_sentence" in first:
            return "sentence-similarity"
        if "question" in first:
            return "question-answering"
    return "zero-shot-classification" if body.all_parameters.candidate_labels is not None else None


def task_of(model: ServedModel, body: PipelineRequest) -> str:
    """The task of texts, by the model's head.

    huggingface_hub sends `parameters`, if empty ones, with every task but feature-extraction. So texts without it and
    without a mask are embedded by a folder that could fill masks. Raises HTTPError (424) if no task fits the head.
    """
    steps = model.steps
    if "classify" in steps:
        return "text-classification"
    if "tag" in steps:
        return "token-classification"
    if "answer" in steps or "choose" in steps:
        route = "/choose" if "choose" in steps else "an object with question and context"
        raise HTTPError(424, f"the model {model.name!r} does not read texts alone; it expects {route}")
    mask = model.predictor.tokenizer.roles["mask"]
    masked = any(mask in text for text in body.each if isinstance(text, str))
    if "fill_mask" in steps and (masked or body.parameters is not None):
        return "fill-mask"
    return "feature-extraction"
