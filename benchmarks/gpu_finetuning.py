"""Fine-tuning of a pre-trained encoder and of random weights, all tasks at once. Stage `finetuning` of gpu.sh.

    benchmarks/gpu.sh finetuning --model MODEL [--data FOLDER] [--tasks sst2 ...] [--out FOLDER] [--smoke]

The tasks share the GPU, each start of each task in a process of its own, since small batches leave most of a GPU idle.
A process takes one seed after the other, as many of --seeds as the minutes allow. Layers are not compiled: that takes
longer than such a run. --data needs glue/SST-2, glue/MRPC and glue/QNLI (train.tsv, dev.tsv), conll2003 (eng.train,
eng.testa, eng.testb) and squad (train-v1.1.json or train-v1.1-13pct.json, dev-v1.1.json). finetuning.json is written at
the end and has:

- `cells`: for each task and start (`pretrained`, `random`) the metrics on development rows, by seed.
- `effects`: pre-trained minus random of the task's metric: the mean over the seeds that both have, and its 95 %
  interval over these seeds. It is a statement about one encoder.
"""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bertworks
import common
import gpu_common
import tiny
from bertworks.experiments.statistics import paired

TASKS = {  # name: folder under --data, metric, settings
    "sst2": ("glue/SST-2", "accuracy", {"epochs": 1.0}),
    "mrpc": ("glue/MRPC", "f1", {}),
    "qnli": ("glue/QNLI", "accuracy", {}),
    "conll2003": ("conll2003", "f1", {}),
    "squad1": ("squad", "f1", {"epochs": 2.0}),
}
STARTS = ("pretrained", "random")
NAMES = {"train-v1.1-13pct.json": "train-v1.1.json"}  # a part of the training set by the name of the whole
RESERVE = 15.0  # seconds for the end of the command
SMOKE = {"device": "cpu", "tasks": ["mrpc"], "seeds": [1], "minutes": 5.0}


def named_folder(source: Path, work: Path) -> Path:
    """The folder with its files, some by another name."""
    folder = work / source.name
    folder.mkdir()
    for path in source.iterdir():
        (folder / NAMES.get(path.name, path.name)).symlink_to(path.resolve())
    return folder


def one_start(
    task: str, start: str, model: str, data: str, seeds: list[int], seconds: float, small: bool
) -> common.Result:
    """The metrics of one start of a task by seed; no seed is begun that would take longer than the seconds left."""
    begun, settings = time.monotonic(), TASKS[task][2]
    found: common.Result = {}
    with tempfile.TemporaryDirectory() as work:
        rows = named_folder(Path(data) / TASKS[task][0], Path(work))
        for done, seed in enumerate(seeds):
            spent = time.monotonic() - begun
            if done and spent * (done + 1) / done > seconds:
                break
            given: dict[str, Any] = {"epochs": 3.0, "batch_size": 32, "optim": {"lr": 1e-4}, **settings}
            given["loop"] = {"seed": seed, "compile": "off", "save_minutes": 0.0, "log_every": 100}
            if small:
                given |= {"max_seq_length": 32, "epochs": 0.2, "batch_size": 8}
            out = Path(work) / f"{start}-{seed}"
            done_run = bertworks.finetune(
                model, out, task=task, data=rows, random_init=start == "random", quiet=True, **given
            )
            found[str(seed)] = done_run.metrics
            shutil.rmtree(out)
    return {"by_seed": found, "seconds": time.monotonic() - begun}


def one_cell(**given: Any) -> common.Result:
    """What a process of this script does."""
    return gpu_common.attempted(lambda: one_start(**given))


def effect(task: str, found: Mapping[str, common.Result]) -> common.Result | None:
    """Pre-trained minus random over the seeds that both have; None without any."""
    metric = TASKS[task][1]
    pretrained, random = (
        {seed: one[metric] for seed, one in found[start].get("by_seed", {}).items()} for start in STARTS
    )
    difference = paired(random, pretrained)
    return difference and {"metric": metric, **difference}


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, write finetuning.json."""
    if common.answer(one_cell, argv):
        return
    made = gpu_common.parser(__doc__, minutes=4.0)
    made.add_argument("--model", type=Path, help="model folder or run folder of the pre-trained encoder")
    made.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    with common.parsed(made, argv, SMOKE) as options:
        device = gpu_common.need_device(options.device)
        if options.smoke:
            options.model = tiny.write_model(options.out.parent / "model")
        if not options.model:
            raise SystemExit("found no --model; expected the folder of a pre-trained encoder; give its run folder")
        common.need(options.model, option="--model")
        common.need(*(options.data / TASKS[task][0] for task in options.tasks))
        gpu_common.set_aside(options, "finetuning")
        result: common.Result = {"machine": gpu_common.facts(device), "model": str(options.model)}
        left = gpu_common.seconds_left(options) - RESERVE
        given = {"model": str(options.model), "data": str(options.data), "seeds": options.seeds, "seconds": left}
        given["small"] = options.smoke
        cells = {
            f"{task} {start}": {"task": task, "start": start} | given for task in options.tasks for start in STARTS
        }
        found = dict(gpu_common.run_together(one_cell, cells, options.device, left + RESERVE / 2, options.smoke))
        result["cells"] = found
        result["effects"] = {
            task: effect(task, {start: found[f"{task} {start}"] for start in STARTS}) for task in options.tasks
        }
        gpu_common.finish(options, "finetuning", result)


if __name__ == "__main__":
    main()
