"""A server on localhost with the part of the Hugging Face Hub's API that huggingface_hub needs to download models."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REQUEST = re.compile(
    r"/(?P<api>api/models/)?(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<what>revision|tree|resolve)/(?P<revision>[^/?]+))?"
    r"(?:/(?P<file>[^?]+))?(?:\?.*)?"
)


@dataclass
class Hub:
    """Repositories and what was requested. cut: bytes after which the answer to a request for a file breaks off."""

    repositories: Mapping[str, Path]
    gated: tuple[str, ...] = ()
    cut: int | None = None
    endpoint: str = ""
    requests: list[str] = field(default_factory=list)

    def commit(self, repo: str) -> str:
        """The commit of the only version."""
        return hashlib.sha1(repo.encode()).hexdigest()

    def files(self, repo: str) -> dict[str, Path]:
        """The files of a repository by path."""
        root = self.repositories[repo]
        return {file.relative_to(root).as_posix(): file for file in sorted(root.rglob("*")) if file.is_file()}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def answer_json(self, value: Any) -> None:
            self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
            match = REQUEST.fullmatch(self.path)
            if match is None or match["repo"] not in hub.repositories:
                return self.answer(404, X_Error_Code="RepoNotFound")
            repo, commit = match["repo"], hub.commit(match["repo"])
            if match["revision"] not in (None, "main", "v1", commit):
                return self.answer(404, X_Error_Code="RevisionNotFound")
            files = hub.files(repo)
            if match["what"] == "resolve":
                if repo in hub.gated:
                    return self.answer(403, X_Error_Code="GatedRepo")
                return self.answer_file(files.get(match["file"]), commit)
            if match["what"] == "tree":
                return self.answer_json(
                    [{"type": "file", "path": name, "size": file.stat().st_size, "oid": _digest(file)}
                     for name, file in files.items()]
                )  # fmt: skip
            return self.answer_json({"id": repo, "sha": commit, "siblings": [{"rfilename": name} for name in files]})

        do_HEAD = do_GET

        def answer_file(self, file: Path | None, commit: str) -> None:
            if file is None:
                return self.answer(404, X_Error_Code="EntryNotFound")
            data, headers = file.read_bytes(), {"X_Repo_Commit": commit, "ETag": f'"{_digest(file)}"'}
            headers["Accept_Ranges"] = "bytes"
            status, span = 200, re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if span is not None:
                start, status = int(span[1]), 206
                headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                data = data[start:]
            if hub.cut is None or self.command == "HEAD" or len(data) <= hub.cut:
                return self.answer(status, data, **headers)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data[: hub.cut])
            self.close_connection = True

    return Handler


def _digest(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """The server, until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
