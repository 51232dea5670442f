"""Scores before and after an export: fine-tuned all-MiniLM-L6-v2 in float32, bfloat16, ONNX and int8, on the same rows.

    python benchmarks/export_scores.py --data ../shared/data --runs runs/export-scores --threads 2
    python benchmarks/export_scores.py --data ../shared/data --runs runs/export-scores --tasks sst2 --seeds 1
    python benchmarks/export_scores.py --smoke

A run folder is `<runs>/<task>-<seed>`: one that is there is used, whatever model it began with; else it is fine-tuned
with the settings of finetuning_settings.py. Static int8 is calibrated on training texts. Each form writes
`<task>-<seed>-<form>.json` into --out and is skipped if it has its file, so rerun the command to resume. The difference
of each metric has a paired bootstrap interval over the development rows. Needs `pip install -e '.[test]'`.
"""

import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import common
from bertworks.apps.export.config import ExportConfig
from bertworks.apps.export.folder import export
from bertworks.experiments.compare import compare_runs
from bertworks.files import read_json, to_json, write_json, write_text
from bertworks.inference.engines import Computing
from bertworks.inference.evaluation import Evaluation
from bertworks.inference.model import LoadedModel
from bertworks.reporting.run_files import PREDICTIONS
from bertworks.tasks.base import Task
from finetuning_scores import data_of, fine_tuned
from finetuning_settings import TASKS, Settings

MEASURED = ("sst2", "mrpc", "conll2003", "squad1")
FORMS = ("bfloat16", "onnx-float32", "onnx-int8", "onnx-int8-static")
CALIBRATION = 128  # texts
SMOKE = {"tasks": ["sst2"], "seeds": [1], "threads": 1, "forms": ["bfloat16", "onnx-int8-static"]}


def judged(loaded: LoadedModel, task: Task, rows: Sequence[Any], results: dict[str, Any], out: Path) -> dict[str, Any]:
    """The metrics of a loaded folder; writes them and its predictions as a run that can be compared."""
    begun = time.perf_counter()
    found = Evaluation.prepare(loaded, task, rows).run()
    seconds = time.perf_counter() - begun
    out.mkdir(parents=True)
    write_json(out / "results.json", {**results, "metrics": found.metrics, "predicted": found.predicted})
    write_text(out / PREDICTIONS, "".join(to_json(row) + "\n" for row in found.files[PREDICTIONS]))
    return {"metrics": found.metrics, "seconds": seconds}


def texts_of(rows: Sequence[Any]) -> list[str]:
    """A text of each training row, on one line."""
    fields = ("context", "text", "words")
    found = [next(getattr(row, name) for name in fields if hasattr(row, name)) for row in rows]
    texts = [" ".join(value) if isinstance(value, list | tuple) else str(value) for value in found]
    step = max(1, len(texts) // CALIBRATION)
    return [" ".join(text.split()) for text in texts[::step] if text.strip()][:CALIBRATION]


def loaded_as(form: str, folder: Path, train: Sequence[Any], work: Path) -> tuple[LoadedModel, dict[str, Any]]:
    """The folder in one form, and what its export says."""
    if form == "bfloat16":
        return LoadedModel.load(folder, device="cpu", computing=Computing("bfloat16")), {}
    texts = work / "calibration.txt"
    write_text(texts, "".join(f"{text}\n" for text in texts_of(train)))
    precision = "float32" if form == "onnx-float32" else "int8"
    config = ExportConfig(precision, texts if form.endswith("static") else None)  # type: ignore[arg-type]
    certificate = export(folder, work / "export", config)
    size = sum(path.stat().st_size for path in (work / "export" / "onnx").iterdir())
    keys = ("difference", "calibration")
    return LoadedModel.load(work / "export"), {"bytes": size} | {k: v for k, v in certificate.items() if k in keys}


def measure(task: str, seed: int, form: str, settings: Settings, run: Path) -> dict[str, Any]:
    """Metrics of the run's folder and of one form of it, and their paired differences."""
    known, data = data_of(task, settings)
    results = read_json(run / "results.json", finite=False)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = LoadedModel.load(run, device="cpu")
        before = judged(source, known, data.dev, results, work / "before")
        loaded, facts = loaded_as(form, run, data.train, work)
        after = judged(loaded, known, data.dev, results, work / "after")
        compared = compare_runs(work / "before", work / "after")
    return {
        "task": task,
        "seed": seed,
        "form": form,
        "rows": len(data.dev),
        "before": before,
        "after": after,
        "differences": compared["metrics"],
        "samples": compared["samples"],
        **facts,
        "settings": settings.recorded(),
        "machine": common.machine_facts(),
    }


def run_all(options: Any) -> None:
    """Every task, seed and form that has no file yet."""
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    runs = options.runs or options.out / "runs"
    for seed in options.seeds:
        for task in options.tasks:
            settings = dataclasses.replace(TASKS[task], data=options.data, model=options.model)
            if options.limit:
                settings = dataclasses.replace(settings, rows=options.limit, dev_rows=options.limit)
            run = runs / f"{task}-{seed}"
            paths = {form: options.out / f"{task}-{seed}-{form}.json" for form in options.forms}
            missing = [form for form, path in paths.items() if not path.exists()]
            if missing and not (run / "results.json").exists():
                fine_tuned(task, seed, settings, run)
            for form in missing:
                result = measure(task, seed, form, settings, run)
                write_json(paths[form], result)
                print(time.strftime("%H:%M:%S"), paths[form].stem, line_of(result), file=sys.stderr, flush=True)


def line_of(result: dict[str, Any]) -> str:
    """The first metric before and after, with its interval."""
    name, found = next(iter(result["differences"].items()))
    low, high = found["interval"]
    change = f"{found['difference']:+.4f} ({low:+.4f} to {high:+.4f})"
    return f"{name} {found['first']:.4f} -> {found['second']:.4f}, {change}, n = {result['rows']}"


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments and run."""
    parser = common.parser(__doc__, "export_scores")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(MEASURED), help="a,b,... (four)")
    parser.add_argument("--forms", type=lambda text: text.split(","), default=list(FORMS), help="a,b,... (all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--runs", type=Path, help="folder of run folders, <task>-<seed> each (in --out)")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder that fine-tuning begins with")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--limit", type=int, default=0, help="rows of train and dev, to try it out")
    with common.parsed(parser, argv, SMOKE) as options:
        for given, known in ((options.tasks, TASKS), (options.forms, FORMS)):
            if unknown := set(given) - set(known):
                parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        common.need(options.data, options.model)
        run_all(options)


if __name__ == "__main__":
    main(sys.argv[1:])
