"""The page at `/`: one HTML file, assembled from page/, that connects only to its own server.

Its scripts and styles are inside it, and the Content-Security-Policy names them by their hashes: nothing else runs, and
no request leaves for another host. Texts of users and names of models reach the page as JSON and are shown as text.
"""

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

from fastapi import Response

from ..probing.explanation_page import SCRIPTS as EXPLAIN
from ..probing.explanation_page import STYLE, asset
from .routes import api_router

SCRIPTS = ("texts", "base", "api", "tool", "words", "vectors", "start")  # of page/, in this order

router = api_router("page")


class Page(NamedTuple):
    """The HTML, and the policy that its response needs."""

    html: str
    policy: str


@functools.cache
def page() -> Page:
    """The page of every server."""
    folder = files(__package__) / "page"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    own = "".join(read(f"{name}.js") for name in SCRIPTS)
    script = "\n".join(['"use strict";', *map(asset, EXPLAIN), own])
    parts = {"STYLE": asset(STYLE) + read("page.css"), "SCRIPT": script}
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; script-src {_hash(parts['SCRIPT'])}; style-src {_hash(parts['STYLE'])}"
    )
    return Page(re.sub("@@([A-Z]+)@@", lambda match: parts[match[1]], read("page.html")), policy)


def _hash(text: str) -> str:
    """The source expression of an element's text, as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@router.get("/", include_in_schema=False)
async def show() -> Response:
    """The page."""
    index = page()
    headers = {"content-security-policy": index.policy, "cache-control": "no-cache"}
    return Response(index.html, media_type="text/html; charset=utf-8", headers=headers)
