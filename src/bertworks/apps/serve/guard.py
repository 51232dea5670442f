"""What is checked before a route is called: host, key, content type, size and time of the body.

An ASGI middleware. The body is read here, whole, so that a slow client holds no route, and every route may wait for
`http.disconnect`. Nothing of a body is ever logged.
"""

import asyncio
import base64
import binascii
import hmac
import logging
import re
import traceback
from collections.abc import Mapping, Sequence

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .config import ServeConfig
from .errors import HTTPError, body_of
from .metrics import route_of
from .service import Service

log = logging.getLogger(__name__)

PUBLIC = ("/health", "/ping", "/v2/health/live", "/v2/health/ready")  # without a key, a body, or a count
BODY_SECONDS = 10.0  # in which a body must arrive
# an IPv6 address in brackets, or a name or IPv4 address; a port. Strict: what is read wrongly could be another's name
HOST = re.compile(r"(?:\[([0-9a-f]*:[0-9a-f:.]*)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)
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

    def __init__(self, app: ASGIApp, config: ServeConfig, service: Service, keys: Sequence[str] = ()):
        """keys: of which requests must have one; none: no key is needed."""
        self.app, self.config, self.service = app, config, service
        self.keys = [key.encode() for key in keys]
        self.hosts = {"localhost", config.host.lower(), *map(str.lower, config.allow_host)}
        self.domains = tuple(host.removeprefix("*") for host in self.hosts if host.startswith("*."))
        self.open = 0  # requests other than GET that passed the checks and are being answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False
        scope = self.below_root(scope)

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": self.with_headers(message["headers"])}
            await send(message)

        try:
            await self.handle(scope, receive, answer)
        except HTTPError as error:
            await self.send_error(error, scope, answer)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            log.error("%s in %s, line %s", type(error).__name__, where.filename, where.lineno)
            if not started:
                await self.send_error(HTTPError(500, "the server made an error; its log says where"), scope, answer)

    def below_root(self, scope: Scope) -> Scope:
        """A copy of a request's scope whose path has no root path; HEAD becomes GET, whose body the protocol omits."""
        root, method, path = self.config.root_path, scope["method"], scope["path"]
        if root and (path == root or path.startswith(f"{root}/")):
            path = path.removeprefix(root) or "/"
        return {**scope, "path": path, "root_path": root, "method": "GET" if method == "HEAD" else method}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the route of a request that passes the checks."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.check_host(headers.get("host", ""))
        if scope["method"] == "GET":  # metrics and the page are answered however busy the server is
            if scope["path"] not in PUBLIC:
                self.check_key(headers.get("authorization", ""))
            await self.app(scope, receive, send)
            return
        self.check_key(headers.get("authorization", ""))
        if self.open >= self.config.max_requests:
            message = f"{self.open} requests wait; expected at most {self.config.max_requests}; try again"
            raise HTTPError(429, message, {"Retry-After": "1"})
        if scope["method"] == "POST":
            self.check_head(headers)
        self.open += 1
        try:
            body = await self.body_of(receive)
            await self.app(scope, replayed(body, receive), send)
        finally:
            self.open -= 1

    def with_headers(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers of an answer, and those that every answer has."""
        names = {name.lower() for name, _ in headers}
        more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in names]
        if self.service.draining:
            more.append((b"connection", b"close"))
        return [*headers, *more]

    async def send_error(self, error: HTTPError, scope: Scope, send: Send) -> None:
        """Send an error in the form that clients of the path expect."""
        self.service.metrics.failure.labels(error.error_type.lower(), scope.get("model", ""), route_of(scope)).inc()
        error.message = self.service.without_paths(error.message)
        body = orjson.dumps(body_of(error, scope["path"]))
        headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        pairs += CHALLENGES if error.status == 401 else []
        await send({"type": "http.response.start", "status": error.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    # ---- the checks

    def check_host(self, host: str) -> None:
        """Raises HTTPError for a name that is not this server's: another site may point its name here."""
        if "*" in self.hosts:
            return
        match = HOST.fullmatch(host.lower())
        name = (match[1] or match[2].removesuffix(".")) if match else ""
        address = match and (match[1] or name.replace(".", "").isdigit())  # no name that somebody could own
        if not (name in self.hosts or (name and name.endswith(self.domains)) or address):
            raise HTTPError(
                400, f"the Host header names {host[:80]!r}; allow it with: bertworks serve --allow-host NAME"
            )

    def check_key(self, header: str) -> None:
        """Raises HTTPError without a key: a bearer token, or the password of HTTP Basic, which browsers ask for."""
        if not self.keys:
            return
        scheme, _, value = header.partition(" ")
        given = value.strip().encode()
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                given = b""
        right = [hmac.compare_digest(given, key) for key in self.keys]  # all of them, so that the time tells nothing
        if scheme.lower() not in ("bearer", "basic") or not any(right):
            raise HTTPError(401, "no key, or a wrong one; send the header Authorization: Bearer KEY")

    def check_head(self, headers: Mapping[str, str]) -> None:
        """Raises HTTPError for a body that is too large, absent or no JSON by its headers."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        length = headers.get("content-length", "")
        if length in ("", "0") and "transfer-encoding" not in headers:
            raise HTTPError(400, "an empty body; send a JSON object", error_type="Empty")
        if kind != "application/json":
            raise HTTPError(415, f"content type {kind[:80]!r}; expected application/json; set that header")
        if "content-encoding" in headers:
            raise HTTPError(415, "a body with Content-Encoding; send it as it is, without that header")
        if length.isdigit() and int(length) > self.config.max_body:
            raise self.too_large()

    async def body_of(self, receive: Receive) -> bytes:
        """The whole body. Raises HTTPError: 413 if it is too large, 408 if it does not arrive in time."""
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPError(400, "the connection was closed before the body ended", CLOSE)
                    parts.append(message.get("body", b""))
                    if sum(map(len, parts)) > self.config.max_body:
                        raise self.too_large()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            late = f"the body did not arrive in {BODY_SECONDS:g} seconds; send it faster"
            raise HTTPError(408, late, CLOSE) from None

    def too_large(self) -> HTTPError:
        return HTTPError(413, f"a body of more than {self.config.max_body:,} bytes; send several requests", CLOSE)


CLOSE = {"Connection": "close"}


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
