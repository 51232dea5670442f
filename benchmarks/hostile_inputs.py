"""What hostile.py attacks: the readers of bertworks with their commands, and the files of a case."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    after: Special | None = None  # what keeps the attack from being found too early: checksums
    may_change: bool = False  # the input is a folder that the command goes on with


# ---- attacks of one reader


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


PREDICT, SHARDED, LOGS = "predict in/run in/{} --out out/p.jsonl", "^model/(model|config)", "^run/(log|res|rec)"
FEATURES, CONVERT = "features in/{} in/text.txt --out out/f.safetensors", "convert in/model out/m"
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


def of_corpus(name: str) -> Reader:
    """Text in a format."""
    build = "corpus build in/corpus --tokenizer in/tok --out out/store --workers 1"
    train = "tokenizer train in/corpus --out out/tok --vocab-size 120"
    return Reader(f"corpus-{name}", f"tok corpus-{name}=corpus", "^corpus/", (build, train))


READERS = [
    Reader("tensorflow", "tf", "^tf/", ("convert in/tf/bert_model.ckpt out/m --do-lower-case",)),
    Reader("vocab.txt", "vocab.txt text.txt", "vocab", (f"{CHECK.format('vocab.txt')} --uncased",)),
    Reader("tokenizer.json", "tok text.txt", "tok/.*json", (CHECK.format("tok"),)),
    Reader("tokenizer.json-bpe", "bpe=tok text.txt", "tok/tok.*json", (CHECK.format("tok"),)),
    Reader("tokenizer.json-unigram", "unigram=tok text.txt", "tok/tok.*json", (CHECK.format("tok"),)),
    Reader("merges.txt", "merges text.txt", "merges/", (CHECK.format("merges"),)),
    Reader(
        "model",
        "model text.txt single.csv",
        "^model/",
        (
            CONVERT,
            FEATURES.format("model"),
            "predict fill-mask in/model 'a [MASK] b'",
            finetuned("single.csv", "single.csv"),
        ),
    ),
    Reader("model-sharded", "sharded=model text.txt", SHARDED, (CONVERT,)),
    Reader("model-pooling", "pooling=model text.txt", "/(mod|1_|sent|config_)", (CONVERT, FEATURES.format("model"))),
    Reader("finetuned", "run-single=run text.txt", "^run/model/", (PREDICT.format("text.txt"),)),
    Reader("finetuned-tagging", "run-tagging=run text.txt", "^run/model/", (PREDICT.format("text.txt"),)),
    Reader("finetuned-span", "run-span=run squad/dev-v2.0.json=q.json", "^run/model/", (PREDICT.format("q.json"),)),
    *(of_table(kind, form) for kind, form in FORMS),
    Reader("evaluate", "run-single=run single.csv", "csv", ("evaluate --model in/run --dev in/single.csv",)),
    *(of_task(name, folder) for name, folder in TASKS.items()),
    *(of_corpus(name) for name in ("wiki", "jsonl", "parquet")),
    of_corpus("text"),
    of_corpus("archive"),
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
        "study run store cola=data/cola",
        "^study/",
        ("study run in/study/study.toml --corpus in/store --data in/data --out out/s --dry-run",),
    ),
    Reader(
        "run-finished", "run-pretrain=run run-pretrain=other", LOGS, ("study plot in/run in/other --out out/c.png",)
    ),
    Reader(
        "run-compared",
        "run-single=run run-single=other",
        LOGS,
        ("compare in/run in/other --samples 100", "study plot in/run --out out/c.png"),
    ),
    Reader(
        "run-resumed",
        "stopped=run store recipe.toml",
        "^run/",
        ("pretrain in/recipe.toml --corpus in/store --out in/run",),
        may_change=True,
    ),
    Reader("run-study", "studied=s", "^s/", ("study report in/s",), may_change=True),
    Reader(
        "predict-text",
        "run-single=run text.txt",
        "text.txt",
        (PREDICT.format("text.txt"), FEATURES.format("run"), "probe neighbours in/run good --data in/text.txt"),
    ),
    Reader(
        "predict-table",
        "run-single=run single.csv single.jsonl",
        "single",
        (PREDICT.format("single.csv"), PREDICT.format("single.jsonl")),
    ),
    Reader("predict-questions", "run-span=run squad/dev-v2.0.json=q.json", "q.json", (PREDICT.format("q.json"),)),
    Reader("predict-tagging", "run-tagging=run single.jsonl", "single", (PREDICT.format("single.jsonl"),)),
    Reader("doctor-pretrained", "run-pretrain=run store", "^(run|store)/", ("doctor in/run --corpus in/store",)),
    Reader("doctor-finetuned", "run-single=run", "^run/", ("doctor in/run",)),
    Reader("doctor-store", "store", "^store/", ("doctor in/store",), after=checksummed),
    Reader("doctor-table", "single.csv model", "csv", ("doctor in/single.csv --dev in/single.csv --model in/model",)),
    Reader(
        "export",
        "exported=ex text.txt",
        "^ex/",
        ("predict in/ex in/text.txt --out out/p.jsonl", "export --verify in/ex"),
    ),
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


def is_exported(reader: Reader) -> bool:
    """Whether a reader attacks the exported folder, which takes some time to make."""
    return "exported" in reader.files
