"""Commands and Python functions with the name of a model in place of its folder."""

import json
import os
import subprocess
import sys

import pytest
import torch
import transformers

from support.hub import Hub, running

FEATURES = "features org/tiny texts.txt --out vectors.safetensors --pool mean"
FINETUNE = "finetune org/tiny --train train.csv --dev train.csv --out run --epochs 1 --max_seq_length 16"
PYTHON = "import bertworks; print(bertworks.load_encoder('org/tiny').config.vocab_size)"


@pytest.fixture
def environment(tmp_path):
    """The environment of a process with a local Hub, whose org/tiny has its weights in several files."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", ",", "."]
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "vocab.txt").write_text("\n".join(words) + "\n")
    torch.manual_seed(1)
    sizes = {"vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=64, max_position_embeddings=32)
    transformers.BertForMaskedLM(config).save_pretrained(repository, max_shard_size="20KB")
    transformers.BertTokenizer(str(repository / "vocab.txt")).save_pretrained(repository)
    assert (repository / "model.safetensors.index.json").exists()
    (tmp_path / "texts.txt").write_text("a good film .\nbad , bad\n")
    (tmp_path / "train.csv").write_text("text,label\n" + 'a good film .,1\n"bad , bad",0\n' * 8)
    with running(Hub({"org/tiny": repository})) as hub:
        variables = {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0"}
        yield {**os.environ, **variables}, hub.commit("org/tiny")


def run(environment, folder, *arguments):
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.heavy
def test_a_name_serves_every_command(environment, tmp_path):
    variables, commit = environment
    first = run(variables, tmp_path, "-m", "bertworks", *FEATURES.split())
    assert "org/tiny: downloading" in first.stderr and f"org/tiny: commit {commit}" in first.stderr
    assert f"org/tiny@{commit}" in run(variables, tmp_path, "-m", "bertworks", "models").stdout
    offline = {**variables, "HF_HUB_OFFLINE": "1"}
    run(offline, tmp_path, "-m", "bertworks", *FINETUNE.split())
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["model"] == f"org/tiny@{commit}"
    assert "base_model: org/tiny\n" in (tmp_path / "run" / "model" / "README.md").read_text()
    assert int(run(offline, tmp_path, "-c", PYTHON).stdout) == 11
