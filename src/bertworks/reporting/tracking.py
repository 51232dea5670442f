"""The logs of runs for other trackers: TensorBoard's event files, and offline runs of MLflow and Weights & Biases.

Each tracker's own library writes its files, from what run folders hold (log.jsonl, recipe.toml). Every number of a
record becomes a scalar at the record's step, named by the record's kind: train/mlm_loss, eval/accuracy. `followed`
writes TensorBoard's files during a run: a thread reads the log as it grows, so training does not depend on it.
"""

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import dotted, read_table
from ..files import InputError, NotWritten, clip
from .outputs import check_output_folder
from .run_files import LOG, RESULTS, read_log, read_results, runs_in

Tracker = Literal["tensorboard", "mlflow", "wandb"]
OURS = ".bertworks"  # the end of the names of our event files
EVERY = 5.0  # seconds between two looks at a log that grows
PROJECT = "bertworks"  # MLflow's experiment and W&B's project


class Scalar(NamedTuple):
    """A number of a record of a log."""

    name: str  # train/mlm_loss
    value: float
    step: int
    seconds: float  # of training, up to then


def scalars(records: Iterable[dict[str, Any]]) -> list[Scalar]:
    """All numbers of records except their steps; what was not finite, null in the log, is left out."""
    return [
        Scalar(
            f"{record['kind']}/{name}".encode("utf-8", "replace").decode(),  # trackers take no lone surrogate
            float(value),
            int(record["step"]),
            float(record.get("seconds") or 0.0),
        )
        for record in records
        for name, value in record.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    ]


def track(runs: Sequence[Path | str], tracker: Tracker, out: Path | str | None = None) -> list[Path]:
    """Write the logs of run folders for a tracker; a folder of seeds or a sweep gives its runs. Returns what it wrote.

    out: folder to write to, by default `tensorboard`, `mlflow` or `wandb` in the first run's folder. TensorBoard's
    files of an earlier call are replaced; MLflow and W&B get a further run. Raises InputError if a folder is no run,
    or if the tracker's package is missing, and NotWritten if the disk is full.
    """
    check_installed(tracker)
    folders = [folder for given in runs for folder in runs_in(Path(given), every=True)]
    for folder in folders:
        if not (folder / LOG).is_file():
            raise InputError(f"{folder}: no {LOG} in this folder; expected a run folder, or a folder of runs")
    target = Path(out) if out else Path(runs[0]) / tracker
    check_output_folder(target)
    write = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}[tracker]
    names, several = _names(folders), len(folders) > 1
    places = [target / name if several and tracker == "tensorboard" else target for name in names]
    with _failures_named(target, tracker):
        return [write(*given) for given in zip(folders, names, places, strict=True)]


@contextlib.contextmanager
def _failures_named(target: Path, tracker: Tracker) -> Iterator[None]:
    """A failure to write (a full disk) becomes NotWritten; a new folder is removed."""
    new, hook = not target.exists(), threading.excepthook

    def quiet(args: threading.ExceptHookArgs) -> None:
        if not (type(args.thread).__module__.startswith("tensorboard.") and isinstance(args.exc_value, OSError)):
            hook(args)

    threading.excepthook = quiet  # an OSError in TensorBoard's thread is raised again in this one
    try:
        yield
    except Exception as error:
        if new:
            shutil.rmtree(target, ignore_errors=True)
        causes = (error, error.__cause__)  # errors of the file system, of MLflow's database, of W&B's process
        if not any(isinstance(e, OSError) or type(e).__name__ in ("OperationalError", "CommError") for e in causes):
            raise
        why = getattr(error, "strerror", None) or f"{error}\n".splitlines()[0]
        raise NotWritten(f"{target}: {tracker} could not write its files: {clip(why, 200)}") from error
    finally:
        threading.excepthook = hook


def _names(folders: Sequence[Path]) -> list[str]:
    """The runs' paths inside the folder that all of them are in. Raises InputError for a run that is given twice."""
    paths = [folder.resolve() for folder in folders]
    double = [folder for folder, path in zip(folders, paths, strict=True) if paths.count(path) > 1]
    if double:
        raise InputError(f"{double[-1]}: this run is given twice; give every run once")
    parent = os.path.commonpath([path.parent for path in paths])
    return [path.relative_to(parent).as_posix() for path in paths]


def check_installed(tracker: Tracker) -> None:
    """Raises InputError if the tracker's package is missing."""
    if find_spec(tracker) is None:
        raise InputError(f"the package {tracker} is missing; install it: pip install 'bertworks[{tracker}]'")


def began(run: Path, records: Sequence[dict[str, Any]]) -> float:
    """When a run's first step was, in seconds since 1970: the log has seconds of training, and its file the last date.

    Pauses of a resumed run count as nothing. 0.0 without a log.
    """
    log = run / LOG
    last = max((one.seconds for one in scalars(records)), default=0.0)
    return max(log.stat().st_mtime - last, 0.0) if log.exists() else 0.0


