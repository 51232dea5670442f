"""README's own lines, typed in an empty folder with bertworks installed from a wheel: what a newcomer does first."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bertworks.tokenizer import SPECIAL_TOKENS
from conftest import WORDS, tiny_texts
from support.tf_writer import write_bundle

ROOT = Path(__file__).parents[1]
TINY = "--model.num-hidden-layers 4 --model.hidden-size 32 --model.num-attention-heads 2 --model.intermediate-size 64"
ONE_EPOCH = "--epochs 1 --max-seq-length 16"
SHORTER = {  # what is appended to a line of README, by its beginning, so that the whole test takes seconds
    "bertworks pretrain": f"{TINY} --loop.tokens 2000 --loop.eval-every 1000",
    "bertworks distill": "--loop.tokens 2000 --loop.hours 0",
    "bertworks finetune --task sst2": ONE_EPOCH,
    "bertworks finetune --kind tagging": ONE_EPOCH,
    "bertworks finetune --task mrpc": "--restarts 1 --max-seq-length 16",
    "bertworks finetune --suite": f"--seeds 1 2 {ONE_EPOCH}",
    "bertworks study": "--dry-run",
}
DRIVER = """
import json, shlex, shutil, sys
from pathlib import Path
from bertworks.cli import main
for line, shorter in json.loads(Path("lines.json").read_text()):
    print("$", line, shorter, flush=True)
    if line.startswith("bertworks compare"):  # two finished runs of one task
        for name in ("one", "other"):
            shutil.copytree("runs/sst2", f"runs/{name}")
    main([*shlex.split(line, comments=True)[1:], *shlex.split(shorter)])
print("$ python", flush=True)
exec(Path("example.py").read_text())
print(encoder.config.hidden_size, "done", flush=True)
"""


def blocks() -> list[str]:
    """README's indented blocks, without the indent."""
    found = re.findall(r"(?:^(?: {4}.*)?\n)+", (ROOT / "README.md").read_text("utf-8"), re.M)
    return [re.sub("^ {4}", "", block, flags=re.M).strip() for block in found if block.strip()]


def lines() -> list[str]:
    [block] = [block for block in blocks() if block.startswith("bertworks tokenizer train")]
    return block.splitlines()


def example() -> str:
    [block] = [block for block in blocks() if block.startswith("import bertworks")]
    return block


def words(rng, n=5) -> str:
    return " ".join(rng.choices(WORDS, k=n))


def write(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def write_data(folder: Path) -> None:
    """Every file that README's lines name, as small as it may be."""
    rng = random.Random(1)
    lexicon = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(3, 9))) for _ in range(6000)]  # 8,192 pieces
    for i, text in enumerate(tiny_texts(200)):
        sentences = (" ".join(lexicon[j : j + 8]) for j in range(30 * i, 30 * i + 30, 8) for _ in range(3))
        write(folder / "texts" / f"{i}.txt", [text, *(f"{sentence.capitalize()}." for sentence in sentences)])
    for name in ("texts.txt", "reviews.txt"):
        write(folder / name, [words(rng), "", words(rng)])
    for name, rows in (("train", 32), ("dev", 12)):
        films = [f"{words(rng)}\t{i % 2}" for i in range(rows)]
        write(folder / "glue/SST-2" / f"{name}.tsv", ["sentence\tlabel", *films])
        pairs = [f"{i % 2}\t1\t2\t{words(rng)}\t{words(rng)}" for i in range(rows)]
        write(folder / "glue/MRPC" / f"{name}.tsv", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *pairs])
        named = ("contradiction", "entailment", "neutral")
        file = {"train": "train.tsv", "dev": "dev_matched.tsv"}[name]
        entailed = [f"{words(rng)}\t{words(rng)}\t{named[i % 3]}" for i in range(rows)]
        write(folder / "data/glue/MNLI" / file, ["sentence1\tsentence2\tgold_label", *entailed])
        tagged = [{"words": words(rng).split(), "tags": ["B-PER", "I-PER", "O", "O", "B-LOC"]} for _ in range(rows)]
        write(folder / {"train": "a.jsonl", "dev": "b.jsonl"}[name], list(map(json.dumps, tagged)))
    for name in ("eng.train", "eng.testa", "eng.testb"):
        tokens = [f"{word} NN I-NP I-PER\n{words(rng, 1)} NN I-NP O\n" for word in WORDS]
        write(folder / "data/conll2003" / name, ["-DOCSTART- -X- -X- O\n", *tokens])


