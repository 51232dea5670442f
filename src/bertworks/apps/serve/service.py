"""From the rows of a request to its answers: limits, tokenizing, queue, decoding.

Every route that computes calls `Service.run`. The policy for long inputs is here, in one place: tags, answers and
labels of single texts are read in windows; whatever would lose tokens is refused with 413, unless the request or the
server says `truncate`. `cut` and `tokens` of the answers say what was lost and what was computed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
from torch import Tensor

from ...checkpoint.locate import is_export
from ...files import InputError
from ...inference.steps import Steps
from ...tasks.base import PreparedRows
from ...tasks.inputs import Inputs
from ...tasks.span import SpanRows
from .config import ServeConfig
from .errors import HTTPError, without_folders
from .metrics import Metrics, route_of
from .models import ExplainSteps, ServedModel
from .queue import ComputeQueue, Scored

if TYPE_CHECKING:
    from fastapi import Request

T = TypeVar("T")
log = logging.getLogger(__name__)
SHORT = 1000  # characters that are tokenized in less time than another thread takes to wake up
SHORT_SCORES = 1 << 14  # numbers that are decoded in that time
VALUES = 1 << 22  # numbers in the scores of a request, such as those of many masks: 16 MB
# of a batch that gains nothing more by being larger; exported graphs pad batches: one text at a time is fastest
BATCH_TOKENS = {"cpu": 512, "cuda": 32_768, "export": 1}


@dataclass(frozen=True)
class Options:
    """How rows are answered."""

    model: str | None = None  # its name; none: the first that has a head for it
    truncate: bool | None = None  # cut what is too long; none: as the server was started
    prepare: Callable[[Sequence[Any]], Any] | None = None  # instead of the steps' own
    decode: Callable[[Any, Tensor], Sequence[Any]] | None = None  # (prepared rows, scores) to a result for each row


@dataclass(frozen=True)
class Answers:
    """The results of a request, and what it took."""

    model: ServedModel
    results: Sequence[Any]  # one for each row
    tokens: int  # that the model read, special tokens and the overlaps of windows included
    cut: int  # tokens that did not fit
    tokenize_seconds: float
    queue_seconds: float
    compute_seconds: float

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response: tokens, and times in milliseconds."""
        return {
            "x-compute-type": self.model.predictor.loaded.device.type,
            "x-compute-tokens": str(self.tokens),
            "x-truncated-tokens": str(self.cut),
            "x-tokenization-time": f"{1000 * self.tokenize_seconds:.0f}",
            "x-queue-time": f"{1000 * self.queue_seconds:.0f}",
            "x-inference-time": f"{1000 * self.compute_seconds:.0f}",
        }


class ClientLeft(Exception):
    """The connection was closed before the answer."""


