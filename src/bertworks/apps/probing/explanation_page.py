"""The page of `bertworks probe explain`: an HTML file that loads nothing, made of explain.js, explain.css and the data.

The server's page embeds the same panels: explain.js says how. Everything of the texts reaches a page as data.
"""

import html
import json
import re
from importlib.resources import files
from typing import Any

SCRIPTS = ("explain_texts.js", "explain_tools.js", "explain.js")  # in this order
STYLE = "explain.css"


def asset(name: str) -> str:
    """The text of one of the files beside this one."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def explain_page(data: dict[str, Any]) -> str:
    """The page of one explained text or pair. data: what `explain` returns."""
    whole = data["text"] if data["pair"] is None else f"{data['text']} / {data['pair']}"
    excerpt = whole if len(whole) <= 90 else whole[:89] + "…"
    fields = {
        "TITLE": html.escape(f"{excerpt} – bertworks probe explain"),
        "HEADING": html.escape(excerpt),
        "STYLE": asset(STYLE),
        "SCRIPT": "\n".join(map(asset, SCRIPTS)),
        "DATA": safe_json(data),
    }
    # in one pass: a text may contain what looks like another field
    return re.sub("@@([A-Z]+)@@", lambda match: fields[match[1]], asset("explain_page.html"))


def safe_json(value: Any) -> str:
    """JSON without a character that could end its script element, or begin another one."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
