"""Servers as processes of their own, for the benchmarks of serving: start, wait until they answer, end.

All of them answer `POST /v1/embeddings` with {"model", "input"}, one text a request, as OpenAI's clients ask.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import psutil

import common
from bertworks.data.corpus import read_documents
from open_loop import Address

START_SECONDS = 180.0
MEDIAN_WORDS, SPREAD, MOST_WORDS = 30, 0.8, 180  # of the texts: log-normal lengths


class Process:
    """A server that runs until `end`."""

    def __init__(self, command: Sequence[str], port: int, environment: Mapping[str, str], log: IO[bytes]):
        self.address, self.log = Address("127.0.0.1", port), log
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, cwd=common.HERE
        )

    def wait(self, path: str = "/health") -> float:
        """Wait until it answers; returns the seconds. Raises RuntimeError if it ends or does not."""
        begun = time.perf_counter()
        while time.perf_counter() - begun < START_SECONDS:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode}: {self.tail}")
            with contextlib.suppress(OSError), socket.create_connection(self.address, 1) as connection:
                connection.sendall(self.address.get(path))
                if connection.recv(100)[9:12] == b"200":
                    return time.perf_counter() - begun
            time.sleep(0.1)
        raise RuntimeError(f"no answer from {path} within {START_SECONDS:g} seconds: {self.tail}")

    @property
    def tail(self) -> str:
        """The end of what it has printed."""
        self.log.flush()
        return Path(self.log.name).read_bytes()[-600:].decode("utf-8", "replace")

    def pause(self) -> None:
        """Stop it and its children until `resume`, so that it takes no time from others."""
        for process in self._all():
            process.suspend()

    def resume(self) -> None:
        """Let it go on."""
        for process in self._all():
            process.resume()

    def _all(self) -> list[psutil.Process]:
        if self.process.poll() is not None:
            return []
        whole = psutil.Process(self.process.pid)
        return [whole, *whole.children(recursive=True)]

    def end(self) -> int:
        """Send SIGTERM, and SIGKILL after 40 seconds; returns the exit status."""
        if self.process.poll() is None:
            self.resume()
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


@contextlib.contextmanager
def started(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A server that answers. It ends with the block."""
    with open(log, "ab") as file:
        server = Process(command, port, environment or {}, file)
        try:
            server.wait()
            yield server
        finally:
            server.end()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bertworks_command(model: Path, port: int, flags: Sequence[str] = ()) -> list[str]:
    """Our server with one model, `model`. It cuts texts that are too long, as other servers do."""
    served = ["serve", f"model={model}", "--port", str(port), "--auto-truncate"]
    return [sys.executable, "-m", "bertworks", *served, *flags]


def mixed_texts(data: Path, count: int, seed: int = 1) -> list[str]:
    """Beginnings of English Wikipedia documents, of mixed lengths: 3 to 180 words, half of them below 30."""
    chance = np.random.default_rng(seed)
    lengths = np.clip(np.exp(chance.normal(np.log(MEDIAN_WORDS), SPREAD, count)), 3, MOST_WORDS).astype(int)
    documents = itertools.islice((doc.text.split() for doc in read_documents([data / common.TEXT])), 4 * count)
    words = [document for document in documents if len(document) >= 3]
    if not words:
        raise SystemExit(f"{data / common.TEXT}: no document of 3 words; expected Wikipedia text")
    random.Random(seed).shuffle(words)
    return [" ".join(words[i % len(words)][:length]) for i, length in enumerate(lengths)]


def embedding_requests(address: Address, texts: Sequence[str]) -> list[bytes]:
    """A request for the vector of each text."""
    bodies = (json.dumps({"model": "model", "input": text}, ensure_ascii=False).encode() for text in texts)
    return [address.post("/v1/embeddings", body) for body in bodies]
