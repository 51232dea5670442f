"""The paper's search as one command: a grid of settings, each with several seeds, chosen on dev alone (4.1, A.3).

    OUT/b16-lr5e-05-e2/seed-1/    a run folder as finetuning/run.py makes it; model/ goes once another run is better
    OUT/b16-lr5e-05-e2/           results.json of the setting: mean and standard deviation over its seeds
    OUT/model/, best.json         a copy of the best run's model, and which run that is
    OUT/results.json, sweep.md    the settings side by side, and the chosen one

The setting is chosen by the mean over its seeds, collapsed ones included; the best single run, which is what the paper
took for LARGE, stands beside it. Rows are read and featurised once. Typing the same line again resumes.
"""

import itertools
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, read_json, write_json, write_text
from ..finetuning.job import FinetuneConfig, Job
from ..finetuning.run import check_folder, run_seeds
from ..reporting.tables import Sheet, points


class Setting(NamedTuple):
    """One cell of a grid."""

    batch_size: int
    lr: float
    epochs: float

    @property
    def name(self) -> str:
        """Its folder: b16-lr5e-05-e2."""
        return f"b{self.batch_size}-lr{self.lr:g}-e{self.epochs:g}"

    def of(self, config: FinetuneConfig) -> FinetuneConfig:
        """The recipe with this setting in it."""
        optim = replace(config.optim, lr=self.lr)
        return replace(config, batch_size=self.batch_size, epochs=float(self.epochs), min_steps=0, optim=optim)


def _grid(batch_sizes: tuple[int, ...], rates: tuple[float, ...], epochs: tuple[float, ...]) -> tuple[Setting, ...]:
    return tuple(itertools.starmap(Setting, itertools.product(batch_sizes, rates, epochs)))


SWEEPS = {
    "paper": _grid((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)),  # A.3
    "glue": _grid((32,), (5e-5, 4e-5, 3e-5, 2e-5), (3,)),  # section 4.1
}


def sweep(job: Job, out: Path | str, name: str = "paper", keep_all: bool = False) -> dict[str, Any] | None:
    """Train every setting of the grid `name` with the recipe's seeds; None if stopped before the end.

    keep_all: keep every run's model, not the best one's alone. Returned and written to results.json: `settings`,
    `chosen` (the name of one), its `metrics` and `std`, `best` (a run), ... Raises InputError for an unknown grid, and
    if `out` holds anything else.
    """
    out, settings = Path(out), SWEEPS.get(name, ())
    config = replace(job.config, seeds=job.config.seeds or (job.config.loop.seed,))
    _check(config, settings, name, out)
    seeds = ", ".join(map(str, config.seeds))
    best = Best(job.task.metrics[0], keep_all or not job.world.main)
    summaries = []
    job.say(f"sweep {name}: {len(settings)} settings of batch_size, optim.lr and epochs, each with seeds {seeds}")
    for number, setting in enumerate(settings, 1):
        job.say(f"[{number}/{len(settings)}] {setting.name}")
        found = run_seeds(replace(job, config=setting.of(config)), out / setting.name, best.take)
        if found is None:
            return None
        summaries.append(found)
    results = _results(name, summaries, best, out)
    if job.world.main:
        best.hand_over(out)
        write_text(out / "sweep.md", table(results).markdown())
        write_json(out / "results.json", results)
    job.world.wait()
    return results


def _check(config: FinetuneConfig, settings: tuple[Setting, ...], name: str, out: Path) -> None:
    if not settings:
        raise InputError(f"no sweep {name!r}; expected one of {', '.join(SWEEPS)}")
    loop = config.loop
    if (loop.steps or loop.tokens or loop.hours) and len({setting.epochs for setting in settings}) > 1:
        raise InputError(f"the sweep {name} varies epochs; leave loop.steps, loop.tokens and loop.hours out")
    check_folder(out, {"kind": "sweep", "sweep": name})


