"""What hostile.py attacks: valid inputs of every kind, made once, and the readers with their commands.

`make` runs in a child, in an empty folder, with bertworks itself and with the helpers of tests/. What a clock or the
machine decides is taken out of logs and results, so that the same seed attacks the same bytes everywhere.
"""

import json
import math
import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import archives
import mutations
from box import Files, Link

SMALL = "--loop.steps 2 --loop.eval-every 0 --max-seq-length 24 --batch-size 4 --loop.precision float32"
LONGER = "--loop.steps 2 --loop.eval-every 0 --max-seq-length 32 --doc-stride 8 --max-query-length 8 --batch-size 4"
OWN = {
    "single": "--text text --label label",
    "pair": "--text text,other --label label",
    "regression": "--kind regression --text text --label score",
    "multilabel": "--kind multilabel --text text --label several",
    "choice": "--kind choice --text text --choices one,two --label right",
    "tagging": "--kind tagging --text words --label tags",
    "span": "--kind span --text question,context --label answer",
}
Special = Callable[[random.Random, Files], Files]


@dataclass(frozen=True)
class Reader:
    """A reader of bertworks: the valid files below in/, which of them are attacked, and what reads them."""

    name: str
    files: str  # of the base, several with spaces between; "x=y" puts x where the command looks for y
    attacked: str  # pattern of their names
    commands: tuple[str, ...]  # one is drawn
    special: Special | None = None  # other attacks of this reader, two in five of its cases
    after: Special | None = None  # what keeps the attack from being found too early: checksums
    may_change: bool = False  # the input is a folder that the command goes on with
    sound: bool = True  # whether every command takes the files as they are


# ---- attacks of one reader


def odd_archive(rng: random.Random, files: Files) -> Files:
    text = files["corpus/a.txt"]
    assert isinstance(text, bytes)
    name, data = archives.hostile_archive(rng, text[:2000])
    return {**{k: v for k, v in files.items() if k.startswith("tok/")}, f"corpus/{name}": data}


def odd_names(rng: random.Random, files: Files) -> Files:
    """Links, names that are not UTF-8, loops, and deep folders among the text files."""
    text = files["corpus/a.txt"]
    plain = text if isinstance(text, bytes) else b""
    odd: list[tuple[str, bytes | Link]] = [
        ("corpus/b\udcff.txt", text),
        ("corpus/loop", Link(".")),
        ("corpus/nowhere.txt", Link("missing")),
        ("corpus/outside.txt", Link("../../../../canary")),
        ("corpus/zero", Link("/dev/zero")),
        ("corpus/" + "d/" * 200 + "a.txt", text),
        ("corpus/\n.txt", text),
        ("corpus/[bold].txt", b"\xff" + plain),
        ("corpus/itself.txt", Link("itself.txt")),
    ]
    return {**files, **dict(rng.sample(odd, rng.choice((1, 1, 2))))}


