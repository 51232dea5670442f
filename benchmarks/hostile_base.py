"""Writes the valid inputs that hostile.py damages and kills.py reads, with bertworks and helpers of tests/.

Times and facts of the machine are replaced by constants in logs and results, so that a seed damages the same bytes on
every machine.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tiny
from forks import call, forked
from hostile_inputs import LONGER, OWN, SMALL

CLOCK = {
    *("seconds", "tokens_per_second", "sequences_per_second", "share_of_peak", "memory", "left", "machine"),
    *("versions", "commit", "date", "time"),
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
compute = "eager"
[[phases]]
length = 16
budget_fraction = 0.5
batch_size = 4
[[phases]]
length = 32
budget_fraction = 0.5
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


def make_base(folder: Path, part: str = "whole") -> Path:
    """The valid inputs, or the part "exported" of them. A child makes them, so that this process has no threads."""

    def quietly() -> None:
        with open(os.devnull, "w") as no, contextlib.redirect_stdout(no), contextlib.redirect_stderr(no):
            if part == "whole":
                make(folder)
            else:
                os.chdir(folder)
                call("export run-single --out exported")  # needs the extra `export`

    if not (folder / part).exists() and os.waitpid(forked(quietly), 0)[1]:
        raise SystemExit(f"{folder}: the valid inputs could not be made")
    return folder


def make(base: Path) -> None:
    """All valid inputs in `base`, which becomes the working directory."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    os.chdir(base)
    _texts(base)
    _tokenizers(base)
    _tables(base)
    _tasks(base)
    _trained(base)
    _checkpoints(base)
    for path in [*base.rglob("log.jsonl"), *base.rglob("results.json"), *base.rglob("study.json")]:
        path.write_text(without_clock(path.read_text(), path.suffix == ".jsonl"))
    (base / "whole").write_text("")


# ---- text, tables, tasks