class Service:
    """The models of a server with their queue."""

    def __init__(self, models: dict[str, ServedModel], config: ServeConfig):
        self.models, self.config = models, config
        self.metrics = Metrics()
        loaded = [model.predictor.loaded for model in models.values()]
        kinds = {"export" if is_export(one.folder) else one.device.type for one in loaded}
        self.batch_tokens = config.batch_tokens or BATCH_TOKENS[kinds.pop() if len(kinds) == 1 else "cpu"]
        self.queue = ComputeQueue(self.batch_tokens, self.metrics.batch)
        self.workers = min(4, psutil.cpu_count() or 1)
        self.pool = ThreadPoolExecutor(self.workers, "tokenize")
        self.started = time.time()
        self.draining = False  # a signal came: /health answers 503, and connections are closed after their responses

    def find(self, name: str | None, step: str, can: Callable[[ServedModel], bool] | None = None) -> ServedModel:
        """The model of this name; without one the first that has a head for the step, and `can` do what is asked.

        can: by default, of vectors whether the model was trained for them. If none can, the first with the head is
        returned, so that the caller can say what it lacks.
        A server with one folder serves it under any name. Raises HTTPError: 404 for an unknown name, 424 if no model
        has a head for the step.
        """
        if name in self.models:
            return self.models[name]
        if name and len(self.models) > 1:
            raise HTTPError(404, f"no model {name[:80]!r}; loaded: {', '.join(self.models)}", param="model")
        models = [model for model in self.models.values() if step in model.steps]
        if can is None:
            can = lambda model: step != "embed" or model.compares  # noqa: E731
        return next(filter(can, models), models[0] if models else next(iter(self.models.values())))

    def warm_up(self) -> None:
        """Compute a first batch of every step, so that no request waits for what it sets up."""
        for model in self.models.values():
            for name, steps in model.steps.items():
                inputs = model.first_inputs(name)
                with contextlib.suppress(InputError):  # NaN: said at each request, not here
                    self.queue.submit(steps, inputs, steps.token_costs(inputs)).result()

    def without_paths(self, message: str) -> str:
        """A message with the names of models instead of their folders, which are no business of clients."""
        return without_folders(message, {str(model.predictor.folder): name for name, model in self.models.items()})

    # ---- the one function that every route calls

    async def run(self, request: "Request", step: str, rows: Sequence[Any], options: Options | None = None) -> Answers:
        """The answers to some rows, computed together with what others ask at the same time.

        step: of models.STEPS; rows as its steps take them. Raises HTTPError: 400 a text is empty, 404 unknown model,
        413 too much, 422 a text cannot be read, 424 no head for it, or the pass failed, 503.
        """
        options, started = options or Options(), time.perf_counter()
        check_rows(rows)
        model = self.find(options.model, step)
        labels = "single" if len(rows) == 1 else "batch", model.name, route_of(request.scope)
        self.metrics.count.labels(*labels).inc()
        request.scope["model"] = model.name
        if step == "classify":
            check_pairs(model, rows)
        steps = model.steps_of(step)
        prepared, short = await self._prepared(options.prepare or steps.prepare, rows)
        ready = time.perf_counter()
        self._check_prepared(model, step, prepared, options.truncate)
        scored = await self._scores(request, steps, prepared.inputs)
        decode = options.decode or (lambda rows, scores: rows.decode(scores, model.predictor.loaded.settings))
        short = short and (not isinstance(scored.scores, Tensor) or scored.scores.numel() <= SHORT_SCORES)
        results = await self.in_pool(lambda: decode(prepared, scored.scores), short)
        times = (ready - started, scored.queue_seconds, scored.compute_seconds)
        answers = Answers(model, results, int(prepared.tokens.sum()), int(prepared.cut.sum()), *times)
        self._count(answers, int((prepared.cut > 0).sum()))
        self.metrics.success.labels(*labels).inc()
        self.metrics.duration.labels(*labels[1:]).observe(time.perf_counter() - started)
        return answers

    async def _prepared(self, prepare: Callable[[Sequence[Any]], Any], rows: Sequence[Any]) -> tuple[Any, bool]:
        """The prepared rows, and whether they are so short that they were prepared at once.

        Raises HTTPError (413) before tokenizing, if a request surely has too many tokens.
        """
        characters = sum(map(len, texts_in(rows)))
        check_size(characters, self.config.max_body, "inputs of {} characters together, each pair with both its texts")
        check_tokens(len(rows), self.config.max_tokens, "at least ")
        short = characters <= SHORT
        return await self.in_pool(lambda: prepare(rows), short), short

    async def in_pool(self, work: Callable[[], T], short: bool = False) -> T:
        """What `work` returns, computed in another thread unless it is short. What it cannot read is refused (422)."""
        try:
            if short:
                return work()
            return await asyncio.get_running_loop().run_in_executor(self.pool, work)
        except InputError as error:
            raise HTTPError(422, str(error), error_type="Tokenizer") from None

    def _check_prepared(self, model: ServedModel, step: str, prepared: PreparedRows, truncate: bool | None) -> None:
        """Raises HTTPError (413) for too many tokens or numbers, or tokens that would be lost."""
        steps = model.steps[step]
        check_tokens(int(prepared.tokens.sum()), self.config.max_tokens)
        if prepared.cut.any() and not (self.config.auto_truncate if truncate is None else truncate):
            row = int(prepared.cut.argmax())
            cut, where = int(prepared.cut[row]), f"input {row}: " if len(prepared.cut) > 1 else ""
            limit = steps.limit if isinstance(steps, ExplainSteps) else model.predictor.max_length
            read = f"the {limit} that the model {model.name!r} reads for {step}"
            if isinstance(prepared, SpanRows):
                read = f"the {prepared.decoder.limits.max_query_length} that are read of a question"
            message = f'{where}{cut:,} tokens more than {read}; shorten the text, or send "truncate": true'
            raise HTTPError(413, message, code="context_length_exceeded")
        if (width := self.queue.widths.get(steps, 0)) > 1:
            values = width * steps.count(prepared.inputs)
            check_size(values, VALUES, "a result of {} numbers", "send fewer or shorter inputs")

    async def _scores(self, request: "Request", steps: Steps[Any], inputs: Inputs) -> Scored:
        """The scores of a request. Raises HTTPError (424) if the pass failed, ClientLeft if the client disconnected."""
        future = asyncio.wrap_future(self.queue.submit(steps, inputs, steps.token_costs(inputs)))
        left = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait((future, left), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ClientLeft
            return future.result()
        except (HTTPError, ClientLeft):
            raise
        except InputError as error:
            raise HTTPError(424, str(error)) from None
        except Exception as error:
            name = type(error).__name__
            log.error("a forward pass failed: %s", name)
            raise HTTPError(424, f"the forward pass failed ({name}); the server's log says when") from None
        finally:
            left.cancel()
            future.cancel()  # takes it out of the queue, if it is still there

    def _count(self, answers: Answers, truncated: int) -> None:
        """Count tokens, truncated inputs and seconds of an answered request."""
        metrics = self.metrics
        metrics.tokens.inc(answers.tokens)
        metrics.truncated_inputs.inc(truncated)
        metrics.truncated_tokens.inc(answers.cut)
        metrics.tokenization.observe(answers.tokenize_seconds)
        metrics.queue.observe(answers.queue_seconds)
        metrics.inference.observe(answers.compute_seconds)

    # ---- the end

    def close(self) -> None:
        """Take no more requests; those that wait are still computed."""
        self.draining = True
        self.queue.close()

    def refuse_waiting(self) -> None:
        """Take no more requests, and refuse those that wait with 503."""
        self.close()
        refused = self.queue.refuse_waiting()
        if refused:
            log.warning("%d requests were refused, because the time to finish them was over", refused)


async def disconnected(request: "Request") -> None:
    """Return when the client has closed its connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ---- checks before anything is computed, because a small body can mean much work


def texts_in(rows: Any) -> Iterator[str]:
    """All texts of rows, which may be texts, or nest them."""
    if isinstance(rows, str):
        yield rows
    elif isinstance(rows, list | tuple):
        for row in rows:
            yield from texts_in(row)


def check_rows(rows: Sequence[Any]) -> None:
    """Raises HTTPError (400) if there is no row or a text is blank."""
    if not rows:
        raise HTTPError(400, "no input; expected one text or more", error_type="Empty")
    for i, row in enumerate(rows):
        if not row or not all(text.strip() for text in texts_in(row)):
            raise HTTPError(400, f"input {i} has no text; leave it out", error_type="Empty")


def check_size(count: int, most: int, what: str, advice: str = "send several requests", code: str = "") -> None:
    """Raises HTTPError (413) if something is larger than `most`. what: what it is, with {} for its size."""
    if count > most:
        message = f"{what.replace('{}', f'{count:,}')}; expected at most {most:,}; {advice}"
        raise HTTPError(413, message, code=code)


def check_tokens(tokens: int, most: int, least: str = "") -> None:
    """Raises HTTPError (413) if a request has too many tokens. least: "at least " of an estimate."""
    check_size(tokens, most, f"{least}{{}} tokens in a request", code="max_tokens_per_request")


def check_pairs(model: ServedModel, rows: Sequence[tuple[str, str | None]]) -> None:
    """Raises HTTPError (422) for a pair, if the model was fine-tuned on single texts, or the other way round.

    Its answer would mean nothing.
    """
    count = model.predictor.loaded.texts_a_row
    unfit = [i for i, (_, second) in enumerate(rows) if {1: bool(second), 2: second is None}.get(count)]
    if unfit:
        row, trained, advice = (
            ("a pair", "single texts", "send each text as an input of its own")
            if count == 1
            else ("a single text", "pairs", "send two texts in every input")
        )
        message = f"input {unfit[0]} is {row}, but the model {model.name!r} was fine-tuned on {trained}; {advice}"
        raise HTTPError(422, message, param="inputs")
