"""Pre-training, side by side with transformers: real tokens a second, share of the machine's peak, memory.

    python benchmarks/pretraining.py [--data ../shared/data] [--rounds 3] [--device cpu] [--out FILE] [--smoke]

BERT with 4 layers of width 256, vocabulary 30,522, length 128, batch 32, dropout 0.1, bfloat16 products (where the
machine has them), all cores or one GPU. Both sides train on the same instances (masked-LM and next-sentence pairs from
a store) and include loading and masking; each does forward, backward, clipping and fused AdamW. Ours runs the project's
loop; the peer is `BertForPreTraining` with `DataCollatorForLanguageModeling` in a plain loop, without a trainer's
overhead. `BertForPreTraining` scores the vocabulary at every position, ours at the masked ones; "peer masked" is the
peer with its output layer at these alone, which its users would have to write. The sides take turns, each in
a fresh process; the first steps of each are not counted. The peak is that of a square matrix product, measured in the
same processes. Both sides also run without dropout, and ours without compiled kernels if it has used any.
Needs `pip install -e '.[bench]'`.
"""

import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

import common
import peaks
import tiny
from bertworks.data.batches import PretrainingData, Vocabulary
from bertworks.data.instances import InstanceConfig, StreamPosition
from bertworks.data.masking import MaskingConfig
from bertworks.data.opening import open_store
from bertworks.data.store import Store
from bertworks.data.vocabulary import tokenizer_of
from bertworks.model.config import ModelConfig
from bertworks.pretraining.job import identity_of, open_training, start_model, train_on_store
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.training import machine
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.distributed import join_world
from bertworks.training.identity import Run
from bertworks.training.machine import prepare_process
from bertworks.training.objectives import PRETRAINING
from bertworks.training.precision import compute_dtype

LENGTH, BATCH = 128, 32
SIDES = ("ours", "peer", "peer masked", "ours without dropout", "peer without dropout", "ours without kernels")
SMOKE = {"megabytes": 0.05, "rounds": 1, "steps": 1, "peer_steps": 1, "skip": 1, "device": "cpu"}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What both sides are given."""

    store: str
    device: str
    steps: int  # counted
    skip: int  # steps before
    small: bool  # the encoder of tiny.py in place of four layers of width 256

    def shape(self, vocab_size: int, dropout: float) -> ModelConfig:
        shape = tiny.SHAPE if self.small else tiny.MINI
        return dataclasses.replace(
            shape, vocab_size=vocab_size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )

    def recipe(self, vocab_size: int, side: str) -> PretrainConfig:
        """The same model, batch and optimizer for all sides."""
        dropout = 0.0 if "without dropout" in side else 0.1
        compute: Literal["auto", "eager"] = "eager" if "without kernels" in side else "auto"
        return PretrainConfig(
            model=self.shape(vocab_size, dropout),
            optim=OptimConfig(lr=1e-4, rule="adamw", warmup=0.0),
            loop=LoopConfig(steps=self.skip + self.steps, eval_every=0, save_every=0, log_every=10**9, compute=compute),
            phases=(Phase(LENGTH, 1.0, BATCH),),
        )


class Clock:
    """Real tokens a second of the steps after the first `skip`."""

    def __init__(self, skip: int, device: torch.device) -> None:
        self.left, self.device, self.tokens = skip, device, 0
        self.start = self.end = self._now() if skip == 0 else 0.0

    def step(self, tokens: int, last: bool) -> None:
        """A step of so many tokens is done."""
        self.left -= 1
        if self.left == 0:
            self.start = self._now()
        elif self.left < 0:
            self.tokens += tokens
        if last:
            self.end = self._now()

    def rate(self) -> float:
        return self.tokens / (self.end - self.start)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def ours(store: Store, config: PretrainConfig, device: torch.device, clock: Clock) -> bool:
    """The project's own loop, as `bertworks pretrain` runs it. Returns whether it used compiled kernels."""
    prepare_process()
    world, source = dataclasses.replace(join_world(), device=device), open_training(config, store.folder, finished=True)
    with tempfile.TemporaryDirectory() as out:
        run = Run(Path(out), identity_of(config, store), world, quiet=True)
        model = start_model(config, None, run, store)
        loop = source.build_loop(run, model, PRETRAINING[config.objective])
        before = 0

        def count(step: int) -> None:
            nonlocal before
            clock.step(loop.progress.tokens - before, step == config.loop.steps)
            before = loop.progress.tokens

        loop.compute_metrics, loop.after_step = None, count
        train_on_store(source, loop)
        return bool(loop.progress.kernels)


def peer_model(shape: ModelConfig) -> Any:
    """BertForPreTraining of the same shape."""
    import transformers

    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    config = transformers.BertConfig(**{name: getattr(shape, name) for name in (*same, *dropout)})
    return transformers.BertForPreTraining(config)


def masked_loss(model: Any, labels: Any, next_sentence_label: Any, **inputs: Any) -> Any:
    """The loss of BertForPreTraining, with its output layer at masked positions alone."""
    encoded, at, cross_entropy = model.bert(**inputs), labels != -100, torch.nn.functional.cross_entropy
    words = cross_entropy(model.cls.predictions(encoded.last_hidden_state[at]), labels[at])
    return words + cross_entropy(model.cls.seq_relationship(encoded.pooler_output), next_sentence_label)


