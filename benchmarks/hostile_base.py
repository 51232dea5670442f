"""Makes the valid inputs that hostile.py attacks, by bertworks itself and with helpers of tests/.

What a clock or the machine decides is taken out of logs and results, so that a seed attacks the same bytes everywhere.
"""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from box import call
from hostile_inputs import LONGER, OWN, SMALL
from hostile_tables import write_tables, write_tasks, write_texts

CLOCK = {
    "seconds",
    "tokens_per_second",
    "sequences_per_second",
    "share_of_peak",
    "memory",
    "left",
    "machine",
    "versions",
    "commit",
    "date",
    "time",
}
PRETRAIN = """
eval_batches = 1
[model]
vocab_size = {vocab}
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 32
[optim]
lr = 1e-3
[loop]
steps = 4
log_every = 1
eval_every = 2
save_every = 2
precision = "float32"
compile = "off"
[[phases]]
length = 16
share = 0.5
batch_size = 4
[[phases]]
length = 32
share = 0.5
batch_size = 4
"""
FINETUNE = """
batch_size = 4
max_seq_length = 24
epochs = 1.0
[optim]
lr = 5e-5
[loop]
eval_every = 0
precision = "float32"
"""
STUDY = """
title = "Tiny"
source = "a paper"
base = "both"
pretrain = "pretrain.toml"
finetune = "finetune.toml"
seeds = [1]
variants = [
    { name = "both" },
    { name = "left", pretrain.objective = "ltr", pretrain.model.direction = "left" },
    { name = "random", finetune.random_init = true },
]
columns = [
    { name = "perplexity", pretrain = "mlm_perplexity" },
    { name = "CoLA", task = "cola", data = "cola", train_rows = 8 },
]
[paper]
"both" = { perplexity = 4.0, CoLA = 60.0 }
"""


def make(base: Path) -> None:
    """Everything below `base`, which is the working directory; a finished base is left as it is."""
    if (base / "whole").exists():
        return
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    os.chdir(base)
    write_texts(base)
    _tokenizers(base)
    write_tables(base)
    write_tasks(base)
    _trained(base)
    _checkpoints(base)
    for path in [*base.rglob("log.jsonl"), *base.rglob("results.json"), *base.rglob("study.json")]:
        _without_clock(path)
    (base / "whole").write_text("")


def make_export(base: Path) -> None:
    """The ONNX export of a fine-tuned model below `base`. It needs the extra `export`."""
    os.chdir(base)
    call("export run-single --out exported")


