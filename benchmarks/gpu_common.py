"""What the stages of gpu.sh share: options, the device, times on it, cells in processes of their own, JSON.

A cell is one measurement. It runs in a process of its own, because a kernel that fails can leave a CUDA process
unusable, and because compiled code and the peak of the memory stay with a process. An error of a cell is recorded in
the JSON and ends nothing else.
"""

import argparse
import contextlib
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
from collections.abc import Callable, Iterable, Mapping
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
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda: the first GPU that is visible")
    made.set_defaults(begun=time.monotonic())
    if minutes:
        made.add_argument("--minutes", type=float, default=minutes, help="of this command, start and end included")
    return made


def add_together(made: argparse.ArgumentParser) -> None:
    """The option of stages whose cells can start together."""
    made.add_argument("--together", type=int, default=4, help="cells that start and compile together, then take turns")


def add_corpus(made: argparse.ArgumentParser, megabytes: float) -> None:
    """The options that name a corpus store, or the text of which one is built."""
    made.add_argument("--corpus", type=Path, help="corpus store to read; left out: built from the text in --data")
    made.add_argument("--megabytes", type=float, default=megabytes, help="of text in the store that is built")


def corpus(options: Any, work: Path) -> Path:
    """The store that --corpus names, or one built in `work` of the text in --data."""
    if options.corpus:
        common.need(options.corpus)
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
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(device), text=True, start_new_session=True, **pipes)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and its group with SIGKILL: workers and compilers too."""
    kill_groups([process])
    process.communicate()


def run_side(side: Side, given: Mapping[str, Any], device: str, seconds: float, here: bool) -> common.Result:
    """What the side returns within so many seconds, in a process of its own or, if `here`, in this one; or an error."""
    if here:
        return attempted(lambda: side(**given))
    process = started(side, given, device)
    try:
        output, _ = process.communicate(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        kill(process)
        return {"error": f"stopped after {seconds:.0f} seconds, the time that was left"}
    finally:
        if process.poll() is None:  # Ctrl-C
            kill(process)
    return result_of(output, process.returncode, seconds)


def wait_for_turn() -> None:
    """In a cell's process, when it has warmed up: say so, and go on when all others wait or have ended."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # for the others
    print(READY, flush=True)
    sys.stdin.readline()


def run_together(
    side: Side, cells: Mapping[str, Mapping[str, Any]], device: str, seconds: float, here: bool
) -> dict[str, common.Result]:
    """What the side returns for each of these cells, within so many seconds for all of them.

    The cells start at the same time, each in a process of its own, and compile side by side until they call
    `wait_for_turn`. When all do, one after the other is measured, alone on the device.
    """
    if here:
        return {name: run_side(side, {**given, "waits": False}, device, seconds, here) for name, given in cells.items()}
    processes = {name: started(side, {**given, "waits": True}, device) for name, given in cells.items()}
    late = threading.Timer(max(seconds, 1.0), kill_groups, [processes.values()])
    late.start()
    try:
        printed = {name: until_ready(one) for name, one in processes.items()}
        found = {}
        for name, one in processes.items():
            with contextlib.suppress(OSError):  # it has ended
                print(file=one.stdin, flush=True)
            output = printed[name] + one.stdout.read()  # type: ignore[union-attr]
            found[name] = result_of(output, one.wait(), seconds)
        return found
    finally:  # Ctrl-C too
        late.cancel()
        kill_groups(processes.values())


def until_ready(process: subprocess.Popen[str]) -> str:
    """What the process prints until it waits for its turn or ends."""
    lines = itertools.takewhile(lambda line: line.strip() != READY, process.stdout)  # type: ignore[arg-type]
    return "".join(lines)


def kill_groups(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kill what is left of the processes and their groups."""
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)


def result_of(output: str, status: int, seconds: float) -> common.Result:
    """The result in the last line that a process has printed, or an error."""
    if status == -signal.SIGKILL:
        return {"error": f"killed, or stopped after {seconds:.0f} seconds, the time that was left"}
    if status or not output.strip():
        return {"error": f"exit status {status}; the process's own output has the reason"}
    result: common.Result = json.loads(output.splitlines()[-1])
    return result


def run_cells(
    options: Any, stage: str, result: common.Result, side: Side, cells: Mapping[str, Mapping[str, Any]], reserve: float
) -> None:
    """Run the cells that `result` does not have yet, write the JSON after each group, stop when the minutes are used.

    reserve: seconds that a group needs at least; with fewer left no other is begun. A rerun of the command continues.
    """
    found = result.setdefault("cells", {})
    missing = [name for name in cells if "error" in found.get(name, {"error": ""})]
    for start in range(0, len(missing), options.together):
        left = seconds_left(options)
        if left < reserve and not options.smoke:
            break
        group = {name: cells[name] for name in missing[start : start + options.together]}
        for name, one in run_together(side, group, options.device, left, options.smoke).items():
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
    same = all(there.get(name) == machine.get(name) for name in SAME) and result.get("settings") == settings
    return result.get("cells", {}) if same else {}


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
