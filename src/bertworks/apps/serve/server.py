"""The process of a server: address, loading, signals, shutdown.

The address is taken first, so that a port in use is found at once. Connections are refused until the models are loaded.

SIGTERM or Ctrl-C: /health answers 503; after `notice` seconds, and as soon as what had arrived has been read, the
listener is closed; what has come in is answered within `grace` seconds, what then remains is refused with 503; the
process exits with 0. A second signal ends it at once with 128 and its number; after the last answer it changes nothing.
"""

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ..._version import __version__
from ...files import InputError, read_bytes
from .config import ServeConfig

if TYPE_CHECKING:
    from fastapi import FastAPI

    from .service import Service

T = TypeVar("T")
KEY = "BERTWORKS_API_KEY"
EXTRA = ("fastapi", "uvicorn", "httptools", "orjson", "prometheus_client")
CATCH_UP = 0.5  # seconds in which what had arrived is read before the listener is closed
KEEP_ALIVE = 75  # seconds that an unused connection stays open; proxies close theirs after 60
REUSE = (socket.SOL_SOCKET, socket.SO_REUSEADDR)
STOPS = (signal.SIGINT, signal.SIGTERM)
LAST_SECONDS = 5.0  # after `grace`, for responses to be written


def run_server(folders: Sequence[str], config: ServeConfig) -> None:
    """Serve `FOLDER` or `NAME=FOLDER` until a signal comes.

    Raises InputError if an extra is missing, the port is in use, the key file is wrong, a folder is damaged, or a model
    cannot compute as asked.
    """
    started = time.perf_counter()
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{missing[0]} is not installed, which serving needs; run: pip install 'bertworks[serve]'")
    keys, listener = read_keys(config), bind(config)
    with listener:
        address = address_of(listener)
        notify(f"bertworks {__version__}: loading {', '.join(folders)} for {address}")
        from .app import create_app
        from .models import load_models

        app = in_a_thread(lambda: create_app(load_models(folders, config.precision, config.examples), config, keys))
        service = app.state.service
        for note in filter(None, (model.predictor.note for model in service.models.values())):
            notify(note)
        service.warm_up()
        leave_cores_to_compute()
        accept(listener, config)
        show(service, address, bool(keys), time.perf_counter() - started)
        serve(app, listener, config)
    service.close()
    notify("stopped")
    if not service.queue.join(LAST_SECONDS):
        os._exit(0)  # a forward pass that nobody waits for any more


# Every thread that computes with several cores has a team of threads of its own, until it ends. As soon as the teams
# have more threads than there are cores, OpenMP's threads (GNU's library) sleep between two operations instead of
# waiting for the next, and a short text takes twice as long. So only the thread of the queue may have a team.


def in_a_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises, computed in a thread that ends with it."""
    with ThreadPoolExecutor(1, "load") as pool:
        return pool.submit(work).result()


def leave_cores_to_compute() -> None:
    """Let this thread, and all that begin later, use one core for torch's operations; others stay as they are.

    To be called when the queue has computed: torch gives a thread its number of cores at its first operation.
    """
    import torch

    torch.set_num_threads(1)


def read_keys(config: ServeConfig) -> list[str]:
    """The API keys of the file, one per line, else that of the environment. Raises InputError for an unusable one."""
    if config.key_file is None:
        where, key = KEY, os.environ.get(KEY)
        keys = [] if key is None else [key]
    else:
        where = str(config.key_file)
        text = read_bytes(config.key_file, "a file with API keys", 1_000_000).decode("latin-1")
        keys = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    for key in keys:
        if not (8 <= len(key) <= 1000 and key.isprintable() and key.isascii() and " " not in key):
            expected = "expected one per line, 8 to 1,000 ASCII letters, digits and signs"
            raise InputError(f"{where}: a key of {len(key)} characters; {expected}")
    return keys


def bind(config: ServeConfig) -> socket.socket:
    """A socket bound to the address, before anything slow happens. Raises InputError if that is impossible.

    Until `accept` connections are refused, so that a proxy asks another server instead of waiting.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--host {config.host}: {reason}; expected an address or a name of this machine") from None
    listener = socket.socket(family)
    listener.setsockopt(*REUSE, 1)
    try:
        listener.bind(address)
        listener.setsockopt(*REUSE, 0)  # until it listens, another server could be bound to the same address
    except OSError as error:
        listener.close()
        raise _in_use(config, error) from None
    return listener