def settings_of(run: Path) -> dict[str, Any]:
    """The recipe of a run as dotted keys, and the metrics of its results; {} of what it does not have yet."""
    path = run / "recipe.toml"
    found = dotted(read_table(path)) if path.exists() else {}
    if (run / RESULTS).exists():
        metrics = read_results(run / RESULTS, {"metrics?": {str: (float, None)}}).get("metrics", {})
        found |= {f"results.{name}": value for name, value in metrics.items()}
    return found


# ---- TensorBoard


class EventFile:
    """TensorBoard's events of one run, appended to while its log grows; it replaces earlier ones in the folder."""

    def __init__(self, run: Path, out: Path):
        self.run, self.out = run, out
        self.written: list[dict[str, Any]] = []
        self.writer: Any = None

    def update(self) -> None:
        """Write the new records; all of them if the log lost its last ones, as that of a resumed run."""
        records = read_log(self.run) if (self.run / LOG).is_file() else []
        if self.writer is None or records[: len(self.written)] != self.written:
            self._open(records)
        for name, value, step, seconds in scalars(records[len(self.written) :]):
            self.writer.add_scalar(name, value, step, walltime=self.began + seconds)
        self.writer.flush()
        self.written = records

    def _open(self, records: Sequence[dict[str, Any]]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self.out.mkdir(parents=True, exist_ok=True)
        for earlier in self.out.glob(f"events.out.tfevents.*{OURS}"):
            earlier.unlink()
        self.began, self.written = began(self.run, records), []
        self.writer = SummaryWriter(str(self.out), filename_suffix=OURS)  # type: ignore[no-untyped-call]
        rows = "\n".join(f"    {key} = {value!r}" for key, value in settings_of(self.run).items())
        self.writer.add_text("recipe", rows, walltime=self.began)

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def _tensorboard(run: Path, _: str, out: Path) -> Path:
    file = EventFile(run, out)
    file.update()
    file.close()
    return out


@contextlib.contextmanager
def followed(out: Path | str, tracker: Tracker | None) -> Iterator[None]:
    """Write TensorBoard's files of the run in `out`, or of the runs inside it, until the block ends; None: nothing.

    The files are in `tensorboard` in each run folder. A failure to write them is printed once and never ends the run.
    Raises InputError, before the run begins, if the package is missing.
    """
    if tracker is None:
        yield
        return
    check_installed(tracker)
    done, files = threading.Event(), dict[Path, EventFile]()

    def update() -> None:
        for log in (log for pattern in (LOG, f"*/{LOG}", f"*/*/{LOG}") for log in sorted(Path(out).glob(pattern))):
            files.setdefault(log.parent, EventFile(log.parent, log.parent / tracker)).update()

    def watch() -> None:
        try:
            while not done.wait(EVERY):
                update()
            update()
        except Exception as error:
            failed = f"{tracker}: {type(error).__name__}: {error}"
            print(f"{failed}; the run is not affected; reporting.tracking.track writes the files", file=sys.stderr)

    thread = threading.Thread(target=watch, daemon=True, name="tracking")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for file in files.values():
            file.close()


# ---- MLflow, Weights & Biases


def _mlflow(run: Path, name: str, out: Path) -> Path:
    """A run in the database mlflow.db; `mlflow ui` shows it. One without results has not ended: it can be resumed."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    out.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{(out / 'mlflow.db').resolve()}")
    known = client.get_experiment_by_name(PROJECT)
    artifacts = (out / "artifacts").resolve().as_uri()
    experiment = known.experiment_id if known else client.create_experiment(PROJECT, artifact_location=artifacts)
    records = read_log(run)
    start = began(run, records)
    made = client.create_run(experiment, start_time=round(1000 * start), run_name=name).info.run_id
    metrics = [Metric(n, value, round(1000 * (start + seconds)), step) for n, value, step, seconds in scalars(records)]
    settings = [Param(key, str(value)[:500]) for key, value in settings_of(run).items()]
    for i in range(0, len(metrics), 1000):  # the most that a call takes
        client.log_batch(made, metrics=metrics[i : i + 1000])
    for i in range(0, len(settings), 100):
        client.log_batch(made, params=settings[i : i + 100])
    if (run / RESULTS).exists():
        client.set_terminated(made, "FINISHED", max((metric.timestamp for metric in metrics), default=None))
    return out / "mlflow.db"


def _wandb(run: Path, name: str, out: Path) -> Path:
    """An offline run in `out/wandb`, which `wandb sync` sends to a server."""
    import wandb

    out.mkdir(parents=True, exist_ok=True)
    how = wandb.Settings(silent=True, console="off")
    settings = settings_of(run)
    offline = wandb.init(mode="offline", dir=str(out), project=PROJECT, name=name, config=settings, settings=how)
    by_step: dict[int, dict[str, float]] = {}
    for scalar in scalars(read_log(run)):
        by_step.setdefault(scalar.step, {})[scalar.name] = scalar.value
    for step in sorted(by_step):
        offline.log(by_step[step], step=step)
    folder = Path(offline.dir).parent
    offline.finish()
    return folder
