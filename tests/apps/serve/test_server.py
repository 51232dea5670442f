"""The process of a server: what stops it at its start, its screen, and how it ends."""

import re
import shutil
import signal
import socket
import subprocess
import sys

import httpx
import pytest

import bertworks.inference.engines as engines
from bertworks.apps.serve import server
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import load_models
from bertworks.apps.serve.server import KEY, bind, read_keys
from bertworks.apps.serve.service import Service
from bertworks.files import InputError
from support.served import wait_for

# ---- the start


@pytest.mark.parametrize("listens", [True, False])
def test_a_port_in_use_is_named_before_anything_is_loaded(head_folders, refused, monkeypatch, listens):
    """By another program, or by a server that is still loading and does not listen yet."""
    monkeypatch.setattr("bertworks.apps.serve.models.load_models", lambda *_: pytest.fail("models are loaded"))
    with socket.create_server(("127.0.0.1", 0)) if listens else bind(ServeConfig(port=0)) as other:
        port = other.getsockname()[1]
        message = refused("serve", head_folders["mlm"], "--port", port)
    assert f"127.0.0.1:{port}: cannot listen (Address already in use)" in message
    bind(ServeConfig(port=port)).close()  # free again


def test_a_server_says_what_it_loads_before_it_does_and_opens_at_last(head_folders, monkeypatch, capsys):
    """run_server's order of events: bound, announced, loaded, warm, open, served."""
    events, address = [], []

    def connects():
        try:
            socket.create_connection(address[0], 5).close()
            return "open"
        except ConnectionRefusedError:
            return "refused"

    def load(*arguments):
        events.append(capsys.readouterr().out)
        return load_models(*arguments)

    real_bind, warm_up = server.bind, Service.warm_up
    monkeypatch.setattr(server, "bind", lambda config: (one := real_bind(config), address.append(one.getsockname()))[0])
    monkeypatch.setattr("bertworks.apps.serve.models.load_models", load)
    monkeypatch.setattr(Service, "warm_up", lambda self: (warm_up(self), events.append(connects())))
    monkeypatch.setattr(server, "serve", lambda app, listener, config: events.append(connects()))
    folder = str(head_folders["mlm"])
    server.run_server([folder], ServeConfig(port=0))
    assert f"loading {folder} for http://127.0.0.1:{address[0][1]}" in events[0]
    assert events[1:] == ["refused", "open"]


@pytest.mark.parametrize(
    ("host", "message"), [("no.such.host.invalid", "--host"), ("192.0.2.1", "expected an address of this machine")]
)
def test_a_host_that_is_none_is_named(host, message):
    with pytest.raises(InputError, match=message):
        bind(ServeConfig(host=host, port=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no folder to serve"),
        (["nothing"], "nothing: no such folder"),
        (["a=MLM", "a=MLM"], "two folders of the name 'a'; give each a name of its own"),
        (["a/b=MLM"], "'a/b=.*mlm': expected FOLDER, or NAME=FOLDER"),
    ],
)
def test_folders_that_cannot_be_served_are_named(head_folders, arguments, message):
    with pytest.raises(InputError, match=message):
        load_models([one.replace("MLM", str(head_folders["mlm"])) for one in arguments])


def test_models_have_the_names_of_their_folders(head_folders, tmp_path):
    tiny = head_folders["mlm"]
    other = shutil.copytree(tiny, tmp_path / "lr=3e-5")
    assert list(load_models([str(tiny), str(other)])) == ["mlm", "lr=3e-5"]
    assert load_models([str(tiny)], "bfloat16")["mlm"].info["precision"] == "bfloat16"


@pytest.mark.parametrize(("fast", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_server_computes_in_what_is_faster_here(head_folders, monkeypatch, fast, precision):
    found = []
    monkeypatch.setattr(engines, "has_bfloat16", lambda: fast)
    monkeypatch.setattr(server, "serve", lambda app, listener, config: found.append(app.state.service.models["mlm"]))
    server.run_server([str(head_folders["mlm"])], ServeConfig(port=0))
    assert found[0].predictor.loaded.device.type == "cuda" or found[0].info["precision"] == precision


def test_keys_are_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY, raising=False)
    assert read_keys(ServeConfig()) == []
    monkeypatch.setenv(KEY, "from-the-environment")
    assert read_keys(ServeConfig()) == ["from-the-environment"]
    file = tmp_path / "key"
    file.write_text("from-a-file\n\nof-another-user\n")
    assert read_keys(ServeConfig(key_file=file)) == ["from-a-file", "of-another-user"]
    for wrong in ("", "\n", "short", "long-enough\nshort", "two words of it", "schlüssel-mit-umlaut"):
        file.write_text(wrong)
        with pytest.raises(InputError, match="key"):
            read_keys(ServeConfig(key_file=file))
    with pytest.raises(InputError, match="no such file"):
        read_keys(ServeConfig(key_file=tmp_path / "none"))
    monkeypatch.setenv(KEY, "")
    with pytest.raises(InputError, match=KEY):
        read_keys(ServeConfig())


# ---- the end


@pytest.mark.heavy
def test_the_verb_serves_a_folder(head_folders, tmp_path):
    (tmp_path / "key").write_text("correct-horse")
    words = ["serve", str(head_folders["labels"]), "--port", "0", "--key-file", str(tmp_path / "key")]
    with subprocess.Popen([sys.executable, "-m", "bertworks", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = re.search("http://[0-9.:]+", process.stdout.readline())[0]
            assert any("stop" in line for line in process.stdout)
            body, key = {"inputs": "a good film"}, {"authorization": "Bearer correct-horse"}
            wait_for(lambda: httpx.get(f"{url}/health").status_code == 200)
            refused = httpx.post(f"{url}/predict", json=body)
            assert refused.status_code == 401
            assert refused.headers.get_list("www-authenticate") == ["Bearer", 'Basic realm="bertworks"']
            answer = httpx.post(f"{url}/predict", json=body, headers=key)
            assert {one["label"] for one in answer.json()} == {"one", "two", "three"} and "server" not in answer.headers
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stdout.read().endswith("finishing 0 requests\nstopped\n")
        finally:
            process.kill()
