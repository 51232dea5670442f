"""Two servers behind a proxy are restarted one after the other, and no request is lost (docs/production.md)."""

import asyncio
import socket
import subprocess
import sys
import time

import pytest

from support.proxy import Proxy
from support.tiny_task import tiny_folder

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.heavy
CLIENTS = 8
CLOSE, CALM = 0.02, 0.2  # seconds between the requests of a client


def free_ports(count):
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def start(folder, port):
    command = [sys.executable, "-m", "bertworks", "serve", str(folder), "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


async def healthy(port, process):
    """Wait until the server on this port answers."""
    async with httpx.AsyncClient() as client:
        for _ in range(600):
            assert process.poll() is None, process.stderr.read()
            try:
                if (await client.get(f"http://127.0.0.1:{port}/health", timeout=60)).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError(f"the server on {port} does not answer")


class Stream:
    """Requests one after the other, and what became of them."""

    def __init__(self, port):
        self.address, self.over = f"http://127.0.0.1:{port}/embed", False
        self.sent, self.good, self.bad = 0, [], []
        self.pause = CLOSE

    async def client(self, number):
        async with httpx.AsyncClient(timeout=60) as client:
            while not self.over:
                self.sent += 1
                try:
                    answer = await client.post(self.address, json={"inputs": f"good film {'a' * number}"})
                    (self.good if answer.status_code == 200 else self.bad).append((time.monotonic(), answer.text[:200]))
                except httpx.TransportError as error:
                    self.bad.append((time.monotonic(), repr(error)))
                await asyncio.sleep(self.pause)


async def restart_in_turn(folder, ports, processes):
    async with Proxy(ports) as proxy:
        stream = Stream(proxy.port)
        clients = [asyncio.create_task(stream.client(i)) for i in range(1, CLIENTS + 1)]
        away = []
        for i, port in enumerate(ports):
            await asyncio.sleep(0.5)
            begun = time.monotonic()
            processes[i].terminate()
            assert await asyncio.to_thread(processes[i].wait, 30) == 0, processes[i].stderr.read()
            processes[i], stream.pause = start(folder, port), CALM  # so that the start has a processor
            await healthy(port, processes[i])
            away.append((begun, time.monotonic()))
            stream.pause = CLOSE
        before = dict(proxy.answered)
        await asyncio.sleep(0.5)
        stream.over = True
        await asyncio.gather(*clients)
        return stream, away, {port: proxy.answered[port] - before[port] for port in ports}


def test_a_rolling_restart_loses_no_request(tmp_path):
    folder, ports = tiny_folder(tmp_path / "model"), free_ports(2)
    processes = [start(folder, port) for port in ports]

    async def whole():
        for port, process in zip(ports, processes, strict=True):
            await healthy(port, process)
        return await restart_in_turn(folder, ports, processes)

    try:
        stream, away, after = asyncio.run(whole())
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert stream.bad == []
    assert len(stream.good) == stream.sent
    for begun, ended in away:  # the other server answered while this one was away
        assert sum(begun < when < ended for when, _ in stream.good) > CLIENTS
    assert all(count > 0 for count in after.values())  # both answer again
