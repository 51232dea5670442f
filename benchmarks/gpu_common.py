"""What the stages of gpu.sh share: options, the device, times on it, cells in processes of their own, JSON.

A cell is one measurement. It runs in a process of its own, because a kernel that fails can leave a CUDA process
unusable, and because compiled code and the peak of the memory stay with a process. An error of a cell is recorded in
the JSON and ends nothing else.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import common
from bertworks.data.store import Store
from bertworks.files import read_json, write_json

OPTIONAL = ("transformers", "triton", "pytest")
SAME = ("gpu", "torch", "commit", "python", "cpu")  # facts that a result must share with this process to be continued

READY = "ready"  # what the process of a cell prints when it waits for its turn

Side = Callable[..., common.Result]


# ---- options and the device


def parser(doc: str | None, minutes: float = 0.0) -> argparse.ArgumentParser:
    """The options of all stages: those of every benchmark, --device, and --minutes where a stage has a time limit."""
    made = common.parser(doc, "gpu")
    made.set_defaults(out=Path("gpu"))  # not the folder of the results that are kept
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda: the first GPU that is visible")
    made.set_defaults(begun=time.monotonic())
    if minutes:
        made.add_argument("--minutes", type=float, default=minutes, help="of this command, start and end included")
    return made


def add_together(made: argparse.ArgumentParser) -> None:
    """The option of stages whose cells can start together."""
    made.add_argument(
        "--together", type=positive, default=4, help="cells that start and compile together, then take turns"
    )


def positive(text: str) -> int:
    """A number of an option that is 1 or more."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text}; expected a whole number, 1 or more")
    return int(text)


def add_corpus(made: argparse.ArgumentParser, megabytes: float) -> None:
    """The options that name a corpus store, or the text of which one is built."""
    made.add_argument("--corpus", type=Path, help="corpus store to read; left out: built from the text in --data")
    made.add_argument("--megabytes", type=float, default=megabytes, help="of text in the store that is built")


def corpus(options: Any, work: Path) -> Path:
    """The store that --corpus names, or one built in `work` of the text in --data."""
    if options.corpus:
        common.need(options.corpus, option="--corpus")
        Store.open(options.corpus, verify=False)
        return Path(options.corpus)
    common.need(options.data / common.TEXT, options.data / common.VOCAB)
    return common.make_store(options.data, options.megabytes, work)


def need_device(name: str) -> torch.device:
    """The device of this name. Ends with one line if it is a GPU that is not there."""
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SystemExit(
            f"found no CUDA device (torch {torch.__version__}); expected one for --device cuda; use a machine with an "
            "NVIDIA GPU and a torch built for CUDA, or give --smoke for a tiny run on the CPU"
        )
    return torch.device("cuda", 0)


def environment(device: str) -> dict[str, str]:
    """The environment of a process that trains on this device. With --device cpu it must see no GPU."""
    return {**os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}


def seconds_left(options: Any) -> float:
    """Seconds of the command's minutes that are not used yet."""
    return 60 * options.minutes - (time.monotonic() - options.begun)


def facts(device: torch.device) -> common.Result:
    """The machine, the GPU and what torch was built for; versions of optional packages, null where there is none."""
    found = common.machine_facts() | {"device": str(device)}
    found["optional"] = {name: version(name) for name in OPTIONAL}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu_memory": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return found


def version(name: str) -> str | None:
    """The version of an installed package; None if it is missing."""
    if importlib.util.find_spec(name) is None:
        return None
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "unknown"


# ---- times


def seconds_of(work: Callable[[], object], device: torch.device, budget: float = 0.4, groups: int = 5) -> float:
    """The median seconds of one call, over groups of calls that fill `budget` seconds together; the first are warm-up.

    On a GPU the calls of a group follow each other without waiting, so starting a kernel is hidden behind the one
    before.
    """
    work()
    elapsed(work, 1, device)
    calls = max(1, min(1000, int(budget / groups / max(elapsed(work, 1, device), 1e-7))))
    return statistics.median(elapsed(work, calls, device) / calls for _ in range(groups))


def elapsed(work: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds of so many calls, by the device's own clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return time.perf_counter() - start
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(calls):
        work()
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / 1e3


# ---- cells


def attempted(work: Callable[[], common.Result]) -> common.Result:
    """What `work` returns, or its error: a kernel that this device or this torch lacks must not end a stage."""
    try:
        return work()
    except Exception as error:
        text = (str(error).strip() or "no message").splitlines()[0]
        return {"error": f"{type(error).__name__}: {text[:400]}"}


def started(side: Side, given: Mapping[str, Any], device: str) -> subprocess.Popen[str]:
    """A process of the side's script that runs `side(**given)` and prints its result; it leads a group of its own."""
    command = [sys.executable, str(sys.modules[side.__module__].__file__), common.SIDE, json.dumps(given, default=str)]
    how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment(device), start_new_session=True, preexec_fn=end_with_parent, **how)


def end_with_parent() -> None:
    """Have Linux kill this process when its parent is killed: it would keep the GPU busy for the next stage."""
    with contextlib.suppress(OSError, AttributeError):
        set_signal_at_death = 1
        ctypes.CDLL(None).prctl(set_signal_at_death, signal.SIGKILL)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and its group with SIGKILL: workers and compilers too."""
    kill_groups([process])
    process.communicate()


def run_side(side: Side, given: Mapping[str, Any], device: str, seconds: float, here: bool) -> common.Result:
    """What the side returns within so many seconds, in a process of its own or, if `here`, in this one; or an error."""
    return dict(run_together(side, {"side": given}, device, seconds, here))["side"]


def wait_for_turn() -> None:
    """In a cell's process, when it has warmed up: say so, and go on when all others wait or have ended."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # for the others
    print(READY, flush=True)
    sys.stdin.readline()


