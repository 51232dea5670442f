"""What continued pre-training on a task's own texts gains: scores after fine-tuning with few labelled rows.

    python benchmarks/continued.py --encoders A B C --corpus STORE --work DIR [--task sst2] [--folder glue/SST-2]
        [--rows 200 1000] [--seeds 1 2 3] [--tokens 2000000] [--data ../shared/data] [--out FILE] [--smoke]

Three starts of each encoder: as it is; after so many more tokens of masked LM on its own corpus; after as many on the
training texts of the task, without their labels. The second separates the texts from the longer training. An encoder
is a pre-training run, STORE the corpus it was trained on. Each seed draws its rows. A finished run in DIR is not run
again: rerun the command to resume.

The claim, named before any run: with the most rows, texts of the task are better than the encoder as it is. n counts
encoders, which should differ in their seed of pre-training; a value is the mean over the seeds of fine-tuning.
"""

import statistics
from pathlib import Path
from typing import Any

import bertworks
import common
import tiny
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.experiments.differences import difference
from bertworks.files import write_text
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import load_data
from bertworks.tokenizer import Tokenizer
from bertworks.training.config import LoopConfig

AS_IT_IS, OWN_CORPUS, TASK_TEXTS = "as it is", "its own corpus", "texts of the task"
SMOKE = {"rows": [4], "seeds": [1], "tokens": 40, "task": "sst2", "folder": "glue/SST-2"}
RECIPE = {"lr": 3e-4, "warmup": 0.03}  # a third of the rate of the studies' pre-training
FINETUNE = {"epochs": 10.0, "batch_size": 16, "optim": {"lr": 2e-4}}  # those that the study `examples` chose


def store_of(task: str, folder: Path, encoder: Path, out: Path) -> Path:
    """A store of the task's training texts in the encoder's vocabulary."""
    if not (out / "manifest.json").exists():
        rows = load_data(find_task(task), folder).train
        texts = (" ".join(row.text.split()) for row in rows)
        write_text(out.with_suffix(".txt"), "\n\n".join(dict.fromkeys(texts)) + "\n")
        config = BuildConfig(InputOptions("text", "blank-line"), workers=1, allow_unknown=True)
        build([str(out.with_suffix(".txt"))], Tokenizer.load(encoder / "model"), out, config, progress=False)
    return out


def continued(encoder: Path, corpus: Path, tokens: int, out: Path, recipe: Any) -> Path:
    """The run folder of the encoder after so many more tokens of masked LM."""
    fields: dict[str, Any] = {"objective": "mlm", "snapshots": (), "loop": {"tokens": tokens}, "optim": RECIPE}
    bertworks.pretrain(recipe, corpus, out, init=encoder, quiet=True, **fields)
    return out


def score(start: Path, options: Any, rows: int, seed: int, out: Path) -> float:
    """The first metric of the task on its development rows, after fine-tuning on a draw of its training rows."""
    where = {"task": options.task, "data": options.data / options.folder}
    fields: dict[str, Any] = {"recipe": "study", "loop": {"seed": seed}, **FINETUNE}
    done = bertworks.finetune(start, out, **where, train_rows=rows, split_seed=seed, quiet=True, **fields)
    return done.metrics[find_task(options.task).metrics[0]]


def measure(options: Any) -> common.Result:
    """Scores of every start, by rows and encoder; written after each encoder."""
    values: dict[str, dict[str, dict[str, float]]] = {}
    held_out: dict[str, list[float]] = {}
    result: common.Result = {
        "what": f"{options.task}: scores after continued pre-training on {options.tokens:,} tokens",
        "metric": find_task(options.task).metrics[0],
        "seeds": options.seeds,
        "tokens": options.tokens,
        "values": values,
        "differences": {},
        "held_out": held_out,
        "machine": common.machine_facts(),
    }
    for number, encoder in enumerate(options.encoders, 1):
        work = options.work / f"encoder-{number}"
        texts = store_of(options.task, options.data / options.folder, encoder, options.work / "texts")
        starts = {AS_IT_IS: encoder}
        for name, corpus in ((OWN_CORPUS, options.corpus), (TASK_TEXTS, texts)):
            starts[name] = continued(encoder, corpus, options.tokens, work / name.replace(" ", "-"), options.recipe)
            log = bertworks.read_log(starts[name])
            held_out.setdefault(name, []).append(next(r["mlm_loss"] for r in reversed(log) if "mlm_loss" in r))
        for rows in options.rows:
            for name, start in starts.items():
                runs = [
                    score(start, options, rows, seed, work / f"{rows}-{name.replace(' ', '-')}-{seed}")
                    for seed in options.seeds
                ]
                values.setdefault(str(rows), {}).setdefault(name, {})[str(number)] = statistics.mean(runs)
        for rows, each in values.items():
            for name in (AS_IT_IS, OWN_CORPUS):
                result["differences"][f"{rows} rows, {TASK_TEXTS} minus {name}"] = vars(
                    difference(each[name], each[TASK_TEXTS])
                )
        common.keep(options, result)
    return result


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "continued.json")
    parser.add_argument("--encoders", type=Path, nargs="+", default=[], help="pre-training runs")
    parser.add_argument("--corpus", type=Path, help="the store that they were trained on")
    parser.add_argument("--work", type=Path, default=Path("continued"), help="folder of the runs")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--folder", default="glue/SST-2", help="the task's folder in --data")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1000], help="labelled rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--recipe", default="study", help="recipe of the encoders, which have its shape")
    with common.parsed(parser, argv, SMOKE) as options:
        if options.smoke:
            options.work = options.data.parent
            options.corpus = common.make_store(options.data, 0.05, options.work)
            loop = LoopConfig(tokens=options.tokens, save_every=0)
            options.recipe = PretrainConfig("mlm", tiny.SHAPE, loop=loop, phases=(Phase(24, 1.0, 4),))
            bertworks.pretrain(options.recipe, options.corpus, options.work / "first", quiet=True)
            options.encoders = [options.work / "first"]
        if not options.encoders or options.corpus is None:
            parser.error("give --encoders and --corpus")
        common.finish(options, measure(options))


if __name__ == "__main__":
    main()
