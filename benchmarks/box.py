"""A forked child in a box: a folder of its own, limits on time and memory, and a verdict on how it ended (Linux).

    BOX/canary, BOX/deep/canary      must stay as they are, with nothing beside them
    BOX/deep/work/in                 the input; must stay as it is
    BOX/deep/work                    the working directory; a command writes to out/
    BOX/home, BOX/tmp                HOME and TMPDIR; nothing may be left in tmp

The parent has imported everything before, so a case costs a fork and what the command itself does.
"""

import contextlib
import faulthandler
import hashlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OK = ("ok", "refused")
LONGEST = 2_000  # characters of a message
SHOWN = 20_000  # characters of an output that are kept at its beginning, and as many at its end
TRACEBACK, NOT_STARTED = 70, 71  # exit statuses of the child
UNSOUND = 4  # of `doctor`, which found errors
OUT_OF_MEMORY = re.compile(r"MemoryError|bad_alloc|an't allocate memory|annot allocate memory|(m|re)alloc of size")


@dataclass(frozen=True)
class Link:
    """A symbolic link among a case's files."""

    target: str


Files = dict[str, bytes | Link]  # by their paths below in/


@dataclass(frozen=True)
class LengthLimits:
    """What a case may use."""

    seconds: float = 25.0
    memory: int = 2 << 30  # bytes of address space beyond what the parent has
    file_size: int = 1 << 30


LIMITS = LengthLimits()


@dataclass(frozen=True)
class Verdict:
    """How a case ended."""

    kind: str  # ok, refused, or a finding: traceback, hang, memory, killed, escaped, changed, left, long, silent, nan
    place: str  # of a finding: the innermost line of the project, and the error's class
    message: str
    seconds: float
    memory: int  # most resident bytes beyond the parent's
    output: str


def run_case(
    box: Path, files: Files, run: Callable[[], None], limits: LengthLimits = LIMITS, may_change: bool = False
) -> Verdict:
    """Write `files` into an empty box, call `run` there in a forked child, and judge its end.

    may_change: the command may write to its input (a run folder that is resumed).
    """
    work = _fill(box, files)
    before = digests(work / "in")
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(box, run, limits)
    status, peak = _wait(pid, start + limits.seconds)
    seconds = time.monotonic() - start
    output = _output(box)
    kind, place, message = _judge(status, output)
    if kind in OK and peak > limits.memory // 2:
        kind, place = "memory", f"{peak / 1e9:.1f} GB"
    if kind in OK:
        kind, place = _traces(box, work, before, may_change, kind)
    return Verdict(kind, place, message, seconds, peak, output)


def _fill(box: Path, files: Files) -> Path:
    shutil.rmtree(box, ignore_errors=True)
    work = box / "deep" / "work"
    for folder in (work / "in", work / "out", box / "home", box / "tmp"):
        folder.mkdir(parents=True)
    for canary in (box / "canary", box / "deep" / "canary"):
        canary.write_text("as it was\n")
    for name, data in files.items():
        path = work / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, Link):
            path.symlink_to(data.target)
        else:
            path.write_bytes(data)
    return work


