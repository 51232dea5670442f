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
    last = re.split(r"^FROM ", text, flags=re.MULTILINE)[-1]
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", last, re.M)[1])
    assert entry[:2] == ["bertworks", "serve"] and {word for word in entry if word.startswith("--")} <= FLAGS
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, re.MULTILINE)
    port = re.search(r"^EXPOSE (\d+)$", last, re.MULTILINE)[1]
    assert entry[entry.index("--port") + 1] == port and f":{port}/health" in last
    assert "pip" not in last and "apt" not in last  # nothing is fetched into the image that runs
    for name in " ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)).split():
        assert (ROOT / name).exists() and f"!{name}" in read("Dockerfile.dockerignore").split("\n"), name


def test_the_dashboard_shows_all_metrics_and_the_page_names_what_exists():
    every = Metrics()
    for metric in (every.success, every.count):
        metric.labels("single", "mlm", "/embed").inc()
    every.duration.labels("mlm", "/embed").observe(0.1)
    every.failure.labels("overloaded", "", "").inc()
    names = set(re.findall(r"^([a-z_]+)[{ ]", every.text().decode(), re.MULTILINE))
    panels = json.loads(read("grafana.json"))["panels"]
    text = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    used = set(re.findall(r"\b(?:te|bertworks)_[a-z_]+", text))
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    assert used and used | set(re.findall(r"\b(?:te|bertworks)_[a-z_]{5,}", page)) <= names
    bare, shown = ({re.sub(r"_(bucket|sum|count|created)$", "", name) for name in some} for some in (names, used))
    assert bare <= shown | {"te_request"}, f"not on the dashboard: {bare - shown}"
    assert all((ROOT / name).is_file() for name in re.findall(r"`(deploy/[^`]+)`", page))


def test_the_proxy_retries_what_may_be_retried():
    text = read("nginx.conf")
    retried = re.search(r"proxy_next_upstream (.*);", text)[1].split()
    assert {"error", "timeout", "http_503", "non_idempotent"} <= set(retried) and "http_429" not in retried
    most = int(re.search(r"client_max_body_size (\d+)m;", text)[1])
    assert most * 1_000_000 >= ServeConfig().max_body