def accept(listener: socket.socket, config: ServeConfig) -> None:
    """Let clients connect. Raises InputError if another program began to listen there after `bind`."""
    try:
        listener.setsockopt(*REUSE, 1)  # a restart binds while connections of this server are still in TIME_WAIT
        listener.listen(2048)
    except OSError as error:
        raise _in_use(config, error) from None


def _in_use(config: ServeConfig, error: OSError) -> InputError:
    advice = "expected an address of this machine (--host) and a port that no other program listens on (--port)"
    return InputError(f"{config.host}:{config.port}: cannot listen ({error.strerror}); {advice}")


def address_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def show(service: "Service", address: str, keyed: bool, seconds: float) -> None:
    """Print the screen. keyed: whether requests need a key. seconds: that the start took."""
    host = ipaddress.ip_address(urlsplit(address).hostname or "")
    print(f"bertworks {__version__} listens on {address} (ready after {seconds:.1f} s)")
    for model in service.models.values():
        engine, reads = model.predictor.loaded.engine, f"reads {model.predictor.max_length:,} tokens"
        how = engine.precision if engine.name == "packed" else f"{engine.precision}, {engine.name}"
        print(f"  {model.name}: {', '.join(model.abilities)}; {reads}; {how}")
        if model.examples:
            print("    its page shows development examples of the run (--examples)")
    # a browser of this machine cannot open the address of every network
    page = f"http://localhost:{urlsplit(address).port}" if host.is_unspecified else address
    print(f"page: {page}/ (with examples as curl commands)")
    if keyed:
        print("key: needed for everything but /health")
    elif not host.is_loopback:
        print("key: none, and other machines can reach the server; set BERTWORKS_API_KEY or --key-file")
    print("stop: Ctrl-C; accepted requests are still answered", flush=True)


def serve(app: "FastAPI", listener: socket.socket, config: ServeConfig) -> None:
    """Answer requests until a signal comes, then finish what has come in."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.WARNING)
    server, main = server_of(app, config), threading.current_thread() is threading.main_thread()

    def outside(number: int, frame: FrameType | None) -> None:
        if not app.state.service.draining:
            os._exit(128 + number)

    for stop in STOPS if main else ():  # before and behind uvicorn's own handlers
        signal.signal(stop, outside)
    server.run(sockets=[listener])
    for stop in STOPS if main else ():  # all is answered: a second signal must not change the exit code
        signal.signal(stop, signal.SIG_IGN)


def server_of(app: "FastAPI", config: ServeConfig) -> Any:
    """uvicorn's server with our shutdown. It logs errors alone: a line for each bad request could fill the disk."""
    import uvicorn

    service = app.state.service

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if service.draining:
                os._exit(128 + sig)  # the second signal
            service.draining = True
            self.loop.call_soon_threadsafe(self.loop.call_later, config.notice, self.end)

        def end(self) -> None:
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            self.loop = asyncio.get_running_loop()
            await super().startup(sockets)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            open_requests = len(self.server_state.tasks)
            notify(f"finishing {open_requests} request{'s' if open_requests != 1 else ''}")
            timer = self.loop.call_later(config.grace, service.refuse_waiting)
            await caught_up(sockets or [], min(CATCH_UP, config.grace))
            await super().shutdown(sockets)
            timer.cancel()

    settings: dict[str, Any] = {"log_config": None, "log_level": "critical", "access_log": False}
    settings |= {"server_header": False, "lifespan": "off", "ws": "none", "http": "httptools"}
    settings["timeout_keep_alive"] = KEEP_ALIVE
    return Server(uvicorn.Config(app, timeout_graceful_shutdown=int(config.grace + LAST_SECONDS), **settings))


def notify(text: str) -> None:
    """Print a line, if somebody still reads it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)


async def caught_up(listeners: Sequence[socket.socket], most: float) -> None:
    """Wait until what clients had sent has been read, but at most so many seconds.

    Nothing is left where for a tenth of a second no connection waits at the `listeners` and the event loop wakes in
    time from short sleeps.
    """
    end, calm = time.perf_counter() + most, 0
    while calm < 10 and time.perf_counter() < end:
        started = time.perf_counter()
        await asyncio.sleep(0.01)
        waiting, _, _ = select.select(listeners, [], [], 0)
        calm = calm + 1 if time.perf_counter() - started < 0.03 and not waiting else 0
