"""Commands and Python functions with the name of a model in place of its folder."""

import json
import os
import subprocess
import sys

import pytest
import transformers

from support.hub import Hub, running

ONLINE = """
main("features org/tiny texts.txt --out vectors.safetensors --pool mean".split())
main(["models"])
"""
OFFLINE = """
main("finetune org/tiny --train train.csv --dev train.csv --out run --epochs 1 --max_seq_length 16".split())
print("vocabulary:", bertworks.load_encoder("org/tiny").config.vocab_size)
"""


def run(environment, folder, code):
    """Another process: huggingface_hub reads the environment when it is imported."""
    command = [sys.executable, "-c", f"import bertworks\nfrom bertworks.cli import main\n{code}"]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.heavy
def test_a_name_serves_every_command(tmp_path):
    """On a local Hub, whose org/tiny has its weights in several files."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", ",", "."]
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=64, max_position_embeddings=32)
    transformers.BertForMaskedLM(config).save_pretrained(repository, max_shard_size="20KB")
    transformers.BertTokenizer(str(repository / "vocab.txt")).save_pretrained(repository)
    assert (repository / "model.safetensors.index.json").exists()
    (tmp_path / "texts.txt").write_text("a good film .\nbad , bad\n")
    (tmp_path / "train.csv").write_text("text,label\n" + 'a good film .,1\n"bad , bad",0\n' * 8)
    with running(Hub({"org/tiny": repository})) as hub:
        variables, commit = {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": hub.endpoint}, hub.commit("org/tiny")
        first = run(variables | {"HF_HUB_OFFLINE": "0"}, tmp_path, ONLINE)
        assert "org/tiny: downloading" in first.stderr and f"org/tiny: commit {commit}" in first.stderr
        assert f"org/tiny@{commit}" in first.stdout
        second = run(variables | {"HF_HUB_OFFLINE": "1"}, tmp_path, OFFLINE)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["model"] == f"org/tiny@{commit}" and "vocabulary: 11\n" in second.stdout
    assert "base_model: org/tiny\n" in (tmp_path / "run" / "model" / "README.md").read_text()
