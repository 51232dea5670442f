"""Hashes of seven tiny trainings, of this source and of a commit, on this machine: which bits did a change move?

    python tests/golden.py [COMMIT] [--precision float32|bfloat16]

Every training is a command of its own process with one thread, on the same store, which this source builds. A hash
covers names, types and bytes of all weights after the last update. With bfloat16 the C kernels compute, where gcc is
installed. The hashes of different kinds of processors differ, so they are compared, not stored.
"""

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import tomli_w
import torch
from safetensors import safe_open

from conftest import tiny_texts

ROOT = Path(__file__).parent.parent
LOOP = """
[optim]
lr = 1e-3
[loop]
steps = 12
log_every = 4
save_every = 0
eval_every = 0
precision = "{precision}"
"""
LOOP += "".join(f"[[phases]]\nlength = {length}\nbudget_fraction = 0.5\nbatch_size = 8\n" for length in (16, 32))
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SHAPE |= {"max_position_embeddings": 32}
LEFT, ROTARY = {"direction": "left"}, {"position_embedding_type": "rotary"}
NO_PAIRS = {"type_vocab_size": 0}
FULL = '[instances]\ninput_format = "full-sentences"\n'
NGRAMS = "[masking]\nngrams = 3\nwhole_word = true\n"
LOCAL = {"local_rope_theta": 10_000.0, "rope_theta": 160_000.0, "attention_window": 8}
MODERN = {"family": "modernbert", "bias": False, "norm": "pre", "feed_forward": "geglu"} | NO_PAIRS | ROTARY | LOCAL
MODELS = {  # objective, what differs in [model], and other tables
    "bert": ("mlm+nsp", {}, ""),
    "albert": ("mlm+sop", {"family": "albert", "embedding_size": 16, "shared_layers": "all"}, NGRAMS),
    "modern": ("mlm", MODERN, FULL),
    "gpt": ("ltr", LEFT | ROTARY | NO_PAIRS, FULL),
    "recurrent": ("ltr", LEFT | {"layer_type": "lstm"}, ""),
}


def run(source: Path, folder: Path, command: str) -> None:
    """A command of the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "bertworks", *command.split()]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bertworks {command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def make_inputs(folder: Path, precision: str) -> None:
    """A store, recipes, and a table for fine-tuning."""
    texts = tiny_texts()
    (folder / "text.txt").write_text("\n\n".join(texts))
    rows = (f"{text.split('.')[0]},{'even' if i % 2 else 'odd'}\n" for i, text in enumerate(texts[:64]))
    (folder / "rows.csv").write_text("text,label\n" + "".join(rows))
    run(ROOT / "src", folder, "tokenizer train text.txt --out tok --vocab-size 300 --uncased")
    build = "--workers 1 --input.documents blank-line --validation-share 0 --min-validation-documents 0"
    run(ROOT / "src", folder, f"corpus build text.txt --tokenizer tok --out store {build}")
    size = len((folder / "tok" / "vocab.txt").read_text().splitlines())
    loop = LOOP.format(precision=precision)
    for name, (objective, model, tables) in MODELS.items():
        recipe = tomli_w.dumps({"objective": objective, "model": {"vocab_size": size, **SHAPE, **model}})
        (folder / f"{name}.toml").write_text(recipe + tables + loop)
    (folder / "distill.toml").write_text(loop)


def train(source: Path, folder: Path, out: str, precision: str) -> dict[str, str]:
    """The hash of each training's weights."""
    commands = {name: f"pretrain {name}.toml --corpus store --out {out}/{name}" for name in MODELS}
    commands["distillation"] = f"distill distill.toml --teacher {out}/bert --corpus store --out {out}/distillation"
    few = f"--max-seq-length 24 --batch-size 8 --epochs 2 --loop.eval-every 0 --loop.precision {precision}"
    data = "--train rows.csv --dev rows.csv --text text --label label"
    commands["fine-tuning"] = f"finetune {data} --model {out}/bert --out {out}/fine-tuning {few}"
    found = {}
    for name, command in commands.items():
        run(source, folder, command)
        found[name] = weights_hash(folder / out / name / "model" / "model.safetensors")
    return found


def weights_hash(path: Path) -> str:
    """Of names, types and bytes of all tensors."""
    digest = hashlib.sha256()
    with safe_open(path, "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name).contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Print the hashes; 1 if those of the commit differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, options.precision)
        found, other = train(ROOT / "src", folder, "here", options.precision), dict[str, str]()
        if options.commit:
            archive = subprocess.run(
                ["git", "-C", str(ROOT), "archive", options.commit, "src"], capture_output=True, check=True
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder / "commit", filter="data")
            if "budget_fraction" not in (folder / "commit/src/bertworks/pretraining/recipe.py").read_text():
                for recipe in folder.glob("*.toml"):  # until version 0.2 its name was share
                    recipe.write_text(recipe.read_text().replace("budget_fraction", "share"))
            other = train(folder / "commit" / "src", folder, "there", options.precision)
    for training, digest in found.items():
        there = other.get(training, "")
        print(f"{training:14}{digest}  {there}{'  differs' if there not in ('', digest) else ''}")
    return int(bool(other) and found != other)


if __name__ == "__main__":
    sys.exit(main())
