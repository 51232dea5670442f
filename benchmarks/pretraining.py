"""Pre-training, side by side with transformers: real tokens a second, share of the machine's peak, memory.

    python benchmarks/pretraining.py [--input enwiki.tar.zst] [--vocab bert-base-uncased.txt] [--rounds 5] [--out FILE]

BERT with 4 layers of width 256, vocabulary 30,522, length 128, batch 32, dropout 0.1, bfloat16 products (where the
machine has them), all cores. Both sides train on the same instances (masked-LM and next-sentence pairs from a store)
and include loading and masking; each does forward, backward, clipping and fused AdamW. Ours runs the project's loop;
the peer is `BertForPreTraining` with `DataCollatorForLanguageModeling` in a plain loop, without a trainer's overhead.
The sides take turns, each in a fresh process; the first steps of each are not counted. The peak is that of a
2048 x 2048 matrix product, measured in the same processes. Needs `pip install -e '.[bench]'`.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bertworks.data.batches import PretrainingData, Vocabulary
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.data.instances import InstanceConfig, Position
from bertworks.data.masking import MaskingConfig
from bertworks.data.store import Store
from bertworks.files import write_json
from bertworks.model.presets import PRESETS
from bertworks.pretrain import Phase, PretrainConfig, prepare, useful_flops
from bertworks.tokenizer import Tokenizer
from bertworks.training import parallel
from bertworks.training.loop import LoopConfig
from bertworks.training.optim import OptimConfig

DATA = Path("../shared/data")
LENGTH, BATCH = 128, 32
SIDES = ("ours", "peer", "ours without dropout", "peer without dropout")


def recipe(dropout: float, steps: int) -> PretrainConfig:
    """The same model, batch and optimizer for both sides."""
    model = dataclasses.replace(PRESETS["mini"], hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return PretrainConfig(
        model=model,
        optim=OptimConfig(lr=1e-4, rule="adamw", warmup=0.0),
        loop=LoopConfig(steps=steps, eval_every=0, save_every=0, log_every=10**9),
        phases=(Phase(LENGTH, 1.0, BATCH),),
    )


class Clock:
    """Real tokens a second of the steps after the first `skip`."""

    def __init__(self, skip: int) -> None:
        self.left, self.tokens, self.start = skip, 0, 0.0

    def step(self, tokens: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.start = time.perf_counter()
        elif self.left < 0:
            self.tokens += tokens

    def rate(self) -> float:
        return self.tokens / (time.perf_counter() - self.start)


def ours(store: Store, dropout: float, steps: int, skip: int) -> float:
    """The project's own loop, as `bertworks pretrain` runs it."""
    parallel.prepare_process()
    world = parallel.join_world()
    clock = Clock(skip)
    with tempfile.TemporaryDirectory() as out:
        tokenizer = Tokenizer.load(store.tokenizer_folder)
        loop = prepare(recipe(dropout, steps), store, tokenizer, Path(out), None, world, quiet=True)
        feed, read = loop.feed, 0

        def timed(progress: Any, share: float) -> Any:
            nonlocal read  # the feed is asked for the next batch when the step before it is done
            if progress.step:
                clock.step(progress.tokens - read)
            read = progress.tokens
            return feed(progress, share)

        loop.feed, loop.evaluate, loop.save = timed, None, lambda: clock.step(loop.progress.tokens - read)  # type: ignore
        rate = 0.0
        loop.run()
        rate = clock.rate()
    return rate


def peer(store: Store, dropout: float, steps: int, skip: int) -> float:
    """transformers: its model, its collator, torch's loader and optimizer."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(store.tokenizer_folder)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    examples = list(islice(unmasked(store), steps * BATCH))
    loader = torch.utils.data.DataLoader(examples, BATCH, collate_fn=collate)  # type: ignore[arg-type]
    shape = PRESETS["mini"]
    config = transformers.BertConfig(
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = transformers.BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    dtype, clock = parallel.compute_dtype("auto", torch.device("cpu")), Clock(skip)
    for batch in loader:
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.step(int(batch["attention_mask"].sum()))
    return clock.rate()


def unmasked(store: Store) -> Iterator[dict[str, Any]]:
    """The store's instances before masking, in the order in which ours reads them."""
    tokenizer = Tokenizer.load(store.tokenizer_folder)
    data = PretrainingData(store, "train", Vocabulary.of(tokenizer), LENGTH, InstanceConfig(), MaskingConfig(), 12345)
    position = Position()
    while True:
        batch, position = data.take(position, 256)
        ids = batch["input_ids"].flatten()
        used = batch["masked_labels"] >= 0
        ids[batch["masked_positions"][used]] = batch["masked_labels"][used]
        columns = (batch[name] for name in ("token_type_ids", "attention_mask", "pair_labels"))
        for row, types, mask, label in zip(ids.view(256, -1), *columns, strict=True):
            yield {
                "input_ids": row[mask].tolist(),
                "token_type_ids": types[mask].tolist(),
                "next_sentence_label": int(label),
            }


