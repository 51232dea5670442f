"""Find a model folder; put a new one in place: it is written beside its final path and moved there when complete."""

import contextlib
import glob
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ..files import InputError, ended, flush_folder, read_json_object
from ..reporting.run_files import RESULTS
from .weights import CERTIFICATE as CERTIFICATE
from .weights import WEIGHTS
from .weights import is_export as is_export
from .weights import refuse_export as refuse_export

CONFIG = "config.json"
DEEPEST = 5  # folders between a demo and a run: finetune/TASK/WEIGHTS/RATE/SEED


class InFolder(Protocol):
    """What was loaded from a folder or written to one: a Predictor, a model, the results of a run."""

    @property
    def folder(self) -> Path: ...


def find_model(path: Path | str | InFolder) -> Path:
    """The model folder that `path` means: itself, or `model/` in it if it is a run folder.

    Raises InputError if it is the folder of several runs.
    """
    path = Path(path if isinstance(path, str | Path) else path.folder)
    if (path / CONFIG).exists() or not path.is_dir():
        return path
    if (path / "model").exists():
        return path / "model"
    if runs := _runs_in(path):
        raise InputError(f"{path} holds several runs; give one of {', '.join(map(str, runs))}{_best_of(path, runs)}")
    return path


def _runs_in(folder: Path) -> list[Path]:
    """The runs with a model in a folder; of a demo's or a suite's deeper ones the best of each second-level folder."""
    runs = _with_model(folder.glob("*/model"))
    deeper: dict[Path, list[Path]] = {}
    if (folder / RESULTS).is_file() and not _results(folder).get("seeds"):
        for depth in range(2, DEEPEST + 1):
            for run in _with_model(folder.glob("*/" * depth + "model")):
                deeper.setdefault(Path(*run.relative_to(folder).parts[:2]), []).append(run)
    return [*runs, *(max(group, key=lambda run: _score(run)[1]) for group in deeper.values())]


def _with_model(models: Iterable[Path]) -> list[Path]:
    return [model.parent for model in sorted(models) if (model / CONFIG).exists()]


def _best_of(folder: Path, runs: list[Path]) -> str:
    """The end of a message: which of the runs of several seeds is the best, and how to use all; "" for other runs."""
    if not _results(folder).get("seeds"):
        return ""
    best = max(runs, key=lambda run: _score(run)[1])
    name, value = _score(best)
    score = f"; {best} has the best development score ({name} {value:.4f})" if name else ""
    all_runs = f"; `predict` and `evaluate` take all of them too: --model {' '.join(map(str, runs))}"
    return score + (all_runs if len(runs) > 1 else "")


def _score(run: Path) -> tuple[str, float]:
    """The first metric of a finished run, by name; ("", -inf) where results.json has none."""
    metrics = _results(run).get("metrics")
    found = metrics.items() if isinstance(metrics, dict) else ()
    numbers = ((name, float(value)) for name, value in found if name != "loss" and isinstance(value, int | float))
    return next(numbers, ("", -math.inf))


def _results(run: Path) -> dict[str, Any]:
    """results.json of a run; {} where it is missing or damaged, which is for others to report."""
    with contextlib.suppress(InputError):
        return read_json_object(run / RESULTS)
    return {}


def run_folder(model: Path) -> Path:
    """The run folder, if a model folder is its `model/`; else the folder itself."""
    return model.parent if model.name == "model" else model


def run_name(model: Path) -> str:
    """The name of a model folder, of the run where it is a run's `model/`."""
    return run_folder(model).name


def _nothing(folder: Path) -> bool:
    return False


@contextlib.contextmanager
def new_folder(out: Path | str, replaces: Callable[[Path], bool] = _nothing) -> Iterator[Path]:
    """A folder to write, which becomes `out` (of a link: its target) when the block ends without an error.

    Each process writes a folder of its own; those of killed processes are removed first. A process killed while it
    puts its folder in the place of an earlier one may leave none; the next call puts the earlier one back. replaces:
    whether an earlier folder may be replaced. Raises InputError if `out` holds anything else, before or after it was
    written.
    """
    out = Path(os.path.realpath(out))
    for left in out.parent.glob(f".{glob.escape(out.name)}.*.new"):
        process = left.name.removeprefix(f".{out.name}.").removesuffix(".new")
        if process.isdecimal() and (int(process) == os.getpid() or ended(int(process))):
            _clear(left, out)
    _refuse_existing(out, replaces)
    work = out.with_name(f".{out.name}.{os.getpid()}.new")
    staging = work / out.name  # beside it, so inside `work`, are its writers' temporary files
    try:
        with named_for(staging, out):
            yield staging
        if replaces(out):
            out.rename(_earlier(work, out))
        try:
            staging.rename(out)  # in one step, and refused if another process has filled `out` meanwhile
        except OSError:
            _refuse_existing(out, _nothing)
            raise
        _flush(out)
    finally:
        _clear(work, out)


@contextlib.contextmanager
def named_for(staging: Path, out: Path) -> Iterator[None]:
    """Errors of the block name `out` where they would name the hidden folder `staging`, or no file at all."""
    try:
        yield
    except InputError as error:
        if str(staging) not in str(error):
            raise
        raise type(error)(str(error).replace(str(staging), str(out))) from error
    except OSError as error:
        error.filename = str(error.filename or out).replace(str(staging), str(out))
        raise


def _earlier(work: Path, out: Path) -> Path:
    """Where the folder that is replaced waits until the new one is in its place."""
    return work / f"{out.name}.earlier"


def _clear(work: Path, out: Path) -> None:
    """Remove a process's own folder; an earlier `out` in it is put back if nothing took its place."""
    if _earlier(work, out).exists() and not out.exists():
        _earlier(work, out).rename(out)
        _flush(out)
    shutil.rmtree(work, ignore_errors=True)


def _refuse_existing(out: Path, replaces: Callable[[Path], bool]) -> None:
    if out.exists() and not replaces(out) and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty; give a new folder, or empty this one")


def move_in(temporary: Path, folder: Path) -> None:
    """Put a finished folder in place: in one step if there is none, else file by file.

    Where more than weights and card change, a kill between two files would leave a folder that mixes two models; so
    config.json goes first and comes back last.
    """
    if not folder.exists() or not any(folder.iterdir()):
        temporary.rename(folder)
    else:
        names = sorted((file.name for file in temporary.iterdir()), key=lambda name: name == CONFIG)
        changed = [name for name in names if not _same(temporary / name, folder / name)]
        if set(changed) - {WEIGHTS, "README.md"}:
            (folder / CONFIG).unlink(missing_ok=True)
        for name in names:
            os.replace(temporary / name, folder / name)
    _flush(folder)


def _flush(folder: Path) -> None:
    """The renames themselves: those in the folder, and its own."""
    for directory in (folder, folder.parent):
        flush_folder(directory)


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.name != WEIGHTS and one.read_bytes() == other.read_bytes()
