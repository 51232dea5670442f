"""The process of a server: address, loading, the screen at its start, signals, shutdown.

SIGTERM or Ctrl-C: /health answers 503, the listener is closed, the queue is finished within `grace` seconds, what
remains is refused with 503, and the process exits with 0. A second signal ends it at once.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..files import InputError, read_bytes
from .config import ServeConfig

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .models import ServedModel

KEY = "BERTWORKS_API_KEY"
EXTRA = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def run_server(folders: Sequence[str], config: ServeConfig) -> None:
    """Serve `FOLDER` or `NAME=FOLDER` until a signal comes.

    Raises InputError if an extra is missing, the port is in use, the key file is wrong, or a folder is damaged.
    """
    begun = time.perf_counter()
    check_extra()
    if not folders:
        raise InputError("no folder to serve; write bertworks serve FOLDER")
    key, listener = read_key(config), listen(config)
    try:
        from .app import create_app
        from .models import load_models

        models = load_models(folders)
        app = create_app(models, config, key)
        app.state.service.measure()
        show(models, listener, config, key is not None, time.perf_counter() - begun)
        serve(app, listener, config)
    finally:
        listener.close()


def check_extra() -> None:
    """Raises InputError if a library of the extra `serve` is not installed."""
    import importlib.util

    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{missing[0]} is not installed, which serving needs; run: pip install 'bertworks[serve]'")


def read_key(config: ServeConfig) -> str | None:
    """The API key of the file, else of the environment; None without either. Raises InputError for an unusable one."""
    if config.key_file is None:
        where, key = KEY, os.environ.get(KEY)
    else:
        where = str(config.key_file)
        try:
            key = read_bytes(config.key_file, "a file with the API key", 10_000).decode("ascii").strip()
        except UnicodeDecodeError:
            raise InputError(f"{where}: the key is not ASCII; expected letters, digits and signs") from None
    if key is None:
        return None
    if not (8 <= len(key) <= 1000 and key.isascii() and key.isprintable() and " " not in key):
        raise InputError(f"{where}: found {len(key)} characters; expected a key of 8 to 1,000 without spaces")
    return key


def listen(config: ServeConfig) -> socket.socket:
    """A socket bound to the address, before anything slow happens. Raises InputError if that is impossible."""
    where = f"{config.host}:{config.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        advice = "choose another one with --port, or stop the program that listens there"
        if isinstance(error, socket.gaierror):
            advice = "expected an address or a name of this machine for --host"
        raise InputError(f"{where}: cannot listen ({error.strerror}); {advice}") from None
    return listener


def serve(app: "FastAPI", listener: socket.socket, config: ServeConfig) -> None:
    """Answer requests until a signal comes, then finish what has queued."""
    import uvicorn

    settings: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False, "lifespan": "off"}
    server = _server(app, config)(uvicorn.Config(app, timeout_keep_alive=75, **settings))
    logging.getLogger("bertworks").addHandler(logging.StreamHandler())
    server.run(sockets=[listener])


def _server(app: "FastAPI", config: ServeConfig) -> Any:
    """uvicorn's server with our shutdown."""
    import uvicorn

    service = app.state.service

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if self.should_exit:
                os._exit(128 + sig)  # the second signal
            service.close()
            self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            timer = asyncio.get_running_loop().call_later(config.grace, service.queue.refuse_waiting)
            await super().shutdown(sockets)
            timer.cancel()

    return Server


def show(
    models: dict[str, "ServedModel"], listener: socket.socket, config: ServeConfig, keyed: bool, seconds: float
) -> None:
    """Print where the server listens, what it serves, and how to try it."""
    from rich.console import Console

    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    console = Console(highlight=False)
    console.print(f"[bold]bertworks[/bold] serves {len(models)} model(s) on [bold]{address}[/bold]")
