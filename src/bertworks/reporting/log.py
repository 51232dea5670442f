"""The log of a run: log.jsonl, and on a terminal a bar and the records (elsewhere plain lines)."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..files import NotWritten, to_json, write_text
from .run_files import LOG, read_log


class Reporter:
    """Writes records to the run's log and shows them; with `quiet` it only writes. Only the `main` process does either.

    step: the step that the run resumes from. Later records come from a killed run segment; they are dropped, because
    these steps are logged again. over: only the final evaluation is left; a record of it is dropped as well.
    """

    def __init__(self, run: Path, step: int, quiet: bool = False, main: bool = True, over: bool = False):
        self.path, self.quiet = run / LOG, quiet or not main
        if main and self.path.exists():
            records = [r for r in read_log(run) if r["step"] < step + (r["kind"] == "train" or not over)]
            write_text(self.path, "".join(to_json(record) + "\n" for record in records))
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        if not self.quiet and self.console.is_terminal:
            columns = ("{task.description}", BarColumn(), "{task.percentage:>5.1f}%", TimeElapsedColumn())
            self.bar = Progress(*columns, TextColumn("{task.fields[info]}"), console=self.console)
            self.task = self.bar.add_task("training", total=1.0, info="")
            self.bar.start()

    def progress(self, fraction: float, info: str) -> None:
        """Move the bar to a fraction of the run."""
        if self.bar:
            self.bar.update(self.task, completed=fraction, info=info)

    def record(self, kind: str, values: dict[str, Any]) -> None:
        """Append one record to the log and show it as a line."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(to_json({"kind": kind, **values}) + "\n")
        except OSError as error:
            advice = "the last saved state is intact. Free some space and rerun the command to resume"
            raise NotWritten(f"{self.path}: could not be written ({error.strerror}); {advice}") from None
        if self.quiet:
            return
        text = "  ".join(f"{name} {_short(name, value)}" for name, value in values.items() if value is not None)
        if self.bar:
            self.bar.console.print(Text.assemble((f"{kind:5} ", "dim"), text), highlight=False, soft_wrap=True)
        else:
            print(f"{kind:5} {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop the bar."""
        if self.bar:
            self.bar.stop()


def duration(seconds: float) -> str:
    """Seconds as text: 42 s, 3 min 20 s, 5 h 07 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def mebibytes(size: float) -> str:
    """Bytes as text: 1,234 MiB."""
    return f"{size / 2**20:,.0f} MiB"


def _short(name: str, value: Any) -> str:
    if name in ("seconds", "left"):
        return duration(value)
    if name == "memory":
        return mebibytes(value)
    if name == "lr":
        return f"{value:.2e}"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