def long_lines(rng: random.Random, files: Files) -> Files:
    """A text file or table with a line, a cell or a run of marks of 100 kB to 100 MB, or ten thousand short lines."""
    name = rng.choice([name for name in files if name in ("text.txt", "single.csv", "single.jsonl")])
    unit = rng.choice(
        ("a", "a ", "word. ", "é", "\u0301", "\u0301\u0327", "가", "龍", "!", "[MASK] ", "\u200b", "\n", "a\n")
    )
    size = 20_000 if "\n" in unit else rng.choice((100_000, 300_000, 1_000_000, 100_000_000))
    text = unit * (size // len(unit.encode()))
    start = {"single.csv": "text,label\n", "single.jsonl": '{"text": "a"}\n{"text": "', "text.txt": "a b\n"}[name]
    end = {"single.csv": ",good\n", "single.jsonl": '"}\n', "text.txt": "\nc\n"}[name]
    return {**files, name: (start + text + end).encode()}


def checksummed(rng: random.Random, files: Files) -> Files:
    """A store's manifest with the sizes and checksums of its changed files, so that validation is reached."""
    import hashlib

    try:
        manifest = json.loads(files["store/manifest.json"])  # type: ignore[arg-type]
        if rng.random() < 0.1:
            return files
        for name, entry in manifest["files"].items():
            data = files[f"store/{name}"]
            if not isinstance(data, bytes):  # a link, which has no checksum of its own
                continue
            entry |= {"bytes": len(data), "checksum": hashlib.blake2b(data, digest_size=16).hexdigest()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return files
    return {**files, "store/manifest.json": json.dumps(manifest).encode()}


def odd_tensors(rng: random.Random, files: Files) -> Files:
    """A TensorFlow checkpoint with valid checksums whose entries say something else, or whose numbers are odd."""
    import numpy as np

    from support.tf_writer import NUMBERS, entry, header, table

    rows, data = [(b"", header(rng.choice((1, 1, 1, 0, 2, 10**6)), rng.choice((0, 0, 0, 1))))], b""
    chosen = rng.randrange(40)
    for i, (name, array) in enumerate(sorted(_tensors(files).items())):
        changes: dict[str, int] = {}
        says: Any = array
        if i == chosen:
            key = rng.choice(("dtype", "shard", "offset", "size", "shape", "values", "name"))
            if key == "shape":
                shapes = ((0,), (1, 2**64 - 1), (1 << 40, 1 << 40), array.shape[::-1], (2,) * 40, ())
                says = SimpleNamespace(tobytes=array.tobytes, dtype=array.dtype, shape=rng.choice(shapes))
            elif key == "values":
                says = array = np.full_like(array, rng.choice((np.nan, np.inf, 1e38)))
            elif key == "name":
                deep = "bert/encoder/layer_999999999/output/dense/kernel"
                name = rng.choice(("", "x" * 10_000, deep, "\n", name[:-1]))
            else:
                changes[key] = rng.choice([*NUMBERS.values(), 99, *mutations.HUGE])
        shard, offset = changes.pop("shard", 0), changes.pop("offset", len(data))
        rows.append((name.encode(), entry(says, shard, offset, **changes)))
        data += array.tobytes()
    whole = {"tf/bert_model.ckpt.index": table(sorted(rows), compression=rng.choice((0, 0, 0, 0, 1, 7)))}
    return {**files, **whole, "tf/bert_model.ckpt.data-00000-of-00001": data}


def _tensors(files: Files) -> dict[str, Any]:
    import numpy as np

    shapes, data = files["tf.json"], files["tf/bert_model.ckpt.data-00000-of-00001"]
    assert isinstance(shapes, bytes) and isinstance(data, bytes)
    return {
        name: np.frombuffer(data, np.float32, math.prod(shape), at).reshape(shape)
        for name, (shape, at) in json.loads(shapes).items()
    }


def small_model(rng: random.Random, files: Files) -> Files:
    """A SentencePiece model with fields of wrong kinds, numbers and lengths."""
    data = files["spiece.model"]
    assert isinstance(data, bytes)
    at = [found.start() for found in re.finditer(rb"\x0a[\x05-\x20]\x0a", data)]
    for _ in range(rng.choice((1, 2, 5))):
        i = rng.choice(at)
        how = rng.randrange(4)
        piece = rng.choice(("", "\u2581" * 50, "\ud800", "a\x00", "x" * 70_000, "\u0301" * 500, "<unk>", "<s>", "가"))
        text = piece.encode("utf-8", "surrogatepass")
        score, kind = rng.choice((float("nan"), float("inf"), -1e38, 0.0)), rng.choice((0, 1, 2, 3, 4, 5, 6, 99))
        inner = b"\x0a" + _varint(len(text)) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + _varint(kind)
        if how < 2:
            data = data[:i] + b"\x0a" + _varint(len(inner)) + inner + data[i:]
        elif how == 2:
            data = data[: i + 1] + _varint(rng.choice(mutations.HUGE)) + data[i + 2 :]
        else:
            data = data[:i] + b"\x12" + data[i + 1 :]
        at = [place for place in at if place <= i] or [0]
    return {**files, "spiece.model": data}


def _varint(value: int) -> bytes:
    from support.tf_writer import varint

    return varint(value)


PREDICT, SHARDED, LOGS = "predict in/run in/{} --out out/p.jsonl", "^model/(model|config)", "^run/(log|res|rec)"
FEATURES, CONVERT = "features in/{} in/text.txt --out out/f.npz", "convert in/model out/m"
CHECK = "tokenizer check in/{} in/text.txt"
LISTS = ("tagging", "span")  # kinds whose tables are JSON lines
TASKS = {"cola": "cola", "mrpc": "mrpc", "stsb": "stsb", "squad2": "squad", "conll2003": "conll", "swag": "swag"}
FORMS = [(kind, form) for kind in OWN for form in ("csv", "tsv", "jsonl") if form == "jsonl" or kind not in LISTS]


def finetuned(train: str, dev: str, more: str = SMALL) -> str:
    """The command that fine-tunes on two tables."""
    return f"finetune --train in/{train} --dev in/{dev} --model in/model --out out/run {more}"


def of_table(kind: str, form: str) -> Reader:
    """A table of a kind of task."""
    file, more = f"{kind}.{form}", f"{OWN[kind]} {LONGER if kind == 'span' else SMALL}"
    return Reader(f"table-{kind}-{form}", f"model {file}", rf"{kind}\.", (finetuned(file, file, more),))


def of_task(name: str, folder: str) -> Reader:
    """The official files of a task."""
    command = f"finetune --task {name} --data in/data --model in/model --out out/run"
    return Reader(
        f"task-{name}", f"model {folder}=data", "^data/", (f"{command} {LONGER if folder == 'squad' else SMALL}",)
    )


def of_corpus(name: str, special: Special | None = None) -> Reader:
    """Text in a format."""
    build = "corpus build in/corpus --tokenizer in/tok --out out/store --workers 1"
    train = "tokenizer train in/corpus --out out/tok --vocab-size 120"
    return Reader(f"corpus-{name}", f"tok corpus-{name}=corpus", "^corpus/", (build, train), special)


READERS = [
    Reader("tensorflow", "tf tf.json", "^tf/", ("convert in/tf/bert_model.ckpt out/m --do-lower-case",), odd_tensors),
    Reader("sentencepiece", "spiece.model text.txt", "model$", (CHECK.format("spiece.model"),), small_model),
    Reader("vocab.txt", "vocab.txt text.txt", "vocab", (f"{CHECK.format('vocab.txt')} --uncased",)),
    Reader("tokenizer.json", "tok text.txt", "tok/.*json", (CHECK.format("tok"),)),
    Reader("tokenizer.json-bpe", "bpe=tok text.txt", "tok/tok.*json", (CHECK.format("tok"),)),
    Reader("tokenizer.json-unigram", "unigram=tok text.txt", "tok/tok.*json", (CHECK.format("tok"),)),
    Reader("merges.txt", "merges text.txt", "merges/", (CHECK.format("merges"),)),
    Reader(
        "model",
        "model text.txt single.csv",
        "^model/",
        (CONVERT, FEATURES.format("model"), "fill-mask in/model 'a [MASK] b'", finetuned("single.csv", "single.csv")),
    ),
    Reader("model-sharded", "sharded=model text.txt", SHARDED, (CONVERT,)),
    Reader("model-pooling", "pooling=model text.txt", "/(mod|1_|sent|config_)", (CONVERT, FEATURES.format("model"))),
    Reader("finetuned", "run-single=run text.txt", "^run/model/", (PREDICT.format("text.txt"),)),
    Reader("finetuned-tagging", "run-tagging=run text.txt", "^run/model/", (PREDICT.format("text.txt"),)),
    Reader("finetuned-span", "run-span=run squad/dev-v2.0.json=q.json", "^run/model/", (PREDICT.format("q.json"),)),
    *(of_table(kind, form) for kind, form in FORMS),
    Reader(
        "table-parquet", "model odd", "parquet", tuple(finetuned(f"odd/{i}.parquet", "odd/0.parquet") for i in range(8))
    ),
    Reader("evaluate", "run-single=run single.csv", "csv", ("evaluate --model in/run --dev in/single.csv",)),
    *(of_task(name, folder) for name, folder in TASKS.items()),
    *(of_corpus(name) for name in ("markdown", "wiki", "jsonl", "parquet")),
    of_corpus("text", odd_names),
    of_corpus("archive", odd_archive),
    Reader(
        "store",
        "store recipe.toml",
        "^store/",
        ("corpus show in/store", "pretrain in/recipe.toml --corpus in/store --out out/run --loop.steps 2"),
        after=checksummed,
    ),
    Reader(
        "recipe",
        "store recipe.toml",
        "recipe.toml",
        ("pretrain in/recipe.toml --corpus in/store --out out/run --loop.steps 1",),
    ),
    Reader(
        "recipe-finetune",
        "model single.csv finetune.toml",
        "finetune.toml",
        (finetuned("single.csv", "single.csv", "--recipe in/finetune.toml --loop.steps 1"),),
    ),
    Reader(
        "study",
        "study store cola=data/cola",
        "^study/",
        ("study in/study/study.toml --corpus in/store --data in/data --out out/s --dry-run",),
    ),
    Reader("run-finished", "run-pretrain=run run-pretrain=other", LOGS, ("plot in/run in/other --out out/c.png",)),
    Reader(
        "run-compared",
        "run-single=run run-single=other",
        LOGS,
        ("compare in/run in/other --samples 100", "plot in/run --out out/c.png"),
    ),
    Reader(
        "run-resumed",
        "stopped=run store recipe.toml",
        "^run/",
        ("pretrain in/recipe.toml --corpus in/store --out in/run",),
        may_change=True,
    ),
    Reader("run-study", "studied=s", "^s/", ("plot in/s --out out/c.png",)),
    Reader(
        "predict-text",
        "run-single=run text.txt",
        "text.txt",
        (PREDICT.format("text.txt"), FEATURES.format("run"), "probe neighbours in/run good --corpus in/text.txt"),
        long_lines,
    ),
    Reader(
        "predict-table",
        "run-single=run single.csv single.jsonl",
        "single",
        (PREDICT.format("single.csv"), PREDICT.format("single.jsonl")),
        long_lines,
    ),
    Reader("predict-questions", "run-span=run squad/dev-v2.0.json=q.json", "q.json", (PREDICT.format("q.json"),)),
    Reader("predict-tagging", "run-tagging=run single.jsonl", "single", (PREDICT.format("single.jsonl"),)),
    Reader("doctor-pretrained", "run-pretrain=run store", "^(run|store)/", ("doctor in/run --corpus in/store",)),
    Reader("doctor-finetuned", "run-single=run", "^run/", ("doctor in/run",)),
    Reader("doctor-store", "store", "^store/", ("doctor in/store",), after=checksummed),
    Reader("doctor-table", "single.csv model", "csv", ("doctor in/single.csv --dev in/single.csv --model in/model",)),
    Reader(
        "vectors", "vectors.txt tok", "vectors", ("static --vectors in/vectors.txt --tokenizer in/tok --out out/m",)
    ),
    Reader("words", "model words.txt", "words", ("tokenizer extend in/model --words in/words.txt --out out/m",)),
]


def files_of(reader: Reader, base: Path) -> Files:
    """The valid files of a reader."""
    found: Files = {}
    for item in reader.files.split():
        source, _, name = item.partition("=")
        path = base / source
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                rest = file.relative_to(path).as_posix()
                found[(name or source) + (f"/{rest}" if path.is_dir() else "")] = file.read_bytes()
    return found


def attacked(reader: Reader, valid: Files, rng: random.Random) -> Files:
    """The files of a case: those of `valid`, with one or two of them changed."""
    if reader.special is not None and rng.random() < 0.4:
        return reader.special(rng, valid)
    names = [name for name in valid if re.search(reader.attacked, name)]
    files = dict(valid)
    for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2)))):
        data, other = files[name], valid[rng.choice(names)]
        assert isinstance(data, bytes) and isinstance(other, bytes)
        how = rng.random()
        if how < 0.03:
            del files[name]
        elif how < 0.05:
            files[name] = Link(rng.choice(("missing", "/dev/zero", ".", name.rpartition("/")[2], "/etc/passwd")))
        elif how < 0.08:
            wide = data.decode("latin-1").encode("utf-16")
            files[name] = rng.choice((b"", b"\0" * 5_000, other, b"\n", b"\xef\xbb\xbf", wide))
        else:
            files[name] = mutations.mutate(rng, name, data, other)
    return reader.after(rng, files) if reader.after else files
