"""HTTP server for trained models: `bertworks serve` (extra `serve`).

In reading order:

    config.py       the settings of the server
    errors.py       error responses: status, error type, and the form that each API gives them
    models.py       a served model: a predictor, and the steps that its heads allow
    queue.py        one compute thread; requests take turns batch by batch
    metrics.py      Prometheus metrics under TEI's names
    service.py      from a request's rows to its answers: checks, tokenizing, queue, decoding
    routes.py       shared by the routes: fields and errors of bodies, router, reply
    guard.py        checks before a route is called: host, key, content type, size and time of the body
    app.py          `create_app`: all routes; how a file of routes plugs in
    vectors.py      `/embed`, `/v1/embeddings`
    rerank.py       texts ranked by a query: `/rerank`
    texts.py        `/predict`, `/choose`, `/next-sentence`, `/explain`
    pipelines.py    the tasks of Hugging Face Inference: payload to rows, results to answer
    huggingface.py  their routes, and which task a payload is for
    status.py       health, metrics, and the lists of models
    page.py         the page at `/`; its parts are in page/
    server.py       the process: address, loading, messages, signals, shutdown
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy_names

if TYPE_CHECKING:
    from .app import create_app as create_app
    from .config import ServeConfig as ServeConfig
    from .models import ServedModel as ServedModel
    from .server import run_server as run_server

__all__, __getattr__, __dir__ = lazy_names(__name__)
