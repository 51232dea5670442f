"""docs/serving.md: its commands run against a server of tiny folders, and answer in the form that the page shows."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bertworks.apps.serve.app import ROUTERS
from bertworks.apps.serve.config import ServeConfig
from bertworks.checkpoint.folder import save_folder
from bertworks.model.build import build_model
from support.served import loaded, serving
from support.tiny_task import TINY

PAGE = (Path(__file__).parents[3] / "docs/serving.md").read_text(encoding="utf-8")
NAMES = {  # of the page, and the tiny folder of the same head
    "sentiment": "labels",
    "names": "tags",
    "answers": "span",
    "meaning": "embeds",
    "words": "mlm",
    "entailment": "nli",
    "ranking": "ranker",
    "endings": "choice",
}
ADDRESS = "localhost:8080"
# a command, and the lines of its output
COMMANDS = re.findall(r"^    (curl .*)\n((?:    .*\n)+)", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def address(head_folders, tmp_path_factory):
    """A server of the page's names; the folder of `meaning` has no head, like one of sentence-transformers."""
    bare = tmp_path_factory.mktemp("bare") / "model"
    save_folder(bare, build_model(TINY, (), seed=4), head_folders["mlm"])
    folders = {name: head_folders.get(tiny, bare) for name, tiny in NAMES.items()}
    with serving(loaded(folders, *folders), ServeConfig(auto_truncate=True)) as url:  # tiny models read 24 tokens
        yield url.removeprefix("http://")


def form(value, depth=3):
    """What a JSON value looks like: keys, and the type of what is in a list."""
    if isinstance(value, dict):
        return {key: form(inner, depth) for key, inner in value.items()}
    if isinstance(value, list):
        return [form(value[0], depth)] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command[:70] for command, _ in COMMANDS])
def test_a_command_of_the_page_answers_as_shown(address, command, shown):
    line = command.replace(ADDRESS, address)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip(), done.stderr
    shown = re.sub(r"^    ", "", shown, flags=re.MULTILINE).strip()
    if "| head" in command:
        assert done.stdout[:2] == shown[:2] and "error" not in done.stdout
    elif "| grep -c" in command:
        assert int(done.stdout) >= int(shown) - 20  # a server that has seen fewer kinds of requests has fewer lines
    elif "| grep" in command:
        assert re.sub(r"\d+", "", done.stdout).split() == re.sub(r"\d+", "", shown).split()
    else:
        assert form(json.loads(done.stdout)) == form(json.loads(shown))


def test_the_python_of_the_page_runs(address, monkeypatch):
    pytest.importorskip("openai")
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict = {}
    exec(code.replace(ADDRESS, address), found)
    assert found["names"].token_classification("a b") is not None


def routes_named(page):
    """The whole paths that are written in code, or requested by a command."""
    words = {word.strip(",;") for code in re.findall(r"`([^`\n]+)`", page) for word in code.split()}
    return words | set(re.findall(r"localhost:8080(/[^\s?'\"`]*)", page))


def test_the_page_names_every_route(address):
    paths = {re.sub(r"\{name(:path)?\}", "NAME", route.path) for router in ROUTERS for route in router.routes}
    paths = {path.replace("{task}", "TASK") for path in paths}
    assert paths - routes_named(PAGE) == set()
