"""Model names: paths, bundled encoders, and repositories of a server that speaks the Hub's API."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from bertworks.checkpoint.locate import run_name
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.pretrained import folder_of, hub, name_of, names
from support.hub import Hub, running
from support.tiny_task import tiny_folder

RESOLVE = """
import sys
import time
from bertworks.files import InputError
from bertworks.pretrained import folder_of, name_of
time.sleep = lambda seconds: None  # before huggingface_hub tries again
try:
    folder = folder_of(sys.argv[1])
except InputError as error:
    sys.exit(str(error))
files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
print(name_of(folder), *files, sep="\\n")
"""
WANTED = ["1_Pooling/config.json", "config.json", "model.safetensors", "vocab.txt"]


@pytest.fixture
def server(tmp_path):
    """A Hub with a repository of 3 MB, also under the name of a gated one."""
    repository = tmp_path / "repository"
    for name in (
        *WANTED,
        "model.fp16.safetensors",
        "1_x/y/config.json",
        "pytorch_model.bin",
        "onnx/model.onnx",
        "onnx/config.json",
        "training_args.bin",
    ):
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(3_000_000) if name == "model.safetensors" else b"{}")
    with running(Hub({"org/name": repository, "org/gated": repository}, gated=("org/gated",))) as hub:
        yield hub


def resolve(server, tmp_path, name, **environment):
    """Another process: huggingface_hub reads the environment when it is imported. Returns stdout and stderr."""
    variables = {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": server.endpoint, "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", RESOLVE, name]
    done = subprocess.run(
        command, env={**os.environ, **variables, **environment}, cwd=tmp_path, capture_output=True, text=True
    )
    return done.stdout, done.stderr


def requested(server):
    """The files that were downloaded, and from where on."""
    return [line for line in server.requests if line.startswith("GET /") and "/resolve/" in line]


def test_a_repository_is_downloaded_once(server, tmp_path):
    commit = server.commit("org/name")
    printed, notes = resolve(server, tmp_path, "org/name")
    assert printed.split() == [f"org/name@{commit}", *WANTED]
    assert notes == f"org/name: downloading 3.0 MB from the Hugging Face Hub\norg/name: commit {commit}\n"
    server.requests.clear()
    assert resolve(server, tmp_path, "org/name@v1") == (printed, "")
    assert not requested(server)
    for environment in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):  # nothing listens on port 9
        assert resolve(server, tmp_path, "org/name", **environment) == (printed, "")


@pytest.mark.heavy
def test_an_interrupted_download_is_resumed(server, tmp_path):
    server.cut = 700_000  # each request breaks off; huggingface_hub gives up after some
    _, notes = resolve(server, tmp_path, "org/name")
    assert notes.endswith("run the command again to resume it\n")
    server.requests.clear()
    server.cut = None
    printed, _ = resolve(server, tmp_path, "org/name")
    assert printed.split()[1:] == WANTED
    folder = next((tmp_path / "cache" / "hub").glob("models--org--name/snapshots/*"))
    assert (folder / "model.safetensors").read_bytes() == server.files("org/name")["model.safetensors"].read_bytes()
    assert [line for line in requested(server) if "model.safetensors" in line]


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        ("org/missing", {}, "org/missing: neither a folder on this machine nor a public repository of http"),
        ("org/gated", {}, "org/gated: access is restricted; request it on http"),
        ("org/name@v9", {}, "org/name: the repository has no revision 'v9'; expected a branch, a tag or a commit"),
        ("org/name", {"HF_HUB_OFFLINE": "1"}, "nor a complete earlier download, and HF_HUB_OFFLINE is set"),
        ("org/name", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "download, and http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_cannot_be_downloaded(server, tmp_path, name, environment, expected):
    printed, notes = resolve(server, tmp_path, name, **environment)
    assert not printed
    assert expected in notes and len(notes.splitlines()) == 1


def test_a_full_disk_a_repository_that_is_too_large_and_an_invalid_name(server, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_missing", lambda name, request: [hub.MAX_BYTES, 1])
    with pytest.raises(
        InputError, match=r"org/large: 8589\.9 MB to download; expected an encoder of at most 8589\.9 MB"
    ):
        hub.download("org/large", "large")
    monkeypatch.setattr(hub, "_missing", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(InputError, match=r"org/name: no space left in .*; free some, or set HF_HOME"):
        hub.download("org/name", "full-disk")
    _, notes = resolve(server, tmp_path, "org/na--me")
    assert "nor a valid name of a repository; expected org/name or org/name@revision" in notes


def test_paths_come_first(tmp_path, monkeypatch):
    """A folder, a mistyped path beside existing folders, and what has not the form of a name cause no download."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(names, "download", lambda *arguments: pytest.fail(f"download{arguments}"))
    for folder in ("mini", "runs/base"):
        Path(folder).mkdir(parents=True)
    assert folder_of("mini") == Path("mini") and name_of(Path("mini")) is None
    assert run_name(Path("runs/bert@v1")) == "bert@v1"
    paths = "runs/base runs/bsae nothing a/b/c ../org/name /org/name org/name/ . org//name a/b@../../evil a/b@/x"
    for path in paths.split():
        assert folder_of(path) == Path(path)


def test_a_bundled_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "HERE", tmp_path)
    (tmp_path / "mini").mkdir()
    assert folder_of("mini") == tmp_path / "mini" and name_of(tmp_path / "mini") == "mini"
    with pytest.raises(InputError, match=r"mini-ko: no bundled .* which has mini; give the path .*, or org/name"):
        folder_of("mini-ko")
    (tmp_path / "mini").rmdir()
    with pytest.raises(InputError, match="which has none"):
        folder_of("mini")


def test_models_lists_what_can_be_used(tmp_path, monkeypatch, capsys):
    """No other kinds of models, no damaged settings, no weights that are missing as a whole or in part."""
    index, link = '{"weight_map": {"a": "model-1.safetensors"}}', "model-1.safetensors"
    for name in ("good", "gpt", "damaged", "empty", "part", "broken"):
        tiny_folder(tmp_path / name)
        if name in ("empty", "part", "broken"):
            (tmp_path / name / "model.safetensors").unlink()
    (tmp_path / "gpt/config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "damaged/config.json").write_text("{")
    for name in ("part", "broken"):
        (tmp_path / name / "model.safetensors.index.json").write_text(index)
    (tmp_path / "broken" / link).symlink_to("blob")  # which is missing
    monkeypatch.setattr(hub, "cached", lambda: [(f"org/{one.name}", one) for one in tmp_path.iterdir()])
    main(["models"])
    assert re.findall(r"org/\w+", capsys.readouterr().out) == ["org/good"]
