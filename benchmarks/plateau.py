"""The race of starts: which small masked language model with learned positions leaves its plateau early?

    OMP_NUM_THREADS=1 python benchmarks/plateau.py race --corpus STORE --work DIR [--only NAME ...] [--smoke]

Stages: `race`, two layers, 2.4 million tokens at a constant rate after the warm-up; `confirm`, three pre-training seeds
of 6 million tokens with the studies' schedule; `lengths`, the same with one seed and other phases; `deep`, four layers
as in `cpu.toml`, 2.4 million tokens; `long`, the recipe `cpu.toml` itself, 20 million tokens. Every run is a folder in
--work/STAGE: rerun the command to resume after a stop. The result has the curves of each run, and at its snapshots the
held-out loss at [MASK] alone, the attention at offsets -1 and +1, a number for each head, and the size of words and
positions in the last head's width of the embeddings, where position heads have their plane. A result that exists keeps
the runs that --only leaves out. A picture is drawn beside it.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

import common
from bertworks.batch import IGNORED
from bertworks.checkpoint.folder import find_model, load_model
from bertworks.config import RECIPES, from_dict, load_recipe
from bertworks.data.batches import Vocabulary
from bertworks.data.store import Store
from bertworks.files import read_json, write_json
from bertworks.model.heads import Model, build_model
from bertworks.model.position_heads import PositionHeads, start_with_position_heads
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.pretraining.run import pretrain
from bertworks.reporting.run_files import read_log, read_results
from bertworks.training import machine
from plateau_figures import draw

SMOKE = {"stage": "race", "only": ["learned", "heads"]}
OURS = {"position_embedding_type": "learned", "start": "position-heads"}
LEARNED = {"position_embedding_type": "learned", "start": "normal"}
ROTARY = {"position_embedding_type": "rotary", "start": "normal"}
MORE_MASKS = {"masked_lm_prob": 0.4}
LONG = [{"length": 128, "batch_size": 16}]
HALF_LONG = [{"length": 64, "share": 0.5, "batch_size": 32}, {"length": 128, "share": 0.5, "batch_size": 16}]


@dataclass(frozen=True)
class Candidate:
    """What a candidate changes: tables of the recipe, and the numbers of the start."""

    changes: dict[str, Any]
    heads: PositionHeads = field(default_factory=PositionHeads)


CANDIDATES = {
    "rotary": Candidate({"model": ROTARY}),
    "rotary, 40 % masked": Candidate({"model": ROTARY, "masking": MORE_MASKS}),
    "learned": Candidate({"model": LEARNED}),
    "learned, 40 % masked": Candidate({"model": LEARNED, "masking": MORE_MASKS}),
    "heads": Candidate({"model": OURS}),
    "heads, 40 % masked": Candidate({"model": OURS, "masking": MORE_MASKS}),
    "heads at -1, +1": Candidate({"model": OURS}, PositionHeads(offsets=(-1, 1))),
    "heads in the first layer": Candidate({"model": OURS}, PositionHeads(layers=1)),
    "heads in the first layer, 40 % masked": Candidate({"model": OURS, "masking": MORE_MASKS}, PositionHeads(layers=1)),
    "heads in the first two layers, 40 % masked": Candidate(
        {"model": OURS, "masking": MORE_MASKS}, PositionHeads(layers=2)
    ),
    "heads, gain 3": Candidate({"model": OURS}, PositionHeads(gain=3.0)),
    "heads, gain 4": Candidate({"model": OURS}, PositionHeads(gain=4.0)),
    "heads, gain 6": Candidate({"model": OURS}, PositionHeads(gain=6.0)),
    "heads, amplitude 0.1": Candidate({"model": OURS}, PositionHeads(amplitude=0.1)),
    "heads, gain 4, amplitude 0.1": Candidate({"model": OURS}, PositionHeads(gain=4.0, amplitude=0.1)),
    "heads in the first layer, gain 4": Candidate({"model": OURS}, PositionHeads(gain=4.0, layers=1)),
    "heads in the first layer, gain 4, amplitude 0.1": Candidate(
        {"model": OURS}, PositionHeads(gain=4.0, layers=1, amplitude=0.1)
    ),
    "heads, base 100": Candidate({"model": OURS}, PositionHeads(base=100.0)),
    "heads, base 10,000": Candidate({"model": OURS}, PositionHeads(base=10000.0)),
    "heads, spread 0.04": Candidate({"model": {**OURS, "initializer_range": 0.04}}),
    "heads, 30 % masked": Candidate({"model": OURS, "masking": {"masked_lm_prob": 0.3}}),
    "heads, 40 % masked, length 128": Candidate({"model": OURS, "masking": MORE_MASKS, "phases": LONG}),
    "heads, 40 % masked, half at length 128": Candidate({"model": OURS, "masking": MORE_MASKS, "phases": HALF_LONG}),
    "rotary, 40 % masked, length 128": Candidate({"model": ROTARY, "masking": MORE_MASKS, "phases": LONG}),
    "heads, rate 2e-3": Candidate({"model": OURS, "optim": {"lr": 2e-3}}),
}
SEEDS = {"confirm": (12345, 2, 3)}  # of a stage with several; the others have the recipe's
STUDY, CPU = RECIPES / "pretrain" / "study.toml", RECIPES / "pretrain" / "cpu.toml"


def recipe(stage: str, candidate: Candidate, seed: int | None = None, smoke: bool = False) -> PretrainConfig:
    """The recipe of one run."""
    config = load_recipe(CPU if stage == "long" else STUDY, PretrainConfig)
    if stage in ("race", "deep"):
        short = {"optim": {"schedule": "constant"}, "loop": {"tokens": 2_400_000, "eval_every": 300}}
        phases = [{"length": 64, "batch_size": 32}]
        config = from_dict(PretrainConfig, short | {"snapshots": [150, 300, 600, 900], "phases": phases}, start=config)
    if stage == "deep":
        config = replace(config, model=replace(config.model, num_hidden_layers=4))
    config = from_dict(PretrainConfig, candidate.changes, start=config)
    if stage == "long":
        config = replace(config, snapshots=(300, 1000, 3000, 6000))
    if seed is not None:
        config = replace(config, loop=replace(config.loop, seed=seed))
    return shrunk(config) if smoke else config


def shrunk(config: PretrainConfig) -> PretrainConfig:
    """The recipe as two tiny steps."""
    model = replace(config.model, hidden_size=32, num_attention_heads=2, intermediate_size=32)
    loop = replace(config.loop, tokens=0, steps=2)
    return replace(config, model=model, loop=loop, snapshots=(1,), eval_batches=1)


@contextlib.contextmanager
def started_with(heads: PositionHeads) -> Iterator[None]:
    """Models made inside begin with these numbers."""
    start = functools.partial(start_with_position_heads, start=heads)
    with mock.patch("bertworks.model.heads.start_with_position_heads", start):
        yield


# ---- what a run is asked


@torch.no_grad()
def look_inside(model: Model, config: PretrainConfig, store: Store, batches: int = 8) -> dict[str, Any]:
    """The held-out loss at [MASK] alone, and each head's attention at offsets -1 and +1 together: [[...], ...]."""
    model, tokenizer = model.eval(), store.load_tokenizer()
    vocabulary = Vocabulary.of(tokenizer)
    data = config.data(store, "validation", vocabulary, config.phases[0].length)
    loss, masked, seen, near = 0.0, 0, 0, torch.zeros(())
    for batch in data.batches(64, batches):
        out = model.encoder(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], attentions=True)
        ids, positions, labels = batch["input_ids"].flatten(), batch["masked_positions"], batch["masked_labels"]
        at = (labels != IGNORED) & (ids[positions] == tokenizer.mask_id)
        scores = model.masked_lm_logits(out.packed[out.packing.rows(positions[at])])
        loss += F.cross_entropy(scores, labels[at], reduction="sum").item()
        masked += int(at.sum())
        weights = torch.stack(out.attentions, 1)  # (B, layers, N, L, L)
        beside = torch.zeros(weights.shape[:4])
        beside[..., 1:] += weights.diagonal(-1, dim1=-2, dim2=-1)
        beside[..., :-1] += weights.diagonal(1, dim1=-2, dim2=-1)
        real = batch["attention_mask"].bool()[:, None, None, :]
        near = near + (beside * real).sum((0, 3))  # (layers, N)
        seen += int(real.sum())
    return {"mask_loss": loss / masked, "beside": (near / seen).tolist(), "plane": plane_sizes(model, config, store)}


