"""A run in its folder: open it, train or resume, save, write the results.

Pre-training, distillation and fine-tuning share this. Each says what is trained and how its model is saved; this file
has the folder's lock, the temporary files of killed processes, the state, and results.json, which marks a finished run.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..config import to_toml
from ..files import InputError, OtherRun, check_version, remove_temporaries, try_lock, write_json, write_text
from ..reporting.log import duration
from ..reporting.run_files import LOG, RESULTS, read_results
from . import machine
from .distributed import World
from .identity import FORMAT, RECIPE, Run, RunIdentity
from .log import Log
from .loop import TrainingLoop
from .state import STATE_FOLDER, resume

LOCK = ".lock"
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx", ".csv.gz", ".tsv.gz", ".jsonl.gz")
NOT_OF_RUNS = ("config.json", "manifest.json", "model", RECIPE)  # which no run has before it has a log or a state
ANEW = "restore the file, or remove the folder to run it again"


@contextlib.contextmanager
def open_run(run: Run, keep_state: bool = True) -> Iterator[dict[str, Any] | None]:
    """Make or open the run's folder and hold it until the block ends. Gives the results of a finished run.

    keep_state: whether state/ stays when the run is finished. The processes of one job share the first one's lock.
    Raises InputError if another job uses the folder, or if it belongs to another run; OSError if it cannot be made.
    """
    out, identity, world = run.out, run.identity, run.world
    world.check_equal("recipe", identity.hash)
    with (
        contextlib.ExitStack() as lock,
        torch.inference_mode(False),  # a notebook may have switched it on, or gradients off
        torch.enable_grad(),
    ):

        def look() -> dict[str, Any] | None:
            if not is_finished(out):
                out.mkdir(parents=True, exist_ok=True)
                if not lock.enter_context(try_lock(out / LOCK)):
                    advice = "wait until it ends, or give another output folder"
                    raise InputError(f"{out}: another process is using this run folder; {advice}")
                remove_temporaries(out / STATE_FOLDER)
            remove_temporaries(out)
            return finished(out, identity)  # another job may have ended before the folder was locked

        results = world.from_rank0(look)
        if results is not None:
            run.say(f"{out} is finished; see {out / RESULTS}")
        yield results
        if world.is_main and not keep_state and is_finished(out):
            shutil.rmtree(out / STATE_FOLDER, ignore_errors=True)


def resume_run(loop: TrainingLoop) -> None:
    """Put a new loop at the step where an earlier run segment left it, and write recipe.toml.

    state/ is there before recipe.toml: so a folder with a recipe alone is not taken for a run's.
    """
    trainer, run, state = loop.trainer, loop.run, loop.run.out / STATE_FOLDER
    trainer.start_at(resume(state, trainer.model, trainer.optimizer, run.identity, run.world))
    progress, kernels = trainer.progress, trainer.optimizer.kernels
    name = "" if kernels is None else kernels.name
    if progress.step:
        run.say(f"{run.out}: resuming at step {progress.step:,} after {duration(progress.seconds)}")
    if progress.step and progress.kernels != name:
        run.say("compiled kernels differ from those of the steps so far: the run rounds differently from here on")
    progress.kernels = name
    if run.world.is_main:
        state.mkdir(exist_ok=True)
        write_text(run.out / RECIPE, to_toml(run.identity.recipe))


def train(loop: TrainingLoop) -> bool:
    """Train with a log until the budget is used; False if the run was stopped, by a signal or `on_record`, and saved.

    A signal after the last update, when all is saved, raises KeyboardInterrupt.
    """
    log = Log(loop.trainer, loop.run, is_over=loop.trainer.budget_used >= 1 or loop.stopped_early)
    with contextlib.closing(log.reporter), machine.caught_signals() as stop:
        is_complete = loop.train(log, stop)
    if not is_complete:
        loop.run.say(f"stopped at step {loop.progress.step:,}, saved; rerun the command to resume")
    return is_complete


def run_facts(loop: TrainingLoop) -> dict[str, Any]:
    """What the results of every run have: progress, seed, processes, the identity's hash, the machine."""
    progress = loop.progress
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": progress.seconds,
        "seed": loop.trainer.config.seed,
        "processes": loop.run.world.size,
        "kernels": bool(progress.kernels),
        "recipe": loop.run.identity.hash,
        "machine": machine.facts(),
    }


def refuse_other_folder(out: Path) -> None:
    """Raises InputError if `out` is a file, or no run's folder but one with rows, a model, a store, or a recipe.

    A log of the job may be there. Results and states are checked where they are read: they name the run that wrote
    them.
    """
    if out.is_file():
        raise InputError(f"{out} is a file; expected a run folder, or a path where there is nothing yet")
    if not out.is_dir() or any((out / name).exists() for name in (RESULTS, LOG, STATE_FOLDER)):
        return
    for name in sorted(path.name for path in out.iterdir()):
        if name.lower() in NOT_OF_RUNS or name.lower().endswith(TABLES):
            raise InputError(f"{out} has other files than a run's, such as {name}; name a new folder to write")


def is_finished(out: Path) -> bool:
    """Whether `out` is a finished run, of any recipe: its data need not be checked byte by byte."""
    return (out / RESULTS).exists()


def finished(out: Path, identity: RunIdentity) -> dict[str, Any] | None:
    """The results of the finished run in `out`; None if it is not finished.

    Raises OtherRun for the results of another run or of several runs.
    """
    if not is_finished(out):
        return None
    results: dict[str, Any] = read_results(out / RESULTS, {"recipe?": str}, ANEW)
    if "recipe" in results:
        check_version(results.get("format", 1), range(FORMAT, FORMAT + 1), str(out / RESULTS), ANEW)
    if results.get("recipe") != identity.hash:
        raise OtherRun(
            f"{out} is a finished run with other settings, data or model. {identity.difference(out)}"
            "Give another output folder"
        )
    return results


def write_results(out: Path, results: dict[str, Any], world: World) -> dict[str, Any]:
    """Write results.json, which marks the run as finished, and return its content. The other processes wait."""
    results = {"format": FORMAT, **results}
    if world.is_main:
        write_json(out / RESULTS, results)
    world.barrier()
    return results
