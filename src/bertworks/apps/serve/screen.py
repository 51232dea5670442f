"""The screen at the start of a server: where it listens, what it serves, who can reach it."""

import ipaddress
from urllib.parse import urlsplit

from ..._version import __version__
from .service import Service


def show(service: Service, address: str, keyed: bool, seconds: float) -> None:
    """Print the screen. keyed: whether requests need a key. seconds: that the start took."""
    host = ipaddress.ip_address(urlsplit(address).hostname or "")
    print(f"bertworks {__version__} listens on {address} (ready after {seconds:.1f} s)")
    for model in service.models.values():
        engine, reads = model.predictor.loaded.engine, f"reads {model.predictor.max_length:,} tokens"
        how = engine.precision if engine.name == "packed" else f"{engine.precision}, {engine.name}"
        print(f"  {model.name}: {', '.join(model.abilities)}; {reads}; {how}")
        if model.examples:
            print("    its page shows development examples of the run; serve RUN/model to hide them")
    # a browser of this machine cannot open the address of every network
    page = f"http://localhost:{urlsplit(address).port}" if host.is_unspecified else address
    print(f"page: {page}/ (with examples as curl commands)")
    if keyed:
        print("key: needed for everything but /health")
    elif not host.is_loopback:
        print("key: none, and other machines can reach the server; set BERTWORKS_API_KEY or --key-file")
    print("stop: Ctrl-C; accepted requests are still answered", flush=True)