def _texts(base: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from conftest import tiny_texts

    texts = tiny_texts(60)
    more = ["Café Zürich, 40 %. Good film.", "한국어 문장입니다. 좋은 영화.", "Straße — naïve; 龍. [MASK] again."]
    (base / "text.txt").write_text("\n".join([*texts[:12], *more]) + "\n")
    (base / "words.txt").write_text("walking\nrivers\nletterbox\n한국\ngoodness\n")
    corpora = {kind: base / f"corpus-{kind}" for kind in ("text", "wiki", "jsonl", "parquet", "archive")}
    for number, name in enumerate(("b.txt", "c.txt", "a.txt")):
        for kind in ("text", "archive"):
            corpora[kind].mkdir(exist_ok=True)
            (corpora[kind] / name).write_text("\n\n".join(texts[number::3]))
    for kind in ("wiki", "jsonl", "parquet"):
        corpora[kind].mkdir()
    page = '<doc id="{0}" url="u?curid={0}" title="T{0}">\nT{0}\n\n{1}\n</doc>\n'
    (corpora["wiki"] / "wiki_00").write_text("".join(page.format(i, text) for i, text in enumerate(texts)))
    _write_lines(corpora["jsonl"] / "a.jsonl", [{"text": text, "id": i} for i, text in enumerate(texts)])
    pq.write_table(pa.table({"text": texts, "id": list(range(len(texts)))}), corpora["parquet"] / "a.parquet")
    (corpora["archive"] / "a.gz").write_bytes(gzip.compress("\n".join(texts[:9]).encode(), mtime=0))
    with tarfile.open(corpora["archive"] / "b.tar", "w") as archive:
        for i, text in enumerate(texts[9:15]):
            member = tarfile.TarInfo(f"{i}.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_table(path: Path, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


def _tables(base: Path) -> None:
    """A table per kind of task and format."""
    rng = random.Random(5)
    rows: list[dict[str, Any]] = []
    for i in range(16):
        label = rng.choice(("good", "bad")) if i > 1 else ("good", "bad")[i]
        text = f"{label} film, {' '.join(rng.choices('abcdef', k=rng.randint(1, 6)))}"
        row = {"text": text, "other": "a b c", "label": label, "score": str(rng.randint(0, 5)), "several": label}
        rows.append({**row, "one": "a", "two": "b", "right": str(rng.randrange(2))})
    for kind in OWN:
        for form, delimiter in (("csv", ","), ("tsv", "\t")):
            _write_table(base / f"{kind}.{form}", [[*rows[0]], *(row.values() for row in rows)], delimiter)
        _write_lines(base / f"{kind}.jsonl", rows)
    _write_lines(base / "multilabel.jsonl", [{**row, "several": [row["several"]]} for row in rows])
    words, tags = ["Anna", "met", "Ben", "."], ("B-PER", "O")
    _write_lines(
        base / "tagging.jsonl", [{"words": words, "tags": ["B-PER", "O", rng.choice(tags), "O"]} for _ in range(12)]
    )
    asked = {"question": "who ?", "context": "good film a b c"}
    _write_lines(base / "span.jsonl", [{**asked, "answer": rng.choice(("film", "good"))} for _ in range(12)])


def _tasks(base: Path) -> None:
    """The official files of tasks, each in its folder."""
    official = base / "official"
    tiny.write_data(official, rows=8)
    (base / "squad").mkdir()
    for part, cola, swag in (("train", "train.tsv", "train.csv"), ("dev", "dev.tsv", "val.csv")):
        shutil.copy(official / f"squad/small-{part}-v2.0.json", base / f"squad/{part}-v2.0.json")
        for folder in ("cola", "swag"):
            (base / folder).mkdir(exist_ok=True)
        texts = ["good film", "bad film", "a b c .", "the cat sat"] * 3
        _write_table(base / "cola" / cola, [["x", i % 2, "", text] for i, text in enumerate(texts)], "\t")
        names = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"]
        _write_table(base / "swag" / swag, [names, *([text, *"abcde", i % 4] for i, text in enumerate(texts[:8]))])
    for folder, name in (("glue/MRPC", "mrpc"), ("glue/STS-B", "stsb"), ("conll2003", "conll")):
        shutil.copytree(official / folder, base / name)
    shutil.rmtree(official)


# ---- tokenizers, models, runs


def _tokenizers(base: Path) -> None:
    from support.tiny_task import VOCAB

    (base / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    for kind, folder, size in (("wordpiece", "tok", 120), ("bpe", "bpe", 300), ("unigram", "unigram", 120)):
        call(f"tokenizer train text.txt corpus-text --out {folder} --vocab-size {size} --algorithm {kind}")
    (base / "merges").mkdir()
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(base / "bpe" / name, base / "merges" / name)


def _trained(base: Path) -> None:
    """A store, models, finished and stopped runs, a study."""
    import bertworks

    many = "--workers 1 --shard-tokens 2000 --input.documents blank-line"
    call(f"corpus build corpus-text --tokenizer tok --out store {many}")
    recipe = PRETRAIN.format(vocab=bertworks.Tokenizer.load(base / "tok").vocab_size)
    (base / "study").mkdir()
    (base / "study/study.toml").write_text(STUDY)
    for path, text in (("recipe.toml", recipe), ("study/pretrain.toml", recipe)):
        (base / path).write_text(text)
    for path in ("finetune.toml", "study/finetune.toml"):
        (base / path).write_text(FINETUNE)
    call("pretrain recipe.toml --corpus store --out run-pretrain")
    bertworks.pretrain("recipe.toml", "store", "stopped", quiet=True, on_record=lambda record: record["step"] == 2)
    shutil.copytree(base / "run-pretrain/model", base / "model")
    for kind, form, more in (("single", "csv", SMALL), ("tagging", "jsonl", SMALL), ("span", "jsonl", LONGER)):
        call(f"finetune --train {kind}.{form} --dev {kind}.{form} {OWN[kind]} --model model --out run-{kind} {more}")
    shutil.copytree(base / "cola", base / "data/cola")
    call("study run study/study.toml --corpus store --data data --out studied --minute")
    shutil.rmtree(base / "studied/cells")
    shutil.rmtree(base / "data")


def _checkpoints(base: Path) -> None:
    """The model in shards and for sentence-transformers; another one by TensorFlow."""
    import safetensors.numpy

    from bertworks.checkpoint.folder import read_config
    from bertworks.checkpoint.pooling import Pooling, write_pooling
    from support.original import write_original
    from support.tiny_task import VOCAB

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
    shutil.copytree(base / "model", base / "pooling")
    write_pooling(base / "pooling", Pooling(), width=read_config(base / "model")[0].hidden_size)
    write_original(base / "tf", VOCAB)


# ---- clocks


def without_clock(text: str, lines: bool = False) -> str:
    """JSON, or JSON lines, with constants in place of times and facts of the machine."""
    if lines:
        return "".join(json.dumps(settled(json.loads(line))) + "\n" for line in text.splitlines())
    return json.dumps(settled(json.loads(text)), indent=1) + "\n"


def settled(value: Any) -> Any:
    """The same of a value that was read from JSON."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k != "cores_used_by_others"}  # in a log while that is much
        return {k: _constant(v) if k in CLOCK or k.endswith("_seconds") else settled(v) for k, v in kept.items()}
    return [settled(one) for one in value] if isinstance(value, list) else value


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _constant(one) for key, one in value.items()}
    constants = {float: 1.5, int: 2, str: "x"}
    return constants.get(type(value), value)
