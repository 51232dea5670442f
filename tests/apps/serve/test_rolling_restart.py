"""One of two servers is restarted, and no request is lost (docs/production.md)."""

import asyncio
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack

import httpx
import pytest

from support.tiny_task import tiny_folder

pytestmark = pytest.mark.heavy
CLIENTS = 8


def started(running, folder, port):
    """A server's process, which is killed with the block of `running`."""
    command = [sys.executable, "-m", "bertworks", "serve", str(folder), "--port", str(port)]
    process = running.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    running.callback(process.kill)
    return process


async def ask(client, ports, **body):
    """The status of the first server that answers, and its port: as nginx by the rules of deploy/nginx.conf."""
    for port in ports:
        try:
            answer = await client.post(f"http://127.0.0.1:{port}/embed", json=body)
        except httpx.TransportError:
            continue
        if answer.status_code != 503:
            return answer.status_code, port
    return 0, ports[-1]


async def healthy(client, port):
    for _ in range(600):
        if await ask(client, [port], inputs="a") == (200, port):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the server on {port} does not answer")


async def restart_one(folder, ports, running):
    """(status, port) of every request, of those while the first server is away, and of those after its restart."""
    answers, over = [], asyncio.Event()

    async def ask_again(client, number):
        while not over.is_set():
            answers.append(await ask(client, ports[:: (-1) ** number], inputs=f"good film {'a' * number}"))
            await asyncio.sleep(0.05)

    async with httpx.AsyncClient(timeout=60) as client:
        process, _ = [started(running, folder, port) for port in ports]
        for port in ports:
            await healthy(client, port)
        clients = [asyncio.create_task(ask_again(client, number)) for number in range(1, CLIENTS + 1)]
        await asyncio.sleep(0.5)
        marks = [len(answers)]
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0
        started(running, folder, ports[0])
        await healthy(client, ports[0])
        marks.append(len(answers))
        await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*clients)
    return answers, answers[marks[0] : marks[1]], answers[marks[1] :]


def test_a_rolling_restart_loses_no_request(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    with ExitStack() as holders:
        listeners = [holders.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ports = [listener.getsockname()[1] for listener in listeners]
    with ExitStack() as running:
        answers, away, after = asyncio.run(restart_one(folder, ports, running))
    assert Counter(status for status, _ in answers) == {200: len(answers)}
    assert sum(port == ports[1] for _, port in away) > CLIENTS
    assert {port for _, port in after} == {*ports}  # both answer again