def run_together(
    side: Side, cells: Mapping[str, Mapping[str, Any]], device: str, seconds: float, here: bool, share: float = 1.0
) -> Iterator[tuple[str, common.Result]]:
    """Each cell's name with what the side returns for it, within so many seconds for all of them, in their order.

    The cells start at the same time, each in a process of its own, and compile side by side until they call
    `wait_for_turn`. When all do, one after the other is measured, alone on the device. A cell that does not in this
    share of the seconds is left out. Cells that never wait run side by side to their end.
    """
    if here:
        yield from ((name, attempted(partial(side, **given))) for name, given in cells.items())
        return
    processes = {name: started(side, given, device) for name, given in cells.items()}
    slow = dict(processes)  # those that do not wait for their turn yet
    timers = [
        threading.Timer(max(limit, 1.0), kill_groups, [some.values()])
        for limit, some in ((seconds, processes), (seconds * share, slow))
    ]
    for timer in timers:
        timer.start()

    def first_lines(name: str) -> str:
        printed = until_ready(processes[name])
        slow.pop(name)
        return printed

    try:
        with ThreadPoolExecutor(len(processes)) as threads:
            printed = [*threads.map(first_lines, processes)]
        for (name, one), lines in zip(processes.items(), printed, strict=True):
            with contextlib.suppress(OSError):  # it has ended
                print(file=one.stdin, flush=True)
            yield name, result_of(one, lines, seconds)
    finally:  # Ctrl-C too
        for timer in timers:
            timer.cancel()
        kill_groups(processes.values())


def until_ready(process: subprocess.Popen[str]) -> str:
    """What the process prints until it waits for its turn or ends."""
    lines = itertools.takewhile(lambda line: line.strip() != READY, process.stdout)  # type: ignore[arg-type]
    return "".join(lines)


def kill_groups(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kill what is left of the processes and their groups."""
    for one in [*processes]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)


def result_of(process: subprocess.Popen[str], printed: str, seconds: float) -> common.Result:
    """The result that a process prints, or an error; the process and its group are killed afterwards.

    printed: its first lines, which were read before.
    """
    for line in itertools.chain(printed.splitlines(), process.stdout):  # type: ignore[arg-type]
        with contextlib.suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                kill_groups([process])  # a worker of its own may still have the pipe open
                process.wait()
                return found
    status = process.wait()
    if status == -signal.SIGKILL:
        return {"error": f"killed, or stopped after {seconds:.0f} seconds, the time that was left"}
    return {"error": f"exit status {status}; the process's own output has the reason"}


def run_cells(
    options: Any, stage: str, result: common.Result, side: Side, cells: Mapping[str, Mapping[str, Any]], reserve: float
) -> None:
    """Run the cells that `result` does not have yet, write the JSON after each, stop when the minutes are used.

    reserve: seconds that a group of cells needs at least; with fewer left no other is begun. A rerun of the command
    continues.
    """
    found = result.setdefault("cells", {})
    missing = [name for name in cells if "error" in found.get(name, {"error": ""})]
    for start in range(0, len(missing), options.together):
        left = seconds_left(options)
        if left < reserve and not options.smoke:
            break
        names = missing[start : start + options.together]
        group = {name: {**cells[name], "waits": not options.smoke} for name in names}
        for name, one in run_together(side, group, options.device, left, options.smoke, share=2 / 3):
            found[name] = one
            print(f"{name}: {json.dumps(one)}", file=sys.stderr, flush=True)
            keep(options, stage, result)
    result["left_out"] = [name for name in cells if name not in found]
    keep(options, stage, result)


def earlier(options: Any, stage: str, machine: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of an unfinished result in --out, if the same code measured them on the same machine; else none."""
    path = options.out / f"{stage}.json"
    if not path.exists():
        return {}
    result = read_json(path)
    there = result.get("machine", {})
    if all(there.get(name) == machine.get(name) for name in SAME) and result.get("settings") == settings:
        return result.get("cells", {})
    set_aside(options, stage, "it has results of other code, settings or another machine")
    return {}


def set_aside(options: Any, stage: str, why: str = "this stage is measured anew") -> None:
    """Keep a result that is there as STAGE-before.json."""
    path, kept = options.out / f"{stage}.json", options.out / f"{stage}-before.json"
    if path.exists():
        path.replace(kept)
        print(f"{path} is {kept} now: {why}", file=sys.stderr)


# ---- results


def keep(options: Any, stage: str, result: common.Result) -> Path:
    """Write the stage's JSON into --out; returns its path."""
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / f"{stage}.json"
    write_json(path, result)
    return path


def finish(options: Any, stage: str, result: common.Result) -> None:
    """Write the JSON, and print where it is."""
    path = keep(options, stage, result)
    cells = result.get("cells", {})
    if cells and all("error" in cell for cell in cells.values()):
        raise SystemExit(f"{stage}: found an error in every cell; expected a result of one at least; see {path}")
    if options.smoke:
        print(f"{stage}: tiny run finished; nothing is kept")
        return
    print(f"{stage}: results in {path}")
    if result.get("left_out"):
        print(
            f"left out, because the minutes were used: {', '.join(result['left_out'])}; rerun the command to continue"
        )


def curve(records: Iterable[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The records of one kind of a run's log, numbers alone."""
    return [{name: value for name, value in one.items() if name != "kind"} for one in records if one["kind"] == kind]
