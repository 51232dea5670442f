"""The screen at the start of a server: where it listens, what it serves, who can reach it."""

import ipaddress
from urllib.parse import urlsplit

from ..._version import __version__
from .service import Service


def show(service: Service, address: str, keyed: bool, seconds: float) -> None:
    """Print the screen. keyed: whether requests need a key. seconds: that the start took."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    models = list(service.models.values())
    console.print(f"[bold]bertworks {__version__}[/] listens on [bold]{address}[/] (ready after {seconds:.1f} s)\n")
    table = Table("model", "what it does", "reads", "precision", box=None, pad_edge=False, header_style="dim")
    for model in models:
        engine = model.predictor.loaded.engine
        how = engine.precision if engine.name == "packed" else f"{engine.precision}, {engine.name}"
        table.add_row(model.name, ", ".join(model.abilities), f"{model.predictor.max_length:,} tokens", how)
    console.print(table)
    console.print(f"\n[dim]page[/]    {reachable(address)}/ (with examples as curl commands)")
    console.print(f"[dim]routes[/]  {reachable(address)}/openapi.json")
    if public := [model.name for model in models if model.examples]:
        names = escape(", ".join(public))
        console.print(f"[dim]texts[/]   the page shows development examples of {names}; serve RUN/model to hide them")
    console.print(f"[dim]key[/]     {_key(address, keyed)}")
    console.print("[dim]stop[/]    Ctrl-C; accepted requests are still answered")


def reachable(address: str) -> str:
    """The address that this machine's browser opens: localhost where the server listens on every address."""
    host = urlsplit(address).hostname or ""
    if not ipaddress.ip_address(host).is_unspecified:
        return address
    return address.replace(f"[{host}]" if ":" in host else host, "localhost")


def _key(address: str, keyed: bool) -> str:
    if keyed:
        return "needed for everything but /health"
    if ipaddress.ip_address(urlsplit(address).hostname or "").is_loopback:
        return "none; only this machine can reach the server"
    return "[bold]none, and other machines can reach the server[/]; set BERTWORKS_API_KEY or --key-file"
