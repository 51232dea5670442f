"""Attacks a running server with damaged requests over plain sockets, and kills it; counts how each request ends.

    OMP_NUM_THREADS=1 python benchmarks/hostile_server.py [--cases 2000] [--kills 20] [--seed 1] [--smoke]

A case is a pure function of (seed, index). It takes a valid request of one route and damages the body, the whole
request, its Content-Length, or cuts it short and leaves. The server may answer, refuse (4xx) with a message, or close
the connection. Findings:

    500         5xx, except 503                              hang      no byte for ten seconds
    closed      no answer to a whole request                 cut       an answer of fewer bytes than its head says
    form        a refusal without its JSON message           long      a message of more than 2,000 characters
    folder      a path of the server's machine in an answer  changed   a valid request has another answer than before
    traceback   in the server's log                          dead      the server has ended

Kills: SIGKILL while requests are answered, then a new server on the same port. It must answer as before, and no file of
the models may have changed. `tests/apps/serve` sends well-formed, odd bodies to every route;
this program sends requests that are not valid HTTP.
"""

import json
import random
import re
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import common
import mutations
from bertworks.checkpoint.folder import load_tokenizer, save_folder
from bertworks.files import checksum
from bertworks.model.config import HeadName, ModelConfig
from bertworks.model.heads import build_model
from open_loop import Address
from server_process import Process, free_port, started

PATIENCE = 2.0  # seconds without an answer, after which a client ends its side
SILENCE = 10.0  # seconds without an answer that count as a hang
VALID_EVERY = 20  # cases from one valid request to the next
WARM = 0.2  # share of the cases after which memory is first measured
MODELS: dict[str, tuple[HeadName, list[str] | None]] = {
    "model": ("classifier", ["a", "b"]),
    "tags": ("tagger", ["O", "B-X", "I-X"]),
    "answers": ("span", None),
}
TEXT = "The court sat in Seoul and heard the case."
BODIES: dict[str, Any] = {  # of valid requests
    "/": {"inputs": [TEXT, "a"], "parameters": {"top_k": 2}},
    "/models/tags": {"inputs": TEXT},
    "/models/answers": {"inputs": {"question": "Who sat?", "context": TEXT}},
    "/embed": {"inputs": [TEXT, "a"], "normalize": True, "truncate": True},
    "/predict": {"inputs": [TEXT], "raw_scores": False},
    "/tokenize": {"inputs": TEXT},
    "/v1/embeddings": {"model": "model", "input": [TEXT, "a"], "encoding_format": "float"},
}
LENGTHS = ("-1", "0", "1", "99999999999999999999", "1e3", "0x10", "", "5, 5", "\u0661", "7;", " ")
NO_HTTP = b"Invalid HTTP request received."  # uvicorn's own answer, before there is a request to refuse
SMOKE = {"cases": 12, "kills": 1}


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "hostile-server.json")
    made.add_argument("--cases", type=int, default=2000, help="damaged requests")
    made.add_argument("--kills", type=int, default=20, help="SIGKILLs of the server")
    made.add_argument("--seed", type=int, default=1, help="seed of the damage")
    made.add_argument("--model", type=Path, default=common.minilm(), help="model folder whose vocabulary is served")
    with common.parsed(made, argv, SMOKE) as options:
        common.need(options.model)
        with tempfile.TemporaryDirectory() as folder:
            result = attack(options, Path(folder))
        common.finish(options, result)
        if result["findings"]:
            raise SystemExit(f"{len(result['findings'])} findings")


def make_models(model: Path, folder: Path) -> None:
    """Small models with random weights: a classifier, a tagger, one that answers questions."""
    tokenizer = load_tokenizer(model)
    shape = ModelConfig(tokenizer.vocab_size, 32, 1, 2, 64, max_position_embeddings=128)
    for name, (head, names) in MODELS.items():
        save_folder(folder / name, build_model(shape, (head,), len(names or "ab"), seed=1), tokenizer, labels=names)


def attack(options: Any, folder: Path) -> common.Result:
    """All cases on one server, then the kills."""
    make_models(options.model, folder)
    address = Address("127.0.0.1", free_port())
    served = [f"{name}={folder / name}" for name in MODELS]
    command = [sys.executable, "-m", "bertworks", "serve", *served, "--port", str(address.port)]
    before = {str(file): checksum(file) for file in sorted(folder.rglob("*")) if file.is_file()}
    log, environment = folder / "log", {"OMP_NUM_THREADS": "1"}
    ends, findings, memory = Counter[str](), list[dict[str, Any]](), list[float]()
    begun = time.perf_counter()
    with started(command, address.port, log, environment) as server:
        expected = {path: answer_to(address, address.post(path, body_of(path))) for path in BODIES}
        if refused := [path for path, answer in expected.items() if b" 200 " not in answer[:20]]:
            raise SystemExit(f"{refused[0]}: a valid request was refused: {expected[refused[0]][-300:]!r}")
        for index in range(options.cases):
            rng = random.Random(f"{options.seed}/{index}")
            path, request, leaves, whole = case(rng, address)
            answer = answer_to(address, request, leaves)
            end, finding = judged(answer, leaves, whole, folder)
            ends[end] += 1
            if not finding and index % VALID_EVERY == 0:
                sound = answer_to(address, address.post(path, body_of(path)))
                finding = "" if body_in(sound) == body_in(expected[path]) else "changed"
            if server.process.poll() is not None:
                finding = "dead"
            if finding:
                findings.append({"index": index, "path": path, "finding": finding, "answer": repr(answer[-300:])})
            if index in (int(WARM * options.cases), options.cases - 1):
                memory.append(server.own_memory() / 1e6)
            if finding == "dead":
                break
    wrong = killed(options, command, address, log, expected)
    findings += [{"kill": kill, "finding": finding} for kill, finding in wrong]
    if b"Traceback" in log.read_bytes():
        findings.append({"finding": "traceback", "answer": log.read_bytes()[-2000:].decode("utf-8", "replace")})
    after = {str(file): checksum(file) for file in sorted(folder.rglob("*")) if file.is_file() and file != log}
    if before != after:
        findings.append({"finding": "files of the models changed"})
    return {
        "machine": common.machine_facts(),
        "seed": options.seed,
        "cases": options.cases,
        "ends": dict(ends),
        "kills": options.kills,
        "findings": findings,
        "memory_mb": [round(size, 1) for size in memory],
        "seconds": round(time.perf_counter() - begun, 1),
    }


