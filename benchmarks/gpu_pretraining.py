"""A whole pre-training on a GPU, in two commands of eight minutes. Stage `pretraining` of gpu.sh.

    benchmarks/gpu.sh pretraining --build STORE --data FOLDER                        1. on any machine: the store
    benchmarks/gpu.sh pretraining --corpus STORE --run RUN --out FOLDER              2. on the GPU, twice or more often
    cat FOLDER/piece-* | tar x -C MODEL                                              3. on any machine: the model folder

The recipe is a BERT of 8 layers of width 512 with learned positions and both objectives of the paper: 85 % of the time
at length 128, the rest at 512. It differs from the paper in a start that lets learned positions leave their plateau
early (docs/plateau.md), in 40 % masked tokens and in the batch of --tokens cells, all for a run of minutes.

The schedule ends after --train-minutes of training, counted over all commands. A command stops and saves after
--minutes; the same command again continues. --run keeps the state between them and must be outside of --out if that
folder is emptied. When the training is over, --out gets pretraining.json and one tar archive, the model folder in
bfloat16 with the run's records, cut into pieces below 16 MiB. A machine that gives back a few files at a time gets
--pieces 1-4, then --pieces 5-8. A run whose loss is not below that of word frequencies after some updates has failed,
and ends before it uses the other minutes.
"""

import io
import re
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import common
import gpu_common
from bertworks.checkpoint.folder import find_model
from bertworks.checkpoint.weights import WEIGHTS, read_weights
from bertworks.data.instances import InstanceConfig
from bertworks.data.masking import MaskingConfig
from bertworks.data.store import Store
from bertworks.files import InputError
from bertworks.model.config import ModelConfig
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.reporting.run_files import LOG, read_log
from bertworks.training.config import LoopConfig, OptimConfig

CARRIED = 50 << 20  # bytes: the largest store that is easily carried to a machine
PATIENCE = 800  # updates after which the loss must be below that of word frequencies
RESERVE = 30.0  # seconds to save the state, and to evaluate and write the model at the end
BOOKS = Path("text", "books.tar.zst")
PIECE = 15 << 20  # bytes of a piece, below the 16 MiB that a transfer may allow
RECORDS = ("results.json", LOG, "recipe.toml")  # of the run, beside its model
SMOKE = {"device": "cpu", "megabytes": 0.02, "layers": 2, "width": 32}


