"""The npm clients, where they are installed; they were run so with @huggingface/inference 4.13.30 and openai 6.49.0.

mkdir clients && npm install --prefix clients @huggingface/inference openai
BERTWORKS_NPM=$PWD/clients pytest tests/apps/serve/test_npm.py
"""

import os
import subprocess
from pathlib import Path

import pytest

FOLDER = os.environ.get("BERTWORKS_NPM", "")


@pytest.mark.skipif(not FOLDER, reason="BERTWORKS_NPM names no folder with npm's clients")
def test_the_npm_clients(server_url):
    script = Path(__file__).with_name("npm_clients.mjs")
    done = subprocess.run(["node", script, server_url, FOLDER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("held:") == 14