def assemble(store: Store, seconds: float = 5.0) -> dict[str, float]:
    """Batches alone, on one core: real tokens a second of gather, pair, mask and pad; tokens a second of planning."""
    tokenizer = Tokenizer.load(store.tokenizer_folder)
    data = PretrainingData(store, "train", Vocabulary.of(tokenizer), LENGTH, InstanceConfig(), MaskingConfig(), 12345)
    start = time.perf_counter()
    planned = sum(int((plan[:, 2] - plan[:, 1] + plan[:, 4] - plan[:, 3]).sum()) for plan in [data.stream.window(0)[0]])
    planning = planned / (time.perf_counter() - start)
    position, tokens, start = Position(), 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        batch, position = data.take(position, BATCH)
        tokens += int(batch["attention_mask"].sum())
    return {"tokens_per_second": tokens / (time.perf_counter() - start), "planned_tokens_per_second": planning}


def one_side(side: str, store: Path, steps: int, skip: int) -> dict[str, Any]:
    """One side in this process."""
    opened = Store.open(store, verify=False)
    if side == "batches":
        torch.set_num_threads(1)
        return assemble(opened)
    device = torch.device("cpu")
    dtype = parallel.compute_dtype("auto", device)
    peak = parallel.matmul_peak(device, dtype)
    dropout = 0.0 if "without" in side else 0.1
    rate = (ours if side.startswith("ours") else peer)(opened, dropout, steps, skip)
    return {
        "tokens_per_second": rate,
        "memory": parallel.peak_memory(device),
        "matmul_peak": max(peak, parallel.matmul_peak(device, dtype)),
        "dtype": str(dtype),
    }


def run(side: str, store: Path, steps: int, skip: int) -> dict[str, Any]:
    """One side in a fresh process."""
    command = [sys.executable, __file__, "--side", side, str(store), str(steps), str(skip)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(side, {k: round(v) if isinstance(v, float) else v for k, v in result.items()}, file=sys.stderr, flush=True)
    return result


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds, interleaved, and their medians."""
    with tempfile.TemporaryDirectory() as work:
        store = make_store(options, Path(work))
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side in SIDES:
                steps = options.steps if side.startswith("ours") else options.peer_steps
                runs[side].append(run(side, store, steps + options.skip, options.skip))
        batches = run("batches", store, 0, 0)
    peak = statistics.median(r["matmul_peak"] for done in runs.values() for r in done)
    rates = {side: statistics.median(r["tokens_per_second"] for r in done) for side, done in runs.items()}
    flops = useful_flops(PretrainConfig(model=PRESETS["mini"]))
    result: dict[str, Any] = {
        "what": "real tokens a second of pre-training, L4 H256, length 128, batch 32, dropout 0.1"
    }
    for side in ("ours", "peer"):
        memory = statistics.median(r["memory"] for r in runs[side])
        every = [round(r["tokens_per_second"]) for r in runs[side]]
        result[side] = {"tokens_per_second": round(rates[side]), "every_run": every, "memory": memory}
    pairs = zip(runs["ours"], runs["peer"], strict=True)
    plain = {side: rates[f"{side} without dropout"] for side in ("ours", "peer")}
    return result | {
        "ratio": rates["ours"] / rates["peer"],
        "ratio_by_round": [a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs],
        "share_of_peak": rates["ours"] * flops / peak,
        "without_dropout": {
            **{side: round(rate) for side, rate in plain.items()},
            "ratio": plain["ours"] / plain["peer"],
            "share_of_peak": plain["ours"] * flops / peak,
        },
        "matmul_peak": peak,
        "useful_flops_per_token": flops,
        "dtype": runs["ours"][0]["dtype"],
        "batches_on_one_core": batches,
        "machine": parallel.facts(),
    }  # fmt: skip


def make_store(options: argparse.Namespace, work: Path) -> Path:
    """A store of the first megabytes of the input."""
    tokenizer = Tokenizer.load(options.vocab, lowercase=True)
    text, size = work / "text.txt", 0
    with open(text, "w", encoding="utf-8") as file:
        for document in read_documents([options.input]):
            size += file.write(document.text + "\n\n")
            if size > options.megabytes * 1e6:
                break
    config = BuildConfig(input=InputOptions(format="text", documents="blank-line"), workers=1)
    build([text], tokenizer, work / "store", config, progress=False)
    return work / "store"


def main() -> None:
    """Parse the arguments, compare, write the JSON."""
    if sys.argv[1:2] == ["--side"]:
        side, store, steps, skip = sys.argv[2:]
        print(json.dumps(one_side(side, Path(store), int(steps), int(skip))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=DATA / "text" / "enwiki.tar.zst")
    parser.add_argument("--vocab", type=Path, default=DATA / "vocab" / "bert-base-uncased.txt")
    parser.add_argument("--megabytes", type=float, default=10, help="of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="counted steps of ours, a round")
    parser.add_argument("--peer-steps", type=int, default=12, help="counted steps of the peer, a round")
    parser.add_argument("--skip", type=int, default=8, help="steps before counting")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "pretraining.json")
    options = parser.parse_args()
    for path in (options.input, options.vocab):
        if not path.exists():
            raise SystemExit(f"{path}: not there; name another with --input (any text) or --vocab (a vocab.txt)")
    result = compare(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