def body_of(path: str) -> bytes:
    """The body of a valid request."""
    return json.dumps(BODIES[path]).encode()


def case(rng: random.Random, address: Address) -> tuple[str, bytes, bool, bool]:
    """The route, the damaged request, whether the client leaves before its end, and whether it is whole HTTP."""
    path, other = rng.choice([*BODIES]), body_of(rng.choice([*BODIES]))
    body, how = body_of(path), rng.random()
    if how < 0.45:
        return path, address.post(path, mutations.mutate_json(rng, body, other)), False, True
    request = address.post(path, body)
    if how < 0.65:
        return path, mutations.mutate_bytes(rng, request, address.post("/embed", other)), False, False
    if how < 0.75:
        head, _, _ = request.partition(b"Content-Length")
        return path, head + f"Content-Length: {rng.choice(LENGTHS)}\r\n\r\n".encode() + body, False, False
    if how < 0.9:
        return path, request[: rng.randrange(len(request))], rng.random() < 0.5, False
    return path, request * rng.choice((2, 3, 20)), rng.random() < 0.5, True


def answer_to(address: Address, request: bytes, leaves: bool = False) -> bytes:
    """The first answer, as far as it came until the server closed; b"hang" for silence.

    leaves: reset the connection instead of reading. Where nothing comes the client says after a while that nothing
    follows, so that a server which waits for the rest can end.
    """
    received, patient = b"", True
    connection = socket.create_connection(address, SILENCE)  # a server that is not there is an error here
    with connection, suppress(ConnectionError):
        connection.sendall(request)
        if leaves:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        connection.settimeout(PATIENCE)
        while not is_whole(received):
            try:
                block = connection.recv(1 << 16)
            except TimeoutError:
                if not patient:
                    return b"hang" + received
                patient = False
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(SILENCE)
                continue
            if not block:
                break
            received += block
    return received


def is_whole(answer: bytes) -> bool:
    """Whether the first answer has as many bytes as its head says."""
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end and length and len(body) >= int(length[1]))


def body_in(answer: bytes) -> bytes:
    """The body of an answer."""
    return answer.partition(b"\r\n\r\n")[2]


def judged(answer: bytes, leaves: bool, whole: bool, folder: Path) -> tuple[str, str]:
    """How a case ended: left, closed, or the class of its status; and what is wrong with that, "" if nothing.

    whole: whether the request was one as HTTP has it, whatever its body.
    """
    if leaves:
        return "left", ""
    if answer.startswith(b"hang"):
        return "silent", "hang"
    if not answer:
        return "closed", "closed" if whole else ""
    if not is_whole(answer):
        return "cut", "cut"
    status, body = answer[9:12].decode("latin-1"), body_in(answer)
    if any(str(path).encode() in answer for path in (folder, common.HERE.parent)):
        return status, "folder"
    if status.startswith("5") and status != "503":
        return status, "500"
    if body == NO_HTTP:
        return "no HTTP", ""
    if status.startswith("4"):
        with suppress(ValueError):
            told = json.loads(body.partition(b"HTTP/1.1 ")[0])
            message = told.get("error") if isinstance(told, dict) else None
            message = message.get("message") if isinstance(message, dict) else message
            if isinstance(message, str) and message:
                return "4xx", "" if len(message) <= 2_000 else "long"
        return "4xx", "form"
    return f"{status[0]}xx", ""


def killed(
    options: Any, command: list[str], address: Address, log: Path, expected: dict[str, bytes]
) -> list[tuple[int, str]]:
    """Kill servers that are answering; what is wrong with the server that follows each, by the number of the kill."""
    found = []
    for kill in range(options.kills + 1):
        rng = random.Random(f"{options.seed}/kill/{kill}")
        with open(log, "ab") as file:
            server = Process(command, address.port, {"OMP_NUM_THREADS": "1"}, file)
            try:
                server.wait()
                path = rng.choice([*BODIES])
                if body_in(answer_to(address, address.post(path, body_of(path)))) != body_in(expected[path]):
                    found.append((kill, "changed"))
                if kill < options.kills:
                    with socket.create_connection(address, SILENCE) as connection:
                        connection.sendall(address.post(path, body_of(path)) * 20)
                        time.sleep(rng.random() * 0.05)
                        server.process.send_signal(signal.SIGKILL)
            finally:
                server.end()
    return found


if __name__ == "__main__":
    main()