@dataclass
class Best:
    """The best run so far; unless `keep_all`, only its model stays on disk."""

    metric: str
    keep_all: bool
    folder: Path = Path()
    value: float | None = None
    collapsed: bool = False

    def take(self, folder: Path, results: dict[str, Any]) -> None:
        """Compare with a finished run; the weaker one loses its weights, while results and predictions stay."""
        value, loser = results["metrics"][self.metric], folder
        if self.value is None or value > self.value:
            loser = folder if self.value is None else self.folder
            self.folder, self.value, self.collapsed = folder, value, results["collapsed"]
        if loser != self.folder and not self.keep_all:
            shutil.rmtree(loser / "model", ignore_errors=True)

    def told(self, out: Path) -> dict[str, Any]:
        run = self.folder.relative_to(out).as_posix()
        return {"run": run, "metric": self.metric, "value": self.value, "collapsed": self.collapsed}

    def hand_over(self, out: Path) -> None:
        """Copy the model to out/model, and say in best.json whose it is."""
        told, note = self.told(out), out / "best.json"
        if note.exists() and read_json(note) == told and (out / "model").exists():
            return
        if not (self.folder / "model").exists():
            raise InputError(f"{self.folder} has lost its model to a better run; remove the folder to train it again")
        temporary = out / ".model.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(self.folder / "model", temporary)
        note.unlink(missing_ok=True)
        shutil.rmtree(out / "model", ignore_errors=True)
        temporary.rename(out / "model")
        write_json(note, told)


def _entry(setting: Setting, found: dict[str, Any], metric: str) -> dict[str, Any]:
    """A setting's figures, from the summary of its seeds."""
    without = found["without_collapsed"]
    return {
        "name": setting.name,
        **setting._asdict(),
        "n": len(found["runs"]),
        "best": max(run[metric] for run in found["runs"]),
        "mean": found["metrics"][metric],
        "sd": found["std"][metric],
        "collapsed": sum(found["collapsed"]),
        "mean_without_collapsed": without["metrics"].get(metric),
        "sd_without_collapsed": without["std"].get(metric),
        "metrics": found["metrics"],
        "std": found["std"],
        "seconds": found["seconds"],
    }


def _results(name: str, summaries: list[dict[str, Any]], best: Best, out: Path) -> dict[str, Any]:
    entries = [_entry(*pair, best.metric) for pair in zip(SWEEPS[name], summaries, strict=True)]
    chosen, summary = max(zip(entries, summaries, strict=True), key=lambda pair: pair[0]["mean"])
    shared = ("task", "majority", "examples", "data", "model", "random_init", "machine")
    return {
        "kind": "sweep",
        "sweep": name,
        **{key: summary[key] for key in shared},
        "metric": best.metric,
        "seeds": summary["seeds"],
        "chosen": chosen["name"],
        "metrics": chosen["metrics"],
        "std": chosen["std"],
        "collapsed": summary["collapsed"],
        "best": best.told(out),
        "settings": entries,
        "seconds": sum(entry["seconds"] for entry in entries),
    }


def table(results: dict[str, Any]) -> Sheet:
    """The settings side by side; `sound` runs are those that did not collapse."""
    header = ("setting", "n", "best", "mean", "sd", "collapsed", "sound: mean", "sd")
    rows = []
    for entry in results["settings"]:
        chosen = " *" if entry["name"] == results["chosen"] else ""
        without = [entry[f"{key}_without_collapsed"] if entry["collapsed"] else None for key in ("mean", "sd")]
        numbers = [points(entry[key]) for key in ("best", "mean", "sd")]
        lost = str(entry["collapsed"] or "-")
        rows.append((entry["name"] + chosen, str(entry["n"]), *numbers, lost, *map(points, without)))
    best = results["best"]
    notes = (
        f"* chosen by its mean over {len(results['seeds'])} seeds; every figure here was chosen on dev and is a little "
        "too good",
        f"best run: {best['run']}, {points(best['value'])}{' (collapsed)' if best['collapsed'] else ''}; its model is "
        "in model/",
    )
    rows_of_dev = results["examples"]["dev"]
    return Sheet(f"{results['task']}: {results['metric']} on {rows_of_dev:,} rows of dev", header, rows, notes)
