"""The files of deploy/ name flags, routes and metrics that exist."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest

from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.metrics import Metrics

pytest.importorskip("prometheus_client")
ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
FLAGS = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(ServeConfig)}


@pytest.fixture(scope="module")
def metrics():
    """Every name in /metrics, once each has a value."""
    found = Metrics()
    labels = "single", "tiny", "/embed"
    found.success.labels(*labels).inc()
    found.duration.labels(*labels[1:]).observe(0.1)
    found.count.labels(*labels).inc()
    found.failure.labels("overloaded", "", "").inc()
    return set(re.findall(r"^([a-z_]+)[{ ]", found.text().decode(), re.MULTILINE))


def read(name):
    return (DEPLOY / name).read_text(encoding="utf-8")


def test_the_unit_starts_a_server_that_exists():
    unit = dict(re.findall(r"^(\w+)=(.*)$", read("bertworks@.service"), re.MULTILINE))
    command = shlex.split(unit["ExecStart"].replace("%i", "8081").replace("%d", "/run/credentials"))
    assert command[:2] == ["/opt/bertworks/bin/bertworks", "serve"]
    assert {word for word in command if word.startswith("--")} <= FLAGS
    assert float(unit["TimeoutStopSec"]) > float(command[command.index("--grace") + 1])
    assert unit["KillSignal"] == "SIGTERM" and "/health" in unit["ExecStartPost"]


def test_the_image_starts_a_server_that_exists_as_an_ordinary_user():
    text = read("Dockerfile")
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    last = stages[-1]
    assert all("slim" in stage.split("\n")[0] for stage in stages)
    entry, default = (json.loads(re.search(rf"^{name} (\[.*\])$", last, re.M)[1]) for name in ("ENTRYPOINT", "CMD"))
    assert entry[:2] == ["bertworks", "serve"]
    assert {word for word in entry if word.startswith("--")} <= FLAGS and default == ["/models/sst2"]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, re.MULTILINE)
    port = re.search(r"^EXPOSE (\d+)$", last, re.MULTILINE)[1]
    assert entry[entry.index("--port") + 1] == port and f":{port}/health" in last
    assert "pip" not in last and "apt" not in last  # nothing is fetched into the image that runs
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in copied.split():
            assert (ROOT / name).exists(), name
            assert f"!{name}" in read("Dockerfile.dockerignore").split("\n"), name


def test_the_dashboard_shows_all_metrics(metrics):
    panels = json.loads(read("grafana.json"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"\b(?:te|bertworks)_[a-z_]+", text)}
    assert used and used <= metrics, used - metrics
    every, shown = ({re.sub(r"_(bucket|sum|count|created)$", "", name) for name in names} for names in (metrics, used))
    assert every <= shown | {"te_request"}, f"not on the dashboard: {every - shown}"


def test_the_page_names_what_exists(metrics):
    text = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\b(?:te|bertworks)_[a-z_]{5,}", text))
    assert used <= metrics, used - metrics
    for name in re.findall(r"`(deploy/[^`]+)`", text):
        assert (ROOT / name).is_file(), name


def test_the_proxy_retries_what_may_be_retried():
    text = read("nginx.conf")
    retried = re.search(r"proxy_next_upstream (.*);", text)[1].split()
    assert {"error", "timeout", "http_503", "non_idempotent"} <= set(retried) and "http_429" not in retried
    most = int(re.search(r"client_max_body_size (\d+)m;", text)[1])
    assert most * 1_000_000 >= ServeConfig().max_body