def peer(
    store: Store,
    config: PretrainConfig,
    device: torch.device,
    clock: Clock,
    workers: int = 0,
    compiled: bool = False,
    masked: bool = False,
) -> None:
    """transformers: its model, its collator, torch's loader and optimizer.

    workers: processes of the loader. compiled: whether the model goes through torch.compile. masked: whether the
    vocabulary is scored at masked positions alone.
    """
    import transformers

    (phase,), steps = config.phases, config.loop.steps
    micro = phase.micro_batch_size or phase.batch_size
    tokenizer = transformers.AutoTokenizer.from_pretrained(store.tokenizer_folder)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    examples: Any = list(islice(unmasked(store, phase.length), steps * phase.batch_size))
    pinned = device.type == "cuda"
    loader: Any = torch.utils.data.DataLoader(
        examples, micro, collate_fn=collate, num_workers=workers, pin_memory=pinned
    )
    model = peer_model(config.model).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    forward: Any = torch.compile(model) if compiled else model
    dtype, parts, tokens = compute_dtype("auto", device), phase.batch_size // micro, 0
    for number, batch in enumerate(loader, 1):
        tokens += int(batch["attention_mask"].sum())
        batch = {name: column.to(device, non_blocking=pinned) for name, column in batch.items()}
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            loss = (masked_loss(model, **batch) if masked else forward(**batch).loss) / parts
        loss.backward()
        if number % parts:
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        clock.step(tokens, number == steps * parts)
        tokens = 0


def read_instances(store: Store, length: int = LENGTH) -> PretrainingData:
    vocabulary = Vocabulary.of(tokenizer_of(store))
    return PretrainingData(store, "train", vocabulary, length, InstanceConfig(), MaskingConfig(), 12345)


def unmasked(store: Store, length: int) -> Iterator[dict[str, Any]]:
    """The store's instances before masking, in the order in which ours reads them."""
    data, position = read_instances(store, length), StreamPosition()
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


def one_side(side: str, **given: Any) -> common.Result:
    """One side in this process."""
    sizes = Sizes(**given)
    store, device = open_store(sizes.store, verify=False), torch.device(sizes.device)
    dtype, square = compute_dtype("auto", device), {"size": 256} if sizes.small else {}
    peak = peaks.matmul_peak(device, dtype, **square)
    config, clock = sizes.recipe(store.vocab_size, side), Clock(sizes.skip, device)
    kernels = False
    if side.startswith("ours"):
        kernels = ours(store, config, device, clock)
    else:
        peer(store, config, device, clock, masked="masked" in side)
    return {
        "kernels": kernels,
        "tokens_per_second": clock.rate(),
        "memory": machine.peak_memory(device),
        "matmul_peak": max(peak, peaks.matmul_peak(device, dtype, **square)),
        "dtype": str(dtype),
    }


def compare(options: Any) -> common.Result:
    """All rounds, interleaved, and their medians."""
    with tempfile.TemporaryDirectory() as work:
        store = common.make_store(options.data, options.megabytes, Path(work))
        runs: dict[str, list[common.Result]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side in SIDES:
                if "without kernels" in side and not runs["ours"][0]["kernels"]:
                    continue
                steps = options.steps if side.startswith("ours") else options.peer_steps
                sizes = Sizes(str(store), options.device, steps, options.skip, small=options.smoke)
                runs[side].append(common.fresh(one_side, {"side": side, **vars(sizes)}, options.smoke))
        model = sizes.shape(open_store(store, verify=False).vocab_size, 0.1)
    result = summarise(runs, peaks.useful_flops(PretrainConfig(model=model)))
    return result | {
        "dtype": runs["ours"][0]["dtype"],
        "device": options.device,
        "machine": common.machine_facts(),
    }


def summarise(runs: dict[str, list[common.Result]], flops: float) -> common.Result:
    """Medians, ratios of the sides, and ours as a share of the machine's peak."""
    peak = statistics.median(r["matmul_peak"] for done in runs.values() for r in done)
    rates = {side: statistics.median(r["tokens_per_second"] for r in done) for side, done in runs.items() if done}
    plain = {side: rates[f"{side} without dropout"] for side in ("ours", "peer")}
    result: common.Result = {"what": "real tokens a second of pre-training, L4 H256, length 128, batch 32, dropout 0.1"}
    for side in ("ours", "peer"):
        memory = statistics.median(r["memory"] for r in runs[side])
        every = [round(r["tokens_per_second"]) for r in runs[side]]
        result[side] = {"tokens_per_second": round(rates[side]), "every_run": every, "memory": memory}
    masked = runs["peer masked"]
    kernels = None
    if without := runs["ours without kernels"]:
        kernels = {"tokens_per_second_without": round(rates["ours without kernels"]), **ratio(runs["ours"], without)}
    return result | {
        **ratio(runs["ours"], runs["peer"]),
        "share_of_peak": rates["ours"] * flops / peak,
        "without_dropout": {
            **{side: round(rate) for side, rate in plain.items()},
            "ratio": plain["ours"] / plain["peer"],
            "share_of_peak": plain["ours"] * flops / peak,
        },
        "masked_positions": {"peer": round(rates["peer masked"]), **ratio(runs["ours"], masked)},
        "kernels": kernels,
        "matmul_peak": peak,
        "useful_flops_per_token": flops,
    }


def ratio(some: list[common.Result], others: list[common.Result]) -> common.Result:
    """The ratio of the median rates, and that of each round."""
    rates = [[one["tokens_per_second"] for one in done] for done in (some, others)]
    by_round = [one / other for one, other in zip(*rates, strict=True)]
    return {"ratio": statistics.median(rates[0]) / statistics.median(rates[1]), "ratio_by_round": by_round}


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "pretraining.json")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, for both sides")
    parser.add_argument("--megabytes", type=float, default=10, help="of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="counted steps of ours, a round")
    parser.add_argument("--peer-steps", type=int, default=12, help="counted steps of the peer, a round")
    parser.add_argument("--skip", type=int, default=8, help="steps before counting")
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        common.finish(options, compare(options))


if __name__ == "__main__":
    main(sys.argv[1:])
