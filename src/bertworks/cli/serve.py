"""`bertworks serve`: an HTTP server for trained models."""

from dataclasses import dataclass, field
from typing import Annotated

from ..apps.serve.config import ServeConfig
from .arguments import Flat, Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Serve models over HTTP, with a web page.

    The API is compatible with clients of Hugging Face, OpenAI and Cohere.

    To require an API key, set BERTWORKS_API_KEY or give --key-file.

    Ctrl-C or SIGTERM stops the server after it has answered accepted requests.

    Example:
        bertworks serve runs/sst2
        bertworks serve sentiment=runs/sst2 names=runs/conll --port 9000
    """

    # model, run or sentence-transformers folders, bundled encoders (mini, mini-ko), or org/name of the Hugging Face
    # Hub; NAME is the model's name in requests, by default that of the folder (or: --models MODEL ...)
    models: Annotated[tuple[str, ...], Positional, required("[NAME=]MODEL")]
    config: Flat[ServeConfig] = field(default_factory=ServeConfig)


def serve(argv: list[str]) -> None:
    """Serve until a signal comes."""
    arguments = parse(Arguments, argv, "serve")
    from ..apps.serve.server import run_server

    run_server(arguments.models, arguments.config)