def write_original(folder: Path) -> None:
    """A checkpoint of the original program, of one layer."""
    folder.mkdir()
    vocab = [*SPECIAL_TOKENS, *"abcdefghij"]
    write(folder / "vocab.txt", vocab)
    V, P, D, inner = len(vocab), 8, 8, 16
    shape = {"vocab_size": V, "max_position_embeddings": P, "hidden_size": D, "intermediate_size": inner}
    shape |= {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "gelu", "type_vocab_size": 2}
    (folder / "bert_config.json").write_text(json.dumps(shape))
    sizes = {"bert/embeddings/word_embeddings": (V, D), "bert/embeddings/position_embeddings": (P, D)}
    sizes |= {"bert/embeddings/token_type_embeddings": (2, D), "cls/predictions/output_bias": (V,)}
    sizes |= {"cls/seq_relationship/output_weights": (2, D), "cls/seq_relationship/output_bias": (2,)}
    layer, transform = "bert/encoder/layer_0", "cls/predictions/transform"
    dense = {f"{layer}/attention/self/{name}": (D, D) for name in ("query", "key", "value")}
    dense |= {f"{layer}/attention/output/dense": (D, D), f"{layer}/intermediate/dense": (D, inner)}
    dense |= {f"{layer}/output/dense": (inner, D), "bert/pooler/dense": (D, D), f"{transform}/dense": (D, D)}
    for name, (n, m) in dense.items():
        sizes |= {f"{name}/kernel": (n, m), f"{name}/bias": (m,)}
    for name in ("bert/embeddings", f"{layer}/attention/output", f"{layer}/output", transform):
        sizes |= {f"{name}/LayerNorm/{part}": (D,) for part in ("gamma", "beta")}
    write_bundle(folder / "bert_model.ckpt", {name: np.full(size, 0.1, np.float32) for name, size in sizes.items()})


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of a wheel's contents, built from the files that a checkout has."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "source/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *alone, "--no-build-isolation", "-w", "dist", "./source"], cwd=folder, check=True)
    [wheel] = (folder / "dist").glob("*.whl")
    subprocess.run([*pip, "install", *alone, "--target", "site", str(wheel)], cwd=folder, check=True)
    return folder / "site"


@pytest.mark.heavy
def test_readmes_lines_run_from_a_wheel_in_an_empty_folder(installed, tmp_path):
    write_data(tmp_path)
    write_original(tmp_path / "uncased_L-12_H-768_A-12")
    asked = lines()
    assert len(asked) > 15 and all(any(line.startswith(begun) for line in asked) for begun in SHORTER)
    shorter = [next((more for begun, more in SHORTER.items() if line.startswith(begun)), "") for line in asked]
    (tmp_path / "lines.json").write_text(json.dumps(list(zip(asked, shorter, strict=True))))
    (tmp_path / "example.py").write_text(example())
    environment = os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "120"}
    command = shutil.which("bertworks", path=installed / "bin")
    where = subprocess.run([command, "recipes", "pretrain/cpu"], cwd=tmp_path, env=environment, capture_output=True)
    assert b"hidden_size = 256" in where.stdout, where.stderr
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    typed = [line for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert done.returncode == 0, f"{typed[-1:]}\n{done.stderr[-2000:]}"
    assert done.stdout.endswith("32 done\n") and len(typed) == len(asked) + 1
    for name in ("runs/first/curves.png", "runs/sst2/results.json", "runs/ner/model", "sweeps/mrpc/sweep.md", "suite"):
        assert (tmp_path / name).exists(), name
    for name in ("bert-base/config.json", "runs/student/model", "vectors.safetensors", "attention.html"):
        assert (tmp_path / name).exists(), name
