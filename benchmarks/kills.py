"""Kills commands of bertworks with SIGKILL at random moments, reruns them, and compares what they end in. Needs Linux.

    OMP_NUM_THREADS=1 python benchmarks/kills.py [--commands NAME ...] [--kills 20] [--seed 1]
    OMP_NUM_THREADS=1 python benchmarks/kills.py --smoke                  two kills of one command

Every command is run once to its end: its files are the reference, its duration the span of the moments. Then it is run
again and again in fresh folders: started, killed with its whole process group at a moment drawn from 0 to the duration,
and the same command again, until it has been killed four times (then nothing stops it) or has ended before its moment.
These count:

    mismatch   at the end: a file that differs from the reference (clocks, machine, plots and the model card aside), or
               is missing
    leftover   at the end: a file that the reference does not have, in the output or beside it
    half       after a kill: a file under its final name that is not whole: JSON, TOML or .safetensors that cannot be
               read; of a command that writes its output once (WHOLE) any file that differs from the reference
    changed    after a command's kills: a file of its input that is not as it was
    refused    a rerun that ended with another status than 0, and its message; `convert` may refuse to write where its
               own output is whole, since it never writes over a folder

The commands are tiny, and their processes are forked from this one, which has imported everything: so a kill hits the
command's work and not the import of torch. Two processes are forked in the same way, with the environment that torchrun
gives its workers (gloo), and killed together. Training does not measure the machine's peak speed here. Apart from that
the commands run as they do on the command line.
One command is a call in Python with a DataFrame.

Results go to --out; --work has a progress file a command, and a rerun on the same commit continues where it stopped.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]  # the inputs are made with helpers of the tests

from bertworks.files import write_json  # noqa: E402
from box import digests  # noqa: E402
from common import RESULTS, machine_facts  # noqa: E402
from forks import call, forked, prepare, read_lines  # noqa: E402
from hostile_base import make_base  # noqa: E402
from kills_commands import COMMANDS, ONCE, WHOLE, in_python, more_inputs  # noqa: E402
from kills_files import contents, differences, half_written  # noqa: E402

MOST = 4  # kills of one run
TRIES = 3  # runs for each kill that is wanted: some end before their moment
PATIENCE = 120  # seconds that a command may take that nothing stops
KEYS = ("mismatches", "leftovers", "half", "changed", "refused")


# ---- one process group


def sit(command: str, folder: Path, environment: dict[str, str]) -> None:
    """The command in this process, a leader of a new group; what it prints goes to a file beside `folder`."""
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    said = os.open(folder.with_suffix(".said"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    try:
        in_python(command) if command.startswith("bertworks.") else call(command)
    except SystemExit as error:
        sys.stderr.flush()
        status = error.code if isinstance(error.code, int) else 1
        os._exit(status)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class Segment:
    """The processes of one start of a command."""

    def __init__(self, command: str, folder: Path, processes: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
        several = {**together, "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        ranks = [{**several, "RANK": str(i), "LOCAL_RANK": str(i)} for i in range(processes)]
        self.pids = [forked(functools.partial(sit, command, folder, r if processes > 1 else {})) for r in ranks]
        self.handles = [os.pidfd_open(pid) for pid in self.pids]

    def wait(self, seconds: float) -> bool:
        """Whether all processes have ended before so many seconds had passed."""
        deadline = time.monotonic() + seconds
        for handle in self.handles:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return False
        return True

    def end(self) -> int:
        """Kill what is left of the groups; the first exit status that is not 0, negative for a signal."""
        for pid in self.pids:
            for kill in (os.killpg, os.kill):  # the process may not lead its group yet
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
        found = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        for handle in self.handles:
            os.close(handle)
        return next((status for status in found if status), 0)


# ---- one command


@dataclass(frozen=True)
class Killing:
    """A command that is killed: its name, a seed, and the folder of inputs and progress."""

    name: str
    seed: int
    folder: Path

    @property
    def place(self) -> Path:
        """The folder in which it runs."""
        return self.folder / re.sub(r"\W+", "-", self.name)

    def fresh(self) -> Path:
        """That folder, empty, without a file beside it of what an earlier run printed."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.with_suffix(".said").unlink(missing_ok=True)
        self.place.mkdir(parents=True)
        return self.place

    def start(self, seconds: float) -> tuple[bool, int]:
        """Start the command and kill it after so many seconds: whether it ended by itself, and its status."""
        command, processes = COMMANDS[self.name].format(base=self.folder / "base"), 1 + ("2 processes" in self.name)
        segment = Segment(command, self.place, processes)
        ended = segment.wait(seconds)
        return ended, segment.end()

    def said(self) -> str:
        """The end of what the last run printed."""
        path = self.place.with_suffix(".said")
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def reference(self) -> tuple[dict[str, str], float]:
        """What an uninterrupted run leaves, and the shorter duration of two."""
        durations, results = list[float](), list[dict[str, str]]()
        for _ in range(2):
            folder, begun = self.fresh(), time.monotonic()
            ended, status = self.start(PATIENCE)
            durations.append(time.monotonic() - begun)
            if status or not ended:
                raise SystemExit(f"{self.name}: fails uninterrupted\n{self.said()}")
            results.append(contents(folder))
        if results[0] != results[1]:
            raise SystemExit(f"{self.name}: two uninterrupted runs differ: {differences(*results)}")
        return results[0], min(durations)

    def one_run(self, number: int, reference: dict[str, str], duration: float) -> dict[str, Any]:
        """Kill and rerun in a fresh folder until the command ends by itself."""
        rng = random.Random(f"{self.seed}/{self.name}/{number}")
        folder, moments, refused, half = self.fresh(), list[float](), list[str](), set[str]()
        for i in range(MOST + 1):
            moment = rng.uniform(0, duration) if i < MOST else PATIENCE
            ended, status = self.start(moment)
            if ended and status == 0:
                break
            if ended or i == MOST:
                refused.append(f"status {status}: {self.said()[-500:]}")
                break
            moments.append(round(moment, 4))
            half |= {*half_written(folder, reference if self.name.startswith(WHOLE) else None)}
        found = differences(reference, contents(folder))
        if self.name in ONCE and not any(found.values()):  # it was killed behind its last step
            refused = []
        more = {"half": sorted(half), "refused": refused}
        return {"run": number, "kills": len(moments), "moments": moments, **found, **more}

    def runs(self, kills: int) -> Iterator[dict[str, Any]]:
        """Runs until there are so many kills: those that are done already, then others."""
        path, base = self.folder / f"{self.place.name}-{self.seed}.jsonl", self.folder / "base"
        done = list(read_lines(path))
        yield from done
        number, count = len(done), sum(run["kills"] for run in done)
        if count >= kills:
            return
        before = digests(base)
        reference, duration = self.reference()
        with open(path, "a", encoding="utf-8") as file:
            while count < kills and number < TRIES * kills:
                one = self.one_run(number, reference, duration)
                one["changed"] = sorted({name for name, _ in {*before.items()} ^ {*digests(base).items()}})
                number, count = number + 1, count + one["kills"]
                print(json.dumps(one), file=file, flush=True)
                yield one

    def results(self, kills: int) -> dict[str, Any]:
        """Counts of all runs, and those with a finding."""
        runs = list(self.runs(kills))
        return {
            "command": COMMANDS[self.name].replace("{base}", "BASE"),
            "runs": len(runs),
            "kills": sum(run["kills"] for run in runs),
            **{key: sum(bool(run[key]) for run in runs) for key in KEYS},
            "findings": [run for run in runs if any(run[key] for key in KEYS)][:10],
        }


