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
from .rerank import ranks
from .service import Service

ROUTES = {  # steps and their own routes; all of them also answer in the forms of Hugging Face and KServe
    "classify": "/predict",
    "tag": "/",
    "answer": "/",
    "choose": "/choose",
    "fill_mask": "/",
    "embed": "/embed /similarity /v1/embeddings",
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
    columns = ("model", "what it does", "reads", "precision", "speed here")
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for model in models:
        first = next(iter(model.steps.values()))  # an exported classifier cannot embed
        speed = service.queue.lane(model.steps.get("embed", first)).pace.rate
        reads = f"{model.predictor.max_length:,} tokens"
        engine = model.predictor.loaded.engine
        how = engine.precision if engine.name == "packed" else f"{engine.precision}, {engine.name}"
        table.add_row(model.name, ", ".join(model.abilities), reads, how, f"{speed:,.0f} tokens/s")
    console.print(table)
    routes = dict.fromkeys(route for model in models for route in routes_of(model))
    console.print(f"\n[dim]page[/]    {opened}/")
    console.print(f"[dim]routes[/]  {' '.join(routes)}; all of them: {opened}/openapi.json")
    console.print(f"[dim]try[/]     {escape(command(models, opened, key))}")
    if public := [model.name for model in models if model.examples]:
        names = escape(", ".join(public))
        console.print(f"[dim]texts[/]   the page shows development examples of {names}; serve RUN/model to hide them")
    console.print(f"[dim]key[/]     {_key(address, bool(key))}")
    console.print("[dim]stop[/]    Ctrl-C; requests that have come in are still answered")


def routes_of(model: ServedModel) -> list[str]:
    """The routes of what a model can do. Models of pairs whose labels say "relevant" rank, and embedders."""
    routes = [route for step in model.steps for route in ROUTES.get(step, "").split()]
    return [*routes, "/rerank"] if ranks(model) or model.compares else routes


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


def key_in_shell(config: ServeConfig, key: str | None) -> str:
    """What the shell replaces by the API key: the variable, or the text of its file; "" if there is none."""
    if key is None:
        return ""
    return "$BERTWORKS_API_KEY" if config.key_file is None else f"$(cat {shlex.quote(str(config.key_file))})"


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
    korean = languages_of(model.predictor.tokenizer) == ["ko"]
    film, good = ("정말 좋은 영화였다.", "볼만한 영화다.") if korean else ("A fine film.", "A good one.")
    place = "세종대왕은 한양에서 태어났다." if korean else "Jane Austen lived in Bath."
    question = "세종대왕은 어디에서 태어났는가?" if korean else "Who lived in Bath?"
    opened = "그는 편지를" if korean else "She opened the"
    endings = ["썼다.", "먹었다."] if korean else ["letter.", "river."]
    examples: dict[str, tuple[str, dict[str, Any]]] = {
        "classify": ("/predict", {"inputs": [film, good] if model.predictor.kind == "pair" else film}),
        "tag": ("/", {"inputs": place}),
        "answer": ("/", {"inputs": {"question": question, "context": place}}),
        "choose": ("/choose", {"text": opened, "choices": endings}),
        "fill_mask": ("/", {"inputs": f"나는 어제 친구와 {mask}를 보았다." if korean else f"She opened the {mask}."}),
        "embed": ("/embed", {"inputs": film}),
    }
    return next(examples[step] for step in examples if step in model.steps)
