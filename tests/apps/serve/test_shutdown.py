"""The end of a server: what had arrived before the signal is read before the listener is closed."""

import asyncio
import socket
import time

import pytest

from bertworks.apps.serve.server import caught_up


@pytest.mark.parametrize("accepted", [True, False])
def test_the_listener_waits_for_connections_that_have_arrived(accepted):
    """They are accepted after 0.2 seconds, or never: then the wait ends by itself."""

    async def wait(listener) -> float:
        begun = time.perf_counter()
        if accepted:
            asyncio.get_running_loop().call_later(0.2, listener.accept)
        await caught_up([listener], 0.8)
        return time.perf_counter() - begun

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        seconds = asyncio.run(wait(listener))
    assert 0.25 < seconds < 0.8 if accepted else seconds >= 0.8


def test_the_listener_waits_for_a_loop_that_is_behind():
    """A loop that wakes late has not read everything."""

    async def wait() -> float:
        loop, begun = asyncio.get_running_loop(), time.perf_counter()
        for number in range(6):
            loop.call_later(0.05 * number, time.sleep, 0.05)
        await caught_up([], 5.0)
        return time.perf_counter() - begun

    assert 0.3 < asyncio.run(wait()) < 4.0
