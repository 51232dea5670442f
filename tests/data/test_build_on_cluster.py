"""A store that the workers of a dask scheduler build has the bytes of one built here, whoever is killed meanwhile."""

import gzip
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from bertworks.data.build import BuildConfig, build
from support.builds import LINES, content, document

pytest_plugins = ["support.build_fixtures"]

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("small_parts")]
pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A text, a compressed one, and small files, with duplicates among all."""
    folder = tmp_path_factory.mktemp("texts")
    texts = [document(seed, 20) for seed in (*range(900), *range(60))]
    (folder / "a.txt").write_text("\n\n".join(texts[:400]))
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(texts[400:600]).encode()))
    for number in range(6):
        lines = (json.dumps({"text": text}) for text in texts[600 + number :: 6])
        (folder / f"c{number}.jsonl").write_text("\n".join(lines))
    return folder


def run(inputs, tokenizer, out, **settings):
    return build([inputs], tokenizer, out, BuildConfig(LINES, shard_tokens=10_000, **settings), progress=False)


@pytest.fixture(scope="module")
def whole(inputs, tokenizer, tmp_path_factory):
    """The files of the store as one process builds it."""
    out = tmp_path_factory.mktemp("whole") / "store"
    run(inputs, tokenizer, out, workers=1)
    return content(out)


def when(out: Path, pattern: str, count: int, do) -> threading.Thread:
    """A thread that calls `do` once there are `count` such files in the working folder of the build."""

    def watch() -> None:
        end = time.monotonic() + 60
        while len([*(out / ".parts").glob(pattern)]) < count and time.monotonic() < end:
            time.sleep(0.002)
        do()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_killed_workers_change_nothing(inputs, tokenizer, whole, tmp_path):
    from distributed import Client, LocalCluster

    out, draw, killed = tmp_path / "store", random.Random(2), []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local, Client(local) as client:

        def kill() -> None:
            process = draw.choice([*client.run(os.getpid).values()])
            os.kill(process, signal.SIGKILL)
            killed.append(process)

        threads = [when(out, "*.tokens.npy", 20, kill), when(out, "train-*.json", 4, kill)]
        run(inputs, tokenizer, out, scheduler=local.scheduler_address)
        for thread in threads:
            thread.join(60)
    assert len(killed) == 2
    assert content(out) == whole
