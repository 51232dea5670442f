"""TensorBoard's event files of a run, written while it trains (`--log tensorboard`).

Every number of log.jsonl becomes a scalar at its record's step, named by the record's kind: train/mlm_loss,
eval/accuracy. A thread reads the log as it grows, so training does not depend on TensorBoard.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ..files import InputError
from .run_files import LOG, read_log

SUFFIX = ".bertworks"  # of the names of the event files
INTERVAL = 5.0  # seconds between two reads of a growing log


class EventFile:
    """TensorBoard's events of one run, appended to while its log grows; it replaces earlier ones in the folder."""

    def __init__(self, run: Path, out: Path):
        self.run, self.out = run, out
        self.written: list[dict[str, Any]] = []
        self._open()

    def update(self) -> None:
        """Write the new records; all of them if the log lost its last ones, like that of a resumed run."""
        records = read_log(self.run)
        if records[: len(self.written)] != self.written:
            self.writer.close()
            self._open()
        for record in records[len(self.written) :]:
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    self.writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])
        self.writer.flush()
        self.written = records

    def _open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for earlier in self.out.glob(f"events.out.tfevents.*{SUFFIX}"):
            earlier.unlink()
        self.written = []
        self.writer: Any = SummaryWriter(str(self.out), filename_suffix=SUFFIX)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def followed(out: Path | str, tracker: Literal["tensorboard"] | None) -> Iterator[None]:
    """Write TensorBoard's files of the run in `out`, or of the runs inside it, until the block ends; None: nothing.

    The files are in `tensorboard` in each run folder. A failure to write them is printed once and never ends the run.
    Raises InputError, before the run begins, if the package is missing.
    """
    if tracker is None:
        yield
        return
    if find_spec(tracker) is None:
        raise InputError(f"the package {tracker} is missing; install it: pip install 'bertworks[{tracker}]'")
    done, files = threading.Event(), dict[Path, EventFile]()

    def update() -> None:
        for run in (log.parent for pattern in (LOG, f"*/{LOG}") for log in sorted(Path(out).glob(pattern))):
            if run not in files:
                files[run] = EventFile(run, run / tracker)
            files[run].update()

    def watch() -> None:
        try:
            while not done.wait(INTERVAL):
                update()
            update()
        except Exception as error:
            print(f"{tracker}: {type(error).__name__}: {error}; the run is not affected", file=sys.stderr)

    thread = threading.Thread(target=watch, daemon=True, name="tracking")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for file in files.values():
            file.writer.close()
