"""Embedders, side by side with sentence-transformers: Spearman on a dev set, from the same weights, by seed.

    python benchmarks/embedding_scores.py [--task stsb|korsts] [--data ../shared/data] [--model FOLDER] [--out FILE]
    python benchmarks/embedding_scores.py --smoke

Both sides train mean-pooled vectors on the scores of STS-B or KorSTS (divided by 5) with the cosine loss: AdamW, the
same rate, warm-up over the first tenth, linear decay, batches, epochs, float32, and the dropout of the folder's config.
They draw different batches and dropout masks. Each side runs in a fresh process. `before` is the folder as it is.
--model: a BERT folder in Hugging Face's layout; all-MiniLM-L6-v2 if left out, which was trained on sentence pairs
already, so give an encoder that was only pre-trained for a fair question. Needs `pip install -e '.[test,bench]'`.
"""

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from bertworks.files import read_json
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune
from bertworks.inference.evaluation import evaluate
from bertworks.tasks.base import Data, Example, Task
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import load_data, own_task
from bertworks.training.config import LoopConfig, OptimConfig

SMOKE = {"seeds": [1], "epochs": 1, "rows": 16, "length": 16, "batch_size": 8}
HIGHEST = 5.0  # of the scores
FOLDERS = {"stsb": "glue/STS-B", "korsts": "korean/korsts"}  # of --data, by task
TASK = own_task("embedding", ("sentence1", "sentence2"), "score")


def rows_of(data: str, task: str, rows: int) -> tuple[list[Example], list[Example]]:
    """Training and development pairs, the first `rows` of each (0: all), with scores from 0 to 1."""
    read = load_data(find_task(task), Path(data) / FOLDERS[task])
    scaled = ([row._replace(label=str(float(row.label) / HIGHEST)) for row in part] for part in (read.train, read.dev))
    train, dev = (list(part)[: rows or None] for part in scaled)
    return train, dev


def spearman(model: Path | str, dev: list[Example], length: int) -> float:
    """Spearman's correlation of a folder's cosines with the scores: one program judges both sides."""
    task: Task = replace(TASK, metrics=("spearman",))
    return float(evaluate(model, task, dev, length)["metrics"]["spearman"])


def ours(given: dict[str, Any], seed: int) -> common.Result:
    """bertworks: Spearman on dev, and seconds of training."""
    train, dev = rows_of(given["data"], given["task"], given["rows"])
    config = FinetuneConfig(
        max_seq_length=given["length"],
        optim=OptimConfig(lr=given["lr"], eps=1e-8, rule="adamw", weight_decay=0.0, warmup=0.1, schedule="hf"),
        loop=LoopConfig(seed=seed, eval_every=10**9, save_every=10**9, precision="float32"),
        epochs=given["epochs"],
        batch_size=given["batch_size"],
        dropout=read_json(Path(given["model"]) / "config.json")["hidden_dropout_prob"],
    )
    with tempfile.TemporaryDirectory() as out:
        results = finetune(config, TASK, Data(train, dev), given["model"], Path(out) / "run", quiet=True)
        assert results is not None
        found = spearman(Path(out) / "run", dev, given["length"])
    return {"spearman": found, "seconds": results["seconds"], "steps": results["steps"]}


def sentence_transformers(given: dict[str, Any], seed: int) -> common.Result:
    """sentence-transformers with its trainer: the same."""
    import time

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as TrainingArguments
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    train, dev = rows_of(given["data"], given["task"], given["rows"])
    with tempfile.TemporaryDirectory() as out:
        network = SentenceTransformer(given["model"], device="cpu")
        network.max_seq_length = given["length"]
        arguments = TrainingArguments(
            output_dir=out,
            num_train_epochs=given["epochs"],
            per_device_train_batch_size=given["batch_size"],
            learning_rate=given["lr"],
            warmup_steps=0.1,
            weight_decay=0.0,
            seed=seed,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        columns = {
            "sentence1": [row.text for row in train],
            "sentence2": [row.pair for row in train],
            "score": [float(row.label or 0) for row in train],
        }
        loss = CosineSimilarityLoss(network)
        trainer = SentenceTransformerTrainer(network, arguments, Dataset.from_dict(columns), loss=loss)
        begun = time.perf_counter()
        done = trainer.train()
        seconds = time.perf_counter() - begun
        network.save_pretrained(f"{out}/model")
        found = spearman(f"{out}/model", dev, given["length"])
    return {"spearman": found, "seconds": round(seconds, 2), "steps": done.global_step}


SIDES = {"ours": ours, "sentence-transformers": sentence_transformers}


def one_side(side: str, given: dict[str, Any], seed: int) -> common.Result:
    """A run of one side, in a process of its own."""
    return SIDES[side](given, seed)


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, run both sides seed by seed, write the JSON after each."""
    if common.answer(one_side, argv):
        return
    parser = common.parser(__doc__, "embedding-scores.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder that both sides start from")
    parser.add_argument("--task", choices=FOLDERS, default="stsb")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="tokens of a text")
    parser.add_argument("--rows", type=int, default=0, help="of train and dev; 0: all")
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.data / FOLDERS[options.task], options.model)
        given = {key: getattr(options, key) for key in ("task", "epochs", "lr", "batch_size", "length", "rows")}
        given |= {"data": str(options.data), "model": str(options.model)}
        _, dev = rows_of(given["data"], options.task, options.rows)
        runs: dict[str, list[common.Result]] = {side: [] for side in SIDES}
        result = {
            "what": f"Spearman on the dev set of {options.task}: embedders trained with the cosine loss, same weights",
            "model": options.model.parent.name if options.model.name == "model" else options.model.name,
            "settings": {key: given[key] for key in ("epochs", "lr", "batch_size", "length", "rows")},
            "before": spearman(options.model, dev, options.length),
            "sides": runs,
            "machine": common.machine_facts(),
        }
        for seed in options.seeds:
            for side in SIDES:
                made = common.fresh(one_side, {"side": side, "given": given, "seed": seed}, here=options.smoke)
                runs[side].append({"seed": seed, **made})
                common.keep(options, result)
        result["mean"] = {side: statistics.fmean(run["spearman"] for run in found) for side, found in runs.items()}
        common.finish(options, result)


if __name__ == "__main__":
    main(sys.argv[1:])
