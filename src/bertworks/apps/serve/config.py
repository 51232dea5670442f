"""The settings of a server: the flags of `bertworks serve`. Importing them loads no torch."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...files import InputError


@dataclass(frozen=True)
class ServeConfig:
    """Where a server listens, and what it accepts."""

    host: str = "127.0.0.1"  # address to listen on; 0.0.0.0: every network of this machine
    port: int = 8080  # port to listen on; 0: any free one
    # names under which clients call this server, besides localhost and IP addresses; *.example.com: every name below
    # example.com; *: any name, which needs a key or a network that only clients reach
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    """web pages that may call this server from a browser (CORS), such as https://example.com; *: any page"""
    root_path: str = ""  # path below which a proxy serves this server, such as /bert; the proxy may remove it or not
    key_file: Path | None = None
    """file with API keys, one per line; none: BERTWORKS_API_KEY, and without it no key is needed"""
    # number type of weights and matrix products; exports keep theirs; auto: bfloat16 where the processor multiplies it
    # faster than float32
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    examples: bool = False  # offer development examples of served runs on the page, to everybody who can open it
    auto_truncate: bool = False  # truncate inputs that are too long, also without `truncate` in the request
    # seconds between SIGTERM, from which /health answers 503, and the end of accepting connections
    notice: float = 0.0
    grace: float = 30.0  # seconds after that to answer accepted requests; the rest is answered with 503
    batch_tokens: int = 0  # largest number of tokens per forward pass; 0: 512 (GPU: 32,768; exports: one text)
    max_tokens: int = 300_000
    """largest number of tokens per request, overlaps of windows included; more is refused with 413"""
    max_requests: int = 256  # largest number of requests that wait or are being answered; more are refused with 429
    max_body: int = 4_000_000  # largest body of a request, in bytes

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("max_requests", 1), ("max_body", 1), ("batch_tokens", 0)):
            if vars(self)[name] < least:
                raise InputError(f"{name} = {vars(self)[name]}; expected {least} or more")
        for name in ("notice", "grace"):
            if not 0 <= vars(self)[name] < 1e6:
                raise InputError(f"{name} = {vars(self)[name]}; expected seconds, 0 or more")
        if not 0 <= self.port < 65536:
            raise InputError(f"port = {self.port}; expected 0 to 65535")
        for origin in self.allow_origin:
            if not re.fullmatch(r"\*|https?://[^/]+", origin):
                raise InputError(f"allow_origin = {origin!r}; expected an origin such as https://example.com, or *")
        if self.root_path and (self.root_path[0] != "/" or self.root_path.endswith("/")):
            raise InputError(f"root_path = {self.root_path!r}; expected such as /bert, without a slash at its end")
