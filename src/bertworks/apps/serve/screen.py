"""The screen at the start of a server: where it listens, what it serves, how to try it."""

import ipaddress
import json
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ..._version import __version__
from .config import ServeConfig
from .models import ServedModel
from .page import languages_of
from .service import Service

ENGLISH: dict[str, Any] = {
    "films": ["A fine film.", "A good one."],
    "place": "Jane Austen lived in Bath.",
    "question": "Who lived in Bath?",
    "opened": "She opened the",
    "endings": ["letter.", "river."],
    "masked": "She opened the {}.",
}
KOREAN: dict[str, Any] = {
    "films": ["정말 좋은 영화였다.", "볼만한 영화다."],
    "place": "세종대왕은 한양에서 태어났다.",
    "question": "세종대왕은 어디에서 태어났는가?",
    "opened": "그는 편지를",
    "endings": ["썼다.", "먹었다."],
    "masked": "나는 어제 친구와 {}를 보았다.",
}


def show(service: Service, address: str, key: str, seconds: float) -> None:
    """Print the screen. key: what the shell replaces by the API key; "" if there is none."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    models = list(service.models.values())
    console.print(f"[bold]bertworks {__version__}[/] listens on [bold]{address}[/] (ready after {seconds:.1f} s)\n")
    opened = reachable(address)
    columns = ("model", "what it does", "reads", "precision")
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for model in models:
        reads = f"{model.predictor.max_length:,} tokens"
        engine = model.predictor.loaded.engine
        how = engine.precision if engine.name == "packed" else f"{engine.precision}, {engine.name}"
        table.add_row(model.name, ", ".join(model.abilities), reads, how)
    console.print(table)
    console.print(f"\n[dim]page[/]    {opened}/")
    console.print(f"[dim]routes[/]  {opened}/openapi.json")
    console.print(f"[dim]try[/]     {escape(command(models, opened, key))}")
    if public := [model.name for model in models if model.examples]:
        names = escape(", ".join(public))
        console.print(f"[dim]texts[/]   the page shows development examples of {names}; serve RUN/model to hide them")
    console.print(f"[dim]key[/]     {_key(address, bool(key))}")
    console.print("[dim]stop[/]    Ctrl-C; requests that have come in are still answered")


def reachable(address: str) -> str:
    """The address that this machine's browser opens: localhost where the server listens on every address."""
    host = urlsplit(address).hostname or ""
    if not ipaddress.ip_address(host).is_unspecified:
        return address
    return address.replace(f"[{host}]" if ":" in host else host, "localhost")


def _key(address: str, keyed: bool) -> str:
    host = urlsplit(address).hostname or ""
    if keyed:
        return "needed for everything but /health"
    if ipaddress.ip_address(host).is_loopback:
        return "none; only this machine can reach the server"
    return "[bold]none, and other machines can reach the server[/]; set BERTWORKS_API_KEY or --key-file"


def key_in_shell(config: ServeConfig, keys: Sequence[str]) -> str:
    """What the shell replaces by an API key: the variable, or the first line of its file; "" if none is needed."""
    if not keys:
        return ""
    return "$BERTWORKS_API_KEY" if config.key_file is None else f"$(head -1 {shlex.quote(str(config.key_file))})"


def command(models: Sequence[ServedModel], address: str, key: str) -> str:
    """A curl command that the first model answers. key: see `show`."""
    path, body = example(models[0])
    if len(models) > 1:
        path = f"/models/{models[0].name}" if path == "/" else path
        body |= {} if path.startswith("/models") else {"model": models[0].name}
    header = f'-H "Authorization: Bearer {key}" ' if key else ""
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {address}{path} -H 'content-type: application/json' {header}-d {data}"


def example(model: ServedModel) -> tuple[str, dict[str, Any]]:
    """A route and a body for what the model is best at, in Korean if its vocabulary was made for Korean only."""
    mask = model.predictor.tokenizer.roles["mask"]
    texts = KOREAN if languages_of(model.predictor.tokenizer) == ["ko"] else ENGLISH
    film = texts["films"][0]
    examples: dict[str, tuple[str, dict[str, Any]]] = {
        "classify": ("/predict", {"inputs": texts["films"] if model.predictor.kind == "pair" else film}),
        "tag": ("/", {"inputs": texts["place"]}),
        "answer": ("/", {"inputs": {"question": texts["question"], "context": texts["place"]}}),
        "choose": ("/choose", {"text": texts["opened"], "choices": texts["endings"]}),
        "fill_mask": ("/", {"inputs": texts["masked"].format(mask)}),
        "embed": ("/embed", {"inputs": film}),
    }
    return next(examples[step] for step in examples if step in model.steps)
