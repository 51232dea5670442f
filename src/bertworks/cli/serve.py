"""`bertworks serve`: trained folders behind an address."""

from dataclasses import dataclass, field
from typing import Annotated

from ..apps.serve.config import ServeConfig
from .arguments import Flat, Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Serve trained folders over HTTP, for clients of several kinds.

    A file or BERTWORKS_API_KEY gives the key, never the command line.

    Ctrl-C or SIGTERM ends the server after what has queued.

    Example:
        bertworks serve runs/sst2
        bertworks serve sentiment=runs/sst2 names=runs/conll --port 9000
    """

    # model folders, run folders or sentence-transformers folders; NAME is what clients call the model, by default the
    # folder's name (or: --models FOLDER ...)
    models: Annotated[tuple[str, ...], Positional, required("[NAME=]FOLDER")]
    config: Flat[ServeConfig] = field(default_factory=ServeConfig)


def serve(argv: list[str]) -> None:
    """Serve until a signal comes."""
    arguments = parse(Arguments, argv, "serve")
    from ..apps.serve.server import run_server

    run_server(arguments.models, arguments.config)
