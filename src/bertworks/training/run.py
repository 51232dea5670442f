"""A run in its folder: open it, train or resume, save, write the results.

Pre-training, distillation and fine-tuning share this. Each says what is trained and how its model is saved; this file
has the folder's lock, the temporary files of killed processes, the state, and results.json, which marks a finished run.
"""

import contextlib
import fnmatch
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..config import to_toml
from ..files import (
    InputError,
    NotWritten,
    OtherRun,
    check_version,
    remove_temporaries,
    shorten,
    try_lock,
    write_json,
    write_text,
)
from ..model.heads import Model
from ..model.kernels import load
from ..model.prepare import compile_layers
from ..reporting.log import duration
from ..reporting.run_files import LOG, RESULTS, read_results
from ..typed import check_fields
from . import machine
from .distributed import World
from .identity import FORMAT, RECIPE, RunIdentity
from .loop import Peaks, TrainingLoop, Watch
from .state import STATE, STATE_FOLDER, resume
from .trainer import Trainer

LOCK = ".lock"
SUMMARIES = {"seeds", "sweep", "suite", "study"}  # fields of results.json that stands for several runs
NOT_OF_RUNS = (  # files and folders that no run has before its first state, in small letters
    *("*.csv", "*.tsv", "*.jsonl", "*.parquet", "*.xlsx", "*.csv.gz", "*.tsv.gz", "*.jsonl.gz"),
    *("config.json", "manifest.json", "model", STATE_FOLDER),
)
ANEW = "restore the file, or remove the folder to run it again"


@dataclass(frozen=True)
class Run:
    """A run of this process: its folder, what it is, and who takes part."""

    out: Path
    identity: RunIdentity
    world: World
    quiet: bool = False
    watch: Watch | None = None  # see TrainingLoop

    def say(self, text: str) -> None:
        """Print a line to stderr, once for all processes."""
        if not self.quiet and self.world.main:
            print(text, file=sys.stderr)


OnStep = Callable[[dict[str, Any]], Any]
"""Called with each record of a run's log; when it returns True, the run is saved and stops."""


def watch_of(on_step: OnStep | None) -> Watch | None:
    """What the loop calls, of a callback that takes whole records. Raises InputError if it is no function."""
    if on_step is not None and not callable(on_step):
        raise InputError(f"on_step = {shorten(on_step)}; expected a function that takes a record, or None")
    return None if on_step is None else lambda kind, values: on_step({"kind": kind, **values}) is True


def out_folder(out: Any) -> Path:
    """The run folder of a call in Python. Raises InputError if it is no path."""
    if not isinstance(out, str | os.PathLike):
        raise InputError(f"out = {shorten(out)}; expected the path of the run folder to write")
    return Path(out)


@contextlib.contextmanager
def open_run(
    run: Run, schema: Mapping[str, Any] | None = None, keep_state: bool = True
) -> Iterator[dict[str, Any] | None]:
    """Open the run's folder for training and hold it until the block ends. Gives the results of a finished run.

    schema: the fields that the results of a finished run need (`check_fields`). keep_state: whether state/ stays when
    the run is finished. Raises InputError if the folder is in use or belongs to another run, or if its results do not
    have these fields.
    """
    with (
        opened_run(run.out, run.identity, run.world, keep_state) as results,
        torch.inference_mode(False),  # a notebook may have switched it on, or gradients off
        torch.enable_grad(),
    ):
        if results is not None:
            check_fields(results, dict(schema or {}), str(run.out / RESULTS), ANEW)
            run.say(f"{run.out} is finished; see {run.out / RESULTS}")
        yield results
        if run.world.main and not keep_state and is_finished(run.out):
            shutil.rmtree(run.out / STATE_FOLDER, ignore_errors=True)


def train(run: Run, loop: TrainingLoop, lines: Sequence[str] = ()) -> bool:
    """Print `lines` and train until the budget is used; False if a signal stopped the run before, when it is saved."""
    for line in (*lines, first_line(loop)):
        run.say(line)
    if loop.run():
        return True
    run.say(f"stopped at step {loop.progress.step:,}, saved; rerun the command to resume")
    return False


def first_line(loop: TrainingLoop) -> str:
    """When the first line about the training is printed, since silence must not look like a halt."""
    config, step = loop.trainer.config, loop.progress.step
    next_records = [step // every * every + every for every in (config.log_every, config.eval_every) if every]
    due = min([*next_records, *([config.steps] if config.steps else [])], default=0)
    return f"training; the next line comes at step {due:,}" if due else "training; the next line comes at the end"


def resume_run(run: Run, loop: TrainingLoop, flops_per_token: float = 0.0) -> None:
    """Put a new loop at the step where an earlier run segment left it, choose how it computes, and write recipe.toml.

    flops_per_token: useful operations of training; the log then has the share of the machine's peak.
    """
    trainer, device = loop.trainer, run.world.device
    assert isinstance(trainer.model, Model)
    trainer.start_at(resume(run.out / STATE_FOLDER, trainer.model, trainer.optimizer, run.identity, run.world))
    if loop.progress.step:
        run.say(f"{run.out}: resuming at step {loop.progress.step:,} after {duration(loop.progress.seconds)}")
    if run.world.main:
        write_text(run.out / RECIPE, to_toml(run.identity.recipe))
    if machine.should_compile(trainer.config.compile, device):
        compile_layers(trainer.model.encoder)
    use_kernels(run, trainer)
    if flops_per_token:
        peak, data_sheet = (
            peak_of(device, trainer.dtype) for peak_of in (machine.matmul_peak, machine.data_sheet_peak)
        )
        loop.peaks = Peaks(flops_per_token, peak, data_sheet)


def use_kernels(run: Run, trainer: Trainer) -> None:
    """Compute with kernels where there are any. A run that was begun otherwise says that it rounds differently."""
    wanted, kernels = machine.wants_kernels(trainer.config.compile, run.world.device, trainer.dtype), None
    progress = trainer.progress
    if wanted and (kernels := load()) is None:
        run.say("no compiled kernels: they need Linux, gcc and PyTorch as pip installs it; training is slower without")
    if kernels is not None:
        assert isinstance(trainer.model, Model)
        trainer.model.use_kernels(kernels, alone=run.world.size == 1)
        trainer.optimizer.kernels = kernels
    name, before = "" if kernels is None else kernels.name, progress.kernels
    if progress.step and before != name:
        used = "other compiled kernels" if before and name else "compiled kernels" if before else "no compiled kernels"
        now = "those of this machine" if name else "none"
        run.say(
            f"up to step {progress.step:,} this run used {used}; it now uses {now}: it rounds differently from here on"
        )
    progress.kernels = name


def run_facts(run: Run, loop: TrainingLoop) -> dict[str, Any]:
    """What the results of every run have: progress, seed, processes, the identity's hash, the machine."""
    progress = loop.progress
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": progress.seconds,
        "seed": loop.trainer.config.seed,
        "processes": run.world.size,
        "kernels": bool(progress.kernels),
        "recipe": loop.recipe,
        "machine": machine.facts(),
    }