def _child(box: Path, run: Callable[[], None], limits: LengthLimits) -> None:
    """Set up, run, exit; never returns."""
    try:
        os.setsid()
        os.chdir(box / "deep" / "work")
        home = str(box / "home")
        os.environ.update({"HOME": home, "TMPDIR": str(box / "tmp"), "TORCHINDUCTOR_CACHE_DIR": home})
        for fd, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(box / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        import tempfile

        tempfile.tempdir = None
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_size, limits.file_size))
        space = limits.memory + _address_space()
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        faulthandler.enable(2)
        faulthandler.dump_traceback_later(max(limits.seconds - 2, limits.seconds / 2), file=2)
    except BaseException:
        traceback.print_exc()
        os._exit(NOT_STARTED)
    status = 0
    try:
        run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1 if error.code else 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        status = TRACEBACK
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _wait(pid: int, deadline: float) -> tuple[int | None, int]:
    """Exit status (negative: the signal; None: it had to be killed for its time) and bytes of memory beyond ours."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    late = not poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # a child that has ended may have left processes behind
    _, status, usage = os.wait4(pid, 0)
    os.close(handle)
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (None if late else os.waitstatus_to_exitcode(status)), max(0, usage.ru_maxrss - ours) * 1024


def _output(box: Path) -> str:
    """Standard error behind standard output; of endless ones beginning and end."""
    shown = []
    for name in ("stdout", "stderr"):
        path = box / name
        with open(path, "rb") as file:
            data = file.read(SHOWN)
            if (size := path.stat().st_size) > 2 * SHOWN:
                file.seek(size - SHOWN)
            data += file.read(SHOWN)
        shown.append(data.decode(errors="replace"))
    return "\n".join(shown)


def _judge(status: int | None, output: str) -> tuple[str, str, str]:
    """Kind, place and message by exit status and output alone."""
    said = _message(output)
    if status is None:
        return "hang", place_of(output), said
    trace = "Traceback (most recent call last)" in output
    if (status != 0 or trace) and OUT_OF_MEMORY.search(output) and (trace or status < 0):
        return "memory", place_of(output), _last_line(output)
    if status < 0:
        return "killed", f"{signal.Signals(-status).name} {place_of(output)}", said
    if trace or status == TRACEBACK:
        return "traceback", place_of(output), _last_line(output)
    if status in (0, UNSOUND):
        return "ok", "", ""
    if status not in (1, 2):
        return "killed", f"status {status}", said
    if not said.strip():
        return "silent", f"status {status}", ""
    return ("long", said[:80], said[:300]) if len(said) > LONGEST else ("refused", "", said[:300])


def _message(output: str) -> str:
    """From `bertworks: ` on, or all that was printed."""
    found = re.search(r"^bertworks: .*", output, re.M | re.S)
    return found[0] if found else output


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if re.match(r"[A-Za-z_.]*(Error|Exception|Interrupt|Exit)\b", line)]
    return (lines or output.splitlines() or [""])[-1][:300]


def place_of(output: str) -> str:
    """The innermost frame of the project in a traceback, of Python's or of faulthandler's form, and the error."""
    trace = output[output.rfind("Traceback (most recent call last)") :] if "Traceback (most" in output else ""
    frames = re.findall(r'File ".*?/src/(bertworks/[^"]+)", line (\d+), in (\S+)', trace)
    if not trace:  # faulthandler: innermost first
        frames = re.findall(r'File ".*?/src/(bertworks/[^"]+)", line (\d+) in (\S+)', output)[:1]
    error = _last_line(trace).split(":")[0] if trace else ""
    return " ".join(filter(None, [":".join(frames[-1]) if frames else "", error]))


def digests(folder: Path) -> dict[str, str]:
    """A digest of every file below a folder, links by their targets."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(root) / name
            if path.is_symlink():
                found[str(path.relative_to(folder))] = os.readlink(path)
            elif path.is_file():
                found[str(path.relative_to(folder))] = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found


def _traces(box: Path, work: Path, before: dict[str, str], may_change: bool, kind: str) -> tuple[str, str]:
    """What a command that ended well has left where nothing may be."""
    whole = {"canary", "deep", "home", "tmp", "stdout", "stderr"}
    for folder, known in ((box, whole), (box / "deep", {"canary", "work"})):
        if beside := sorted({*os.listdir(folder)} ^ known):
            return "escaped", beside[0]
        if (folder / "canary").read_text() != "as it was\n":
            return "escaped", f"{folder.name}/canary was written to"
    if beside := sorted({*os.listdir(work)} - {"in", "out"}):
        return "escaped", f"work/{beside[0]}"
    if not may_change and (after := digests(work / "in")) != before:
        return "changed", min(name for name, _ in {*before.items()} ^ {*after.items()})
    left = [path for path in os.listdir(box / "tmp") if not path.startswith(("pymp-", ".ses"))]  # .ses: ONNX Runtime's
    left += [str(path.relative_to(work)) for path in work.rglob(".*.tmp*")]
    if left:
        return "left", re.sub(r"\d+", "N", left[0])
    for path in (box / "stdout", *(work / "out").rglob("*.json*")):
        if path.is_file() and path.stat().st_size < 1 << 20 and _has_nan(path.read_text(errors="replace")):
            return "nan", path.name
    return kind, ""


def _has_nan(text: str) -> bool:
    """Whether JSON, or lines of it, has a NaN or Infinity, which no other reader of JSON takes."""
    for part in (text, *text.splitlines()) if "NaN" in text or "Infinity" in text else ():
        found: list[str] = []
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(part, parse_constant=found.append)
            if found:  # and the rest is JSON too, not a sentence that names them
                return True
    return False