def _tokenizers(base: Path) -> None:
    from support.spiece_files import PIECES, charsmap, model_bytes
    from support.tiny_task import VOCAB

    (base / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    (base / "spiece.model").write_bytes(model_bytes({**PIECES, "▁good": 1, "▁bad": 1, "c": 1}, charmap=charsmap()))
    for kind, folder in (("wordpiece", "tok"), ("bpe", "bpe"), ("unigram", "unigram")):
        size = 300 if kind == "bpe" else 120
        call(f"tokenizer train text.txt corpus-text --out {folder} --vocab-size {size} --algorithm {kind}")
    (base / "merges").mkdir()
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(base / "bpe" / name, base / "merges" / name)


def _trained(base: Path) -> None:
    """A store, models, finished and stopped runs, a study."""
    from bertworks.tokenizer import Tokenizer

    many = "--workers 1 --shard-tokens 2000 --input.documents blank-line"
    call(f"corpus build corpus-text --tokenizer tok --out store {many}")
    vocab = Tokenizer.load(base / "tok").vocab_size
    (base / "recipe.toml").write_text(PRETRAIN.format(vocab=vocab))
    (base / "finetune.toml").write_text(FINETUNE)
    (base / "study").mkdir()
    (base / "study/study.toml").write_text(STUDY)
    (base / "study/pretrain.toml").write_text(PRETRAIN.format(vocab=vocab))
    (base / "study/finetune.toml").write_text(FINETUNE)
    call("pretrain recipe.toml --corpus store --out run-pretrain")
    shutil.copytree(base / "run-pretrain/model", base / "model")
    for kind in ("single", "tagging", "span"):
        form = "csv" if kind == "single" else "jsonl"
        more = LONGER if kind == "span" else SMALL
        call(f"finetune --train {kind}.{form} --dev {kind}.{form} {OWN[kind]} --model model --out run-{kind} {more}")
    (base / "data").mkdir()
    shutil.copytree(base / "cola", base / "data/cola")
    call("study run study/study.toml --corpus store --data data --out studied --minute")
    shutil.rmtree(base / "studied/cells")
    shutil.rmtree(base / "data")
    _stopped()


def _stopped() -> None:
    """A run stopped at its first checkpoint."""
    from bertworks.training import loop

    before, seen = loop.Checkpoints.save, list[int]()

    def save(self: Any) -> None:
        before(self)
        if not seen:
            os.kill(os.getpid(), signal.SIGTERM)
        seen.append(1)

    loop.Checkpoints.save = save  # type: ignore[method-assign]
    try:
        call("pretrain recipe.toml --corpus store --out stopped")
    except SystemExit as stopped:
        assert stopped.code == 3, stopped.code
    finally:
        loop.Checkpoints.save = before  # type: ignore[method-assign]


def _checkpoints(base: Path) -> None:
    """The model as others write it: in shards, for sentence-transformers, by TensorFlow."""
    import numpy as np
    import safetensors.numpy

    from support.tf_writer import write_bundle

    shutil.copytree(base / "model", base / "sharded")
    (base / "sharded/model.safetensors").unlink()
    tensors, places = safetensors.numpy.load_file(base / "model/model.safetensors"), dict[str, str]()
    for i in range(2):
        part = {name: tensors[name] for name in sorted(tensors)[i::2]}
        file = f"model-{i + 1:05}-of-00002.safetensors"
        safetensors.numpy.save_file(part, base / "sharded" / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": places}
    (base / "sharded/model.safetensors.index.json").write_text(json.dumps(index))
    call("convert model pooling --to sentence-transformers")
    (base / "tf").mkdir()
    arrays = _original_names(base)
    write_bundle(base / "tf/bert_model.ckpt", arrays)
    settings = json.loads((base / "tf/bert_config.json").read_text())
    assert settings["vocab_size"] > 0
    shapes, at = {}, 0
    for name, array in sorted(arrays.items()):
        shapes[name] = (list(array.shape), at)
        at += array.nbytes
    (base / "tf.json").write_text(json.dumps(shapes))
    assert at == np.sum([array.nbytes for array in arrays.values()])


def _original_names(base: Path) -> dict[str, Any]:
    """A one-layer BERT of random numbers under the original's names, with its bert_config.json and vocab.txt."""
    import numpy as np

    pieces = (base / "vocab.txt").read_text().split("\n")[:-1]
    shutil.copy(base / "vocab.txt", base / "tf/vocab.txt")
    v, d, i, p = len(pieces), 8, 16, 32
    config: dict[str, Any] = {"vocab_size": v, "hidden_size": d, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"intermediate_size": i, "max_position_embeddings": p, "type_vocab_size": 2, "hidden_act": "gelu"}
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    (base / "tf/bert_config.json").write_text(json.dumps(config))
    layer, table, head = "bert/encoder/layer_0/", "bert/embeddings/", "cls/predictions/"
    shapes: dict[str, tuple[int, ...]] = {f"{table}word_embeddings": (v, d), f"{table}position_embeddings": (p, d)}
    shapes |= {f"{table}token_type_embeddings": (2, d), f"{head}output_bias": (v,)}
    shapes |= {"cls/seq_relationship/output_weights": (2, d), "cls/seq_relationship/output_bias": (2,)}
    dense = {
        "bert/pooler": (d, d),
        f"{layer}intermediate": (d, i),
        f"{layer}output": (i, d),
        f"{head}transform": (d, d),
    }
    for name, shape in dense.items():
        shapes |= {f"{name}/dense/kernel": shape, f"{name}/dense/bias": shape[1:]}
    for name in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= {f"{layer}attention/{name}/kernel": (d, d), f"{layer}attention/{name}/bias": (d,)}
    norms = ("bert/embeddings", f"{layer}attention/output", f"{layer}output", f"{head}transform")
    for name in norms:
        shapes |= {f"{name}/LayerNorm/gamma": (d,), f"{name}/LayerNorm/beta": (d,)}
    rng = np.random.default_rng(4)
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def _without_clock(path: Path) -> None:
    """Numbers of clocks and the machine's facts become constants, here and below."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(settled(json.loads(line))) for line in path.read_text().splitlines()]
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text(json.dumps(settled(json.loads(path.read_text())), indent=1) + "\n")


def settled(value: Any) -> Any:
    """JSON in which numbers of clocks and the machine's facts are constants."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k != "cores_used_by_others"}  # in a log while that is much
        return {k: _constant(v) if k in CLOCK or k.endswith("_seconds") else settled(v) for k, v in kept.items()}
    return [settled(one) for one in value] if isinstance(value, list) else value


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _constant(one) for key, one in value.items()}
    return (
        1.5 if isinstance(value, float) else 2 if isinstance(value, int) else "x" if isinstance(value, str) else value
    )