def plane_sizes(model: Model, config: PretrainConfig, store: Store) -> dict[str, float]:
    """Root mean squares in the last head's width of the embeddings: of words by frequency, of positions that occur."""
    table, width = model.encoder.embeddings, config.model.hidden_size // config.model.num_attention_heads
    counts = torch.as_tensor(store.unigram_counts(), dtype=torch.float64)
    squares = table.word.weight[:, -width:].double().square().mean(1)
    found = {"words": float((squares * counts).sum() / counts.sum()) ** 0.5}
    if table.position is not None:
        rows = table.position.weight[: config.phases[0].length, -width:]
        found["positions"] = float(rows.double().square().mean()) ** 0.5
    return found


def curves(out: Path) -> dict[str, Any]:
    """What the run logged: tokens and masked-LM losses, of training and held out, and its results."""
    found: dict[str, Any] = {"train": {"tokens": [], "mlm_loss": []}, "eval": {"tokens": [], "mlm_loss": []}}
    tokens = 0
    for record in read_log(out):
        tokens = record.get("tokens", tokens)
        if record["kind"] in found:
            found[record["kind"]]["tokens"].append(tokens)
            found[record["kind"]]["mlm_loss"].append(round(record["mlm_loss"], 4))
    form = {
        "metrics": {str: float},
        "tokens": int,
        "steps": int,
        "seconds": float,
        "seed": int,
        "recipe": str,
        "corpus": str,
    }
    results = read_results(out / "results.json", form)
    return found | {key: results[key] for key in (*form, "machine")}


