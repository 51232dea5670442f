"""What is checked before a route is called: host, key, content type, size and time of the body.

An ASGI middleware. The body is read here, whole, so that a slow client holds no route, and every route may wait for
`http.disconnect`. Nothing of a body is ever logged.
"""

import asyncio
import base64
import binascii
import gzip
import hmac
import io
import logging
import traceback
import zlib
from collections.abc import Mapping

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .config import ServeConfig
from .errors import Refusal, body_of, shutting_down
from .hosts import is_address, name_of
from .service import Service

log = logging.getLogger(__name__)

PUBLIC = ("/health", "/ping", "/v2/health/live", "/v2/health/ready")  # without a key, a body, or a count
MOST_UNSENT = 1 << 28
ENCODINGS = ("identity", "gzip", "x-gzip")  # of a body
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",  # a page gives its own
}

CHALLENGES = [  # of a 401: a header each, because Chromium shows no dialogue when it meets Bearer first in a joint one
    (b"www-authenticate", b"Bearer"),
    (b"www-authenticate", b'Basic realm="bertworks"'),
]


class Guard:
    """Refuses what no route should see."""

    def __init__(self, app: ASGIApp, config: ServeConfig, service: Service, key: str | None = None):
        """key: that requests must have; None: none is needed."""
        self.app, self.config, self.service = app, config, service
        self.key = None if key is None else key.encode()
        self.hosts = {"localhost", config.host.lower(), *map(str.lower, config.allow_host)}
        self.domains = tuple(host.removeprefix("*") for host in self.hosts if host.startswith("*."))
        self.open = 0  # requests that passed the checks and are being answered
        self.unsent = 0  # bytes of answers that their clients have not taken yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                names = {name.lower() for name, _ in message["headers"]}
                more = [(a.encode(), b.encode()) for a, b in HEADERS.items() if a.encode() not in names]
                if self.service.draining:
                    more.append((b"connection", b"close"))
                message = {**message, "headers": [*message["headers"], *more]}
            body = message.get("body", b"")
            if not body:
                await send(message)
                return
            self.unsent += len(body)
            try:  # the empty rest waits until the client has taken the body
                await send({**message, "more_body": True})
                if not message.get("more_body"):
                    await send({**message, "body": b""})
            finally:
                self.unsent -= len(body)

        try:
            public = self.check(scope)
            if scope["method"] == "HEAD":  # answered like GET; the protocol leaves the body out
                scope = {**scope, "method": "GET"}
            if public:
                await self.app(scope, receive, answer)
                return
            self.open += 1
            try:
                body = await self.body_of(scope, receive)
                await self.app(scope, replayed(body, receive), answer)
            finally:
                self.open -= 1
        except Refusal as refusal:
            await self.refuse(refusal, scope["path"], answer)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            log.error("%s in %s, line %s", type(error).__name__, where.filename, where.lineno)
            if not started:
                await self.refuse(Refusal(500, "the server made an error; its log says where"), scope["path"], answer)

    async def refuse(self, refusal: Refusal, path: str, send: Send) -> None:
        """Send a refusal in the form of the path's dialect."""
        self.service.metrics.failure.labels(refusal.error_type.lower()).inc()
        refusal.message = self.service.without_paths(refusal.message)
        body = orjson.dumps(body_of(refusal, path))
        headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        if refusal.status == 401:
            pairs += CHALLENGES
        await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    # ---- the checks

    def check(self, scope: Scope) -> bool:
        """Whether a request is for everybody, judged by its head. Raises Refusal for one that no route should see."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Refusal(400, "several Host headers; send one")
        self.check_host(headers.get("host", ""))
        if scope["path"] in PUBLIC:
            if scope["method"] not in ("GET", "HEAD"):
                message = f"no route {scope['method'][:20]} {scope['path']}; send GET or HEAD"
                raise Refusal(405, message, {"Allow": "GET, HEAD", "Connection": "close"})
            return True
        self.check_key(headers.get("authorization", ""))
        if self.service.overrun:
            raise shutting_down()
        if self.open >= self.config.max_requests:
            message = f"{self.open} requests are being answered; expected at most {self.config.max_requests}"
            raise Refusal(429, f"{message}; try again", {"Retry-After": "1"})
        if self.unsent > MOST_UNSENT:
            message = f"{self.unsent:,} bytes of answers wait for their clients; expected at most {MOST_UNSENT:,}"
            raise Refusal(429, f"{message}; try again", {"Retry-After": "1"})
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and _is_empty(headers):
                raise Refusal(400, "an empty body; send a JSON object", error_type="Empty")
            if kind != "application/json":
                raise Refusal(415, f"content type {kind[:80]!r}; expected application/json; set that header")
            encoding = headers.get("content-encoding", "identity").strip().lower()
            if encoding not in ENCODINGS:
                raise Refusal(415, f"content encoding {encoding[:80]!r}; expected gzip, or none; remove that header")
            length = headers.get("content-length", "")
            if length.isdigit() and int(length) > self.config.max_body:
                raise self.too_large()
        return False

    def check_host(self, host: str) -> None:
        """Raises Refusal for a name that is not this server's: a page elsewhere may have pointed its own name here."""
        if "*" in self.hosts:
            return
        name = name_of(host)
        if name is None or not (name in self.hosts or name.endswith(self.domains) or is_address(name)):
            raise Refusal(400, f"the Host header names {host[:80]!r}; allow it with: bertworks serve --allow-host NAME")

    def check_key(self, header: str) -> None:
        """Raises Refusal without the key: a bearer token, or the password of HTTP Basic, which browsers ask for."""
        if self.key is None:
            return
        scheme, _, value = header.partition(" ")
        given = value.strip().encode()
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                given = b""
        if scheme.lower() not in ("bearer", "basic") or not hmac.compare_digest(given, self.key):
            message = "no key, or a wrong one; send the header Authorization: Bearer KEY"
            raise Refusal(401, message)

    # ---- the body

    async def body_of(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, decompressed. Raises Refusal: 413 if it is too large, 408 if it does not arrive in time."""
        try:
            async with asyncio.timeout(self.config.body_seconds):
                body = await self.read(receive)
        except TimeoutError:
            message = f"the body did not arrive in {self.config.body_seconds:g} seconds; send it faster"
            raise Refusal(408, message, {"Connection": "close"}) from None
        encodings = [value.strip().lower() for name, value in scope["headers"] if name == b"content-encoding"]
        return self.unzipped(body) if body and set(encodings) & {b"gzip", b"x-gzip"} else body

    def unzipped(self, body: bytes) -> bytes:
        """A body without its compression. Raises Refusal: 400 if it is no gzip, 413 if it is too large."""
        try:
            with gzip.open(io.BytesIO(body)) as file:
                found = file.read(self.config.max_body + 1)
        except (OSError, EOFError, zlib.error):
            message = "the body is no gzip, or a part of one; send it whole, or without Content-Encoding"
            raise Refusal(400, message) from None
        if len(found) > self.config.max_body:
            raise self.too_large()
        return found

    async def read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "the connection was closed before the body ended", {"Connection": "close"})
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.config.max_body:
                raise self.too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    def too_large(self) -> Refusal:
        most = f"{self.config.max_body:,}"
        return Refusal(413, f"a body of more than {most} bytes; send several requests", {"Connection": "close"})


def _is_empty(headers: Mapping[str, str]) -> bool:
    """Whether a request announces no body."""
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


def replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first, then what `receive` gives: the end of the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