@contextlib.contextmanager
def opened_run(
    out: Path, identity: RunIdentity, world: World, keep_state: bool = True
) -> Iterator[dict[str, Any] | None]:
    """Make the run folder `out`, or open it, and lock it until the block ends. Gives the results of a finished run.

    keep_state: whether a finished run keeps its state/. The processes of one job share the first one's lock. Raises
    InputError if another job uses the folder, or if the folder has another finished run.
    """
    world.check_equal(recipe=identity.hash)
    with contextlib.ExitStack() as lock:

        def look() -> dict[str, Any] | None:
            results = finished(out, identity)
            if results is None:
                lock.enter_context(locked(out))
                remove_temporaries(out / STATE_FOLDER)
                results = finished(out, identity)  # another job may have ended between the first look and the lock
            remove_temporaries(out)
            if results is not None and not keep_state:  # its process was killed before it could do so
                shutil.rmtree(out / STATE_FOLDER, ignore_errors=True)
            return results

        yield world.from_rank0(look)


def refuse_other_folder(out: Path) -> None:
    """Raises InputError if `out` is a file, or has rows, a model or a store; a log of the job may be there.

    Results and states are checked where they are read: they name the run that wrote them.
    """
    if out.is_file():
        raise InputError(f"{out} is a file; expected a run folder, or a path where there is nothing yet")
    if not out.is_dir() or any((out / name).exists() for name in (RESULTS, f"{STATE_FOLDER}/{STATE}")):
        return
    own = {LOG, STATE_FOLDER} if (out / RECIPE).is_file() else set()  # of a run that was killed before its first state
    with os.scandir(out) as entries:
        names = {entry.name for entry in entries} - own
    found = (name for name in sorted(names) if any(fnmatch.fnmatch(name.lower(), pattern) for pattern in NOT_OF_RUNS))
    other = next(found, "")
    if not other and RECIPE in names and not (out / LOG).exists() and not _is_written_by_a_run(out / RECIPE):
        other = RECIPE
    if other:
        raise InputError(f"{out} has other files than a run's, such as {other}; give a new folder as --out")


def _is_written_by_a_run(recipe: Path) -> bool:
    """Whether a recipe.toml begins as `to_toml` writes it, and not as somebody's notes."""
    with open(recipe, "rb") as file:
        return file.read(6) == b"schema"


def is_finished(out: Path) -> bool:
    """Whether `out` is a finished run, of whatever recipe: its data need not be checked byte by byte."""
    return (out / RESULTS).exists()


def finished(out: Path, identity: RunIdentity) -> dict[str, Any] | None:
    """The results of the finished run in `out`; None if it is not finished.

    Raises OtherRun for another run's results or those of several runs, InputError for results that name no recipe.
    """
    if not is_finished(out):
        return None
    results: dict[str, Any] = read_results(out / RESULTS, {"recipe?": str}, ANEW)
    if not results.keys() & SUMMARIES:
        check_fields(results, {"recipe": str}, str(out / RESULTS), ANEW)
        check_version(results.get("format", 1), range(FORMAT, FORMAT + 1), str(out / RESULTS), ANEW)
    if results.get("recipe") != identity.hash:
        found = identity.difference(out)
        raise OtherRun(
            f"{out} is a finished run with other settings, data or model. {f'{found}. ' if found else ''}"
            "Give another --out"
        )
    return results


def write_results(out: Path, results: dict[str, Any], world: World) -> dict[str, Any]:
    """Write results.json, which marks the run as finished, and return its content. The other processes wait."""
    results = {"format": FORMAT, **results}
    if world.main:
        write_json(out / RESULTS, results)
    world.barrier()
    return results


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Make the folder `out` and hold it. Raises InputError if another process does, NotWritten if it cannot be made."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{out} is a file; expected a run folder, or a path where there is nothing yet") from None
    except OSError as error:
        raise NotWritten(f"{out}: could not make the run folder ({error.strerror}); give another --out") from None
    with contextlib.ExitStack() as stack:
        try:
            mine = stack.enter_context(try_lock(out / LOCK))
        except OSError as error:
            raise NotWritten(f"{out / LOCK}: could not be locked ({error.strerror}); give another --out") from None
        if not mine:
            raise InputError(
                f"{out}: another process is using this run folder; wait until it ends, or give another --out"
            )
        yield