def main(argv: list[str] | None = None) -> None:
    """Kill and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", nargs="+", default=[], help=f"names, or their beginnings: {', '.join(COMMANDS)}")
    parser.add_argument("--kills", type=int, default=20, help="of every command (default 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="two kills of one command; keeps no result")
    work = Path(tempfile.gettempdir()) / "bertworks-kills"
    parser.add_argument("--work", type=Path, default=work, help="folder of inputs and progress, one a commit inside")
    parser.add_argument("--out", type=Path, default=RESULTS / "kills.json", help="where the result is written")
    options = parser.parse_args(argv)
    if sys.platform != "linux":
        raise SystemExit("kills.py needs Linux: fork and process groups")
    prepare()
    with contextlib.ExitStack() as stack:
        if options.smoke:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            vars(options).update(
                commands=options.commands or ["predict"], kills=2, work=folder, out=folder / "kills.json"
            )
        facts = machine_facts()
        folder = options.work.resolve() / str(facts["commit"])
        more_inputs(make_base(folder / "base"))
        chosen = [name for name in COMMANDS if not options.commands or name.startswith(tuple(options.commands))]
        report(options.out, [Killing(name, options.seed, folder) for name in chosen], options.kills, facts)


def report(out: Path, killings: Sequence[Killing], kills: int, facts: dict[str, Any]) -> None:
    """Kill the commands, print and write what was found."""
    found = {}
    for killing in killings:
        one = found[killing.name] = killing.results(kills)
        counts = "  ".join(f"{key} {one[key]}" for key in ("runs", "kills", *KEYS))
        print(f"{killing.name:24}{counts}", flush=True)
        for finding in one["findings"][:3]:
            print(f"    {finding}")
    totals = {key: sum(one[key] for one in found.values()) for key in ("runs", "kills", *KEYS)}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {**totals, "seed": killings[0].seed, "machine": facts, "commands": found})
    print(f"{out}: {totals}")


if __name__ == "__main__":
    main()