def run(name: str, stage: str, seed: int | None, args: Any, store: Store) -> dict[str, Any]:
    """One run, finished or resumed, and what is inside its snapshots."""
    candidate = CANDIDATES[name]
    config = recipe(stage, candidate, seed, args.smoke)
    config = replace(config, model=replace(config.model, vocab_size=store.vocab_size))
    label = "".join(c if c.isalnum() else "-" for c in name) + ("" if seed is None else f"-seed-{seed}")
    out = args.work / stage / label
    with started_with(candidate.heads):
        if pretrain(config, args.corpus, out, quiet=True) is None:
            raise KeyboardInterrupt
        models = {0: build_model(config.model, config.heads, seed=config.loop.seed)}
    found = curves(out) | {"heads": asdict(candidate.heads) if config.model.start == "position-heads" else None}
    folders = {step: out / "snapshots" / f"step-{step}" for step in config.snapshots}
    folders = {step: folder for step, folder in folders.items() if folder.exists()} | {found["steps"]: out}
    models |= {step: load_model(find_model(folder)) for step, folder in folders.items()}
    batches = 1 if args.smoke else 8
    found["inside"] = {str(step): look_inside(model, config, store, batches) for step, model in models.items()}
    return found


def main(argv: list[str] | None = None) -> None:
    made = common.parser(__doc__, "plateau")
    made.add_argument("stage", nargs="?", default="race", choices=["race", "confirm", "lengths", "deep", "long"])
    made.add_argument("--corpus", type=Path, help="a store with a vocabulary of 8,192 tokens")
    made.add_argument("--work", type=Path, help="folder of the runs")
    made.add_argument("--only", nargs="*", choices=[*CANDIDATES], default=[*CANDIDATES])
    with common.parsed(made, argv, SMOKE) as args, tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.work, args.corpus = Path(folder), common.make_store(args.data, 0.05, Path(folder))
        if not (args.work and args.corpus):
            made.error("expected --corpus and --work, or --smoke")
        machine.prepare_process()
        store = Store.open(args.corpus, verify=False)
        path = args.out / f"{args.stage}.json"
        found: dict[str, Any] = read_json(path) if path.exists() else {}
        for name in args.only:
            for seed in SEEDS.get(args.stage, (None,)):
                key = name if seed is None else f"{name}, seed {seed}"
                found[key] = run(name, args.stage, seed, args, store)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, found)
                print(f"{key}: held-out loss {found[key]['metrics']['mlm_loss']:.3f}", flush=True)
        draw(path)


if __name__ == "__main__":
    main()