def recipe(options: Any, vocab_size: int) -> PretrainConfig:
    """The recipe; with --smoke a few steps of the same on tiny sequences."""
    small, width = options.smoke, options.width
    model = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=options.layers,
        num_attention_heads=max(2, width // 64),
        intermediate_size=4 * width,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        start="position-heads",
    )
    tokens = 64 if small else options.tokens
    lengths = ((16, 0.85), (32, 0.15)) if small else ((128, 0.85), (512, 0.15))
    loop = LoopConfig(hours=options.train_minutes / 60, log_every=10, eval_every=1000, save_every=0, save_minutes=3)
    if small:
        loop = LoopConfig(steps=4, log_every=1, eval_every=0)
    return PretrainConfig(
        model=model,
        instances=InstanceConfig(dupe_factor=0),
        masking=MaskingConfig(masked_lm_prob=0.4),
        optim=OptimConfig(lr=options.lr, rule="adamw", betas=(0.9, 0.98), warmup=0.05),
        loop=replace(loop, seed=options.seed),
        phases=tuple(Phase(length, share, tokens // length) for length, share in lengths),
        eval_batches=1 if small else 20,
    )


def build_store(options: Any, out: Path) -> int:
    """Build a store of Wikipedia and books, as much text of each, and return its bytes; it says if it is large."""
    if out.exists():
        raise SystemExit(f"found {out}; expected a path where there is nothing yet; give another --build")
    common.need(options.data / common.TEXT, options.data / common.VOCAB)
    texts = [text for text in (common.TEXT, BOOKS) if (options.data / text).exists()]
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        common.make_store(options.data, options.megabytes, Path(work), texts).rename(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    large = f"; expected at most {CARRIED:,} to be carried; give fewer --megabytes" if size > CARRIED else ""
    tokens = sum(shard.n_tokens for shard in Store.open(out, verify=False).shards("train"))
    print(f"{out}: {size:,} bytes, {tokens:,} tokens{large}")
    return size


def train(options: Any, seconds: float, until: int = 0) -> dict[str, Any] | None:
    """Train or resume for so many seconds, or until a step if it is not 0; the results if the run is finished."""
    begun, store = time.monotonic(), Store.open(options.corpus, verify=False)
    config, entropy = recipe(options, store.vocab_size), store.unigram_entropy()

    def stop(kind: str, record: Mapping[str, Any]) -> bool:
        late = time.monotonic() - begun > seconds or bool(until and record["step"] >= until)
        return late or bool(failure(record, entropy))

    try:
        return pretrain(config, options.corpus, options.run, quiet=options.smoke, watch=stop)
    except InputError as error:
        raise SystemExit(str(error)) from None


def failure(record: Mapping[str, Any], entropy: float) -> str:
    """What a record says of a model that knows no more than word frequencies after so many updates; else ""."""
    if record["step"] < PATIENCE or record["mlm_loss"] <= entropy:
        return ""
    return (
        f"found a loss of {record['mlm_loss']:.2f} nats at update {record['step']:,}; expected less "
        f"than {entropy:.2f}, that of word frequencies alone; give a lower --lr and another --run"
    )


def report(options: Any, facts: common.Result, results: dict[str, Any] | None) -> None:
    """Write pretraining.json, and the pieces of a finished run. Ends with one line if the run has failed."""
    store = Store.open(options.corpus, verify=False)
    records = read_log(options.run) if (options.run / LOG).exists() else []
    result: common.Result = {"machine": facts, "recipe": asdict(recipe(options, store.vocab_size))}
    result |= {"finished": results is not None, "results": results}
    result |= {kind: gpu_common.curve(records, kind) for kind in ("train", "eval")}
    if results is not None:
        write_pieces(options.run, options.out, 20_000 if options.smoke else PIECE, numbers(options.pieces))
    gpu_common.finish(options, "pretraining", result)
    if failed := failure(records[-1], store.unigram_entropy()) if records else "":
        raise SystemExit(failed)
    if results is None:
        print("not finished; rerun the command to continue")
        if not options.smoke:
            raise SystemExit(3)  # as `bertworks pretrain`


def numbers(text: str) -> range | None:
    """The numbers of --pieces, such as 1-4; None if it is left out. Ends with one line if it is something else."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not found:
        raise SystemExit(f"found --pieces {text}; expected a number or a range; give 1-4, for example")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def write_pieces(run: Path, out: Path, limit: int, wanted: range | None = None) -> None:
    """Write the archive of a run's model and records in pieces: `piece-01-of-07` and so on.

    wanted: the numbers of the pieces to write, from 1; None: all. Equal runs give equal pieces.
    """
    archive = half_archive(run)
    parts = [archive[start : start + limit] for start in range(0, len(archive), limit)]
    for number, part in enumerate(parts, 1):
        if wanted is None or number in wanted:
            (out / f"piece-{number:02}-of-{len(parts):02}").write_bytes(part)


def half_archive(run: Path) -> bytes:
    """A tar archive of the model folder, its weights in bfloat16, and of the run's records."""
    model, target = find_model(run), io.BytesIO()
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()}
    contents = {WEIGHTS: safetensors.torch.save(weights, metadata={"format": "pt"})}
    contents |= {path.name: path.read_bytes() for path in sorted(model.iterdir()) if path.name != WEIGHTS}
    contents |= {name: (run / name).read_bytes() for name in RECORDS if (run / name).is_file()}
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def join_pieces(pieces: Path, out: Path) -> None:
    """Unpack the archive of all pieces, as `cat` and `tar` do."""
    whole = io.BytesIO(b"".join(path.read_bytes() for path in sorted(pieces.glob("piece-*"))))
    with tarfile.open(fileobj=whole) as archive:
        archive.extractall(out, filter="data")


def smoke(options: Any, work: Path) -> None:
    """Build a store, train, stop, resume, write the pieces, join them, open the model."""
    from bertworks.checkpoint.folder import load_model

    options.run, options.corpus = work / "run", work / "store"
    build_store(options, options.corpus)
    facts = gpu_common.facts(gpu_common.need_device(options.device))
    report(options, facts, train(options, 1e9, until=2))
    report(options, facts, train(options, 1e9))
    join_pieces(options.out, work / "model")
    load_model(work / "model")


def main(argv: list[str] | None = None) -> None:
    """Build a store, or train and report."""
    made = gpu_common.parser(__doc__, minutes=8.0)
    made.add_argument("--build", type=Path, help="build a store here from the text in --data, and end")
    made.add_argument("--megabytes", type=float, default=95.0, help="of text in the store that --build makes")
    made.add_argument("--corpus", type=Path, help="corpus store to train on")
    made.add_argument("--run", type=Path, default=Path("runs/gpu"), help="run folder; it is kept between commands")
    made.add_argument("--train-minutes", type=float, default=14.0, help="of training, over all commands")
    made.add_argument("--pieces", default="", help="numbers of the pieces to write, such as 1-4; left out: all")
    made.add_argument("--layers", type=int, default=8)
    made.add_argument("--width", type=int, default=512, help="of the hidden states, a multiple of 64")
    made.add_argument("--tokens", type=int, default=65536, help="cells of an update, padding included")
    made.add_argument("--dropout", type=float, default=0.1)
    made.add_argument("--lr", type=float, default=6e-4, help="peak learning rate")
    made.add_argument("--seed", type=int, default=12345)
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        if options.smoke:
            smoke(options, Path(work))
        elif options.build:
            build_store(options, options.build)
        else:
            device = gpu_common.need_device(options.device)
            if not options.corpus:
                raise SystemExit("found no --corpus; expected a corpus store; make one with --build STORE")
            common.need(options.corpus, option="--corpus")
            facts = gpu_common.facts(device)
            report(options, facts, train(options, gpu_common.seconds_left(options) - RESERVE))


if __name__ == "__main__":
    main()
