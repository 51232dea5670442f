"""How worker processes are started: spawned, not forked, and without running the caller's script again.

A fork would leave locks of the caller's threads (torch's, say) held for ever. A spawned process of the standard library
first runs the caller's script again, to find what it defines: a script without `if __name__ == "__main__"` then starts
the same work in every worker, and what is typed at standard input has no file to run. Our workers need nothing of it.
"""

import os
import threading
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

_starting = threading.Lock()


class _Process(SpawnProcess):
    """A spawned process that imports what it works with, not the caller's script."""

    def start(self) -> None:
        with _starting:
            original, thread = spawn.get_preparation_data, threading.get_ident()

            def without_script(name: str) -> dict[str, Any]:
                data = original(name)
                if threading.get_ident() == thread:  # not what another thread starts meanwhile
                    data.pop("init_main_from_path", None)
                    data.pop("init_main_from_name", None)
                return data

            spawn.get_preparation_data = without_script
            try:
                super().start()
            finally:
                spawn.get_preparation_data = original


class Context(SpawnContext):
    """The `mp_context` of a pool. What its processes work on must be defined in a module, not in a script."""

    Process = _Process  # type: ignore[assignment]


def cores() -> int:
    """Cores that this process may use; not every system can say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
