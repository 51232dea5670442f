"""Runs commands of bertworks on damaged copies of valid files, and counts how they end. Needs Linux.

    OMP_NUM_THREADS=1 python benchmarks/hostile.py [--readers NAME ...] [--cases 200] [--seed 1]
    OMP_NUM_THREADS=1 python benchmarks/hostile.py --replay READER:INDEX   prints all of one case; keeps its input
    OMP_NUM_THREADS=1 python benchmarks/hostile.py --smoke                 one case per reader, tables as JSON lines

A case is a pure function of (seed, reader, index): a command of the reader, run on files of which one or two are
changed (mutations.py). It runs in a forked child in a folder of its own, with limits on time and memory
(box.py). The command may succeed, or refuse its input with one message. Everything else is a finding:

    traceback   an exception without a message of its own     hang      not ended after 25 s
    memory      over 2 GB beyond the start, or refused there   killed    ended by a signal, or with an unknown status
    escaped     wrote outside its folders                      changed   wrote to its input
    left        temporary files that were not removed          long      a message of more than 2,000 characters
    silent      refused without a message                      nan       NaN or Infinity in its JSON

Results go to --out. --work has a progress file per reader: a rerun on the same commit continues where it stopped.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]  # the inputs are made with helpers of the tests

from bertworks.files import write_json  # noqa: E402
from box import OK, Files, Verdict, run_case  # noqa: E402
from common import RESULTS, machine_facts  # noqa: E402
from forks import call, prepare, read_lines  # noqa: E402
from hostile_base import make_base  # noqa: E402
from hostile_inputs import READERS, Reader, attacked, files_of, is_exported  # noqa: E402

EXAMPLES = 5  # reproducible cases that a finding names

Case = dict[str, Any]  # a line of a progress file: index, kind, seconds, memory; of a finding place and message too


def run(command: str) -> None:
    """The command, in a child, without what costs time and changes no result."""
    os.fsync = lambda fd: None  # type: ignore[assignment]
    call(command)


@dataclass(frozen=True)
class Attack:
    """A reader that is attacked with a seed; `folder` has valid inputs and progress."""

    reader: Reader
    seed: int
    folder: Path

    def run(self, command: str, files: Files) -> Verdict:
        """How a command ends on these files."""
        box = self.folder / f"box-{self.reader.name}"
        return run_case(box, files, lambda: run(command), may_change=self.reader.may_change)

    def run_index(self, valid: Files, index: int) -> tuple[str, Verdict]:
        """The command of a case, and how it ended."""
        rng = random.Random(f"{self.seed}/{self.reader.name}/{index}")
        command = rng.choice(self.reader.commands)
        return command, self.run(command, attacked(self.reader, valid, rng))

    def check_valid(self, valid: Files) -> None:
        """End the program if a command fails on the reader's valid files: damaged ones would show nothing."""
        for command in self.reader.commands:
            verdict = self.run(command, valid)
            if verdict.kind != "ok":
                raise SystemExit(f"{self.reader.name}: {command}: {verdict.kind} {verdict.place}\n{verdict.output}")

    def cases(self, count: int) -> Iterator[Case]:
        """The first cases, in their order: those that are done already, then the others."""
        path = self.folder / f"{self.reader.name}-{self.seed}.jsonl"
        done = list(read_lines(path))[:count]
        yield from done
        if len(done) == count:
            return
        valid = files_of(self.reader, self.folder / "base")
        if not done:
            self.check_valid(valid)
        with open(path, "a", encoding="utf-8") as file:
            for index in range(len(done), count):
                _, verdict = self.run_index(valid, index)
                numbers = {"seconds": round(verdict.seconds, 3), "memory": verdict.memory}
                case = {"index": index, "kind": verdict.kind, **numbers}
                if verdict.kind not in OK:
                    case |= {"place": verdict.place, "message": verdict.message}
                print(json.dumps(case), file=file, flush=True)
                yield case

    def replay(self, index: int) -> None:
        """Run one case again and print everything."""
        command, verdict = self.run_index(files_of(self.reader, self.folder / "base"), index)
        print(f"cd {self.folder}/box-{self.reader.name}/deep/work && bertworks {command}\n{verdict.output}")
        took = f"{verdict.seconds:.1f} s, {verdict.memory / 1e6:.0f} MB"
        print(f"{self.reader.name}:{index}: {verdict.kind} {verdict.place} ({took})")


def summary(reader: str, cases: Sequence[Case]) -> dict[str, Any]:
    """Counts of a reader, and its findings by place."""
    findings: dict[tuple[str, str], dict[str, Any]] = {}
    for case in cases:
        if case["kind"] not in OK:
            new = {key: case[key] for key in ("kind", "place", "message")} | {"cases": 0, "ids": []}
            one = findings.setdefault((case["kind"], case["place"]), new)
            one["cases"] += 1
            one["ids"] += [f"{reader}:{case['index']}"] if len(one["ids"]) < EXAMPLES else []
    return {
        "cases": len(cases),
        "ends": dict(sorted(Counter(case["kind"] for case in cases).items())),
        "seconds": round(sum(case["seconds"] for case in cases), 1),
        "most_memory": max((case["memory"] for case in cases), default=0),
        "findings": list(findings.values()),
    }


def report(out: Path, attacks: Sequence[Attack], count: int, facts: dict[str, Any]) -> None:
    """Attack the readers, print and write what was found."""
    start, ends, counts = time.monotonic(), Counter[str](), {}
    for attack in attacks:
        name = attack.reader.name
        one = counts[name] = summary(name, list(attack.cases(count)))
        print(f"{name:24}", *(f"{kind} {number}" for kind, number in one["ends"].items()), flush=True)
        ends.update(one["ends"])
    for one in counts.values():
        for finding in one["findings"]:
            print(f"{finding['kind']:10} {finding['ids'][0]}  {finding['place']}  {finding['message'][:120]}")
    seconds = round(time.monotonic() - start, 1)
    totals = {"cases": sum(ends.values()), "ends": dict(ends), "seconds": seconds, "seed": attacks[0].seed}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {**totals, "machine": facts, "readers": counts})
    print(f"{out}: {totals['cases']:,} cases in {seconds:,.0f} s; {dict(ends)}")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--readers", nargs="+", default=[""], help="names, or their beginnings (default: all)")
    made.add_argument("--cases", type=int, default=200, help="cases per reader (default 200)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--replay", metavar="READER:INDEX", help="run one case again, print it, keep its input")
    made.add_argument("--smoke", action="store_true", help="one case per reader, tables as JSON lines; keeps no result")
    work = Path(tempfile.gettempdir()) / "bertworks-hostile"
    made.add_argument("--work", type=Path, default=work, help="folder of inputs and progress, one per commit inside")
    made.add_argument("--out", type=Path, default=RESULTS / "hostile.json", help="where the result is written")
    return made


def main(argv: list[str] | None = None) -> None:
    """Attack, or replay a case."""
    options = parser().parse_args(argv)
    if sys.platform != "linux":
        raise SystemExit("hostile.py needs Linux: fork, /proc and limits on address space")
    prepare()
    with contextlib.ExitStack() as stack:
        if options.smoke:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            vars(options).update(cases=1, work=folder, out=folder / "hostile.json")
        facts = machine_facts()
        folder = options.work.resolve() / str(facts["commit"])
        name, _, index = (options.replay or "").rpartition(":")
        chosen = [one for one in READERS if (one.name == name if name else one.name.startswith(tuple(options.readers)))]
        if options.smoke:
            chosen = [one for one in chosen if not one.name.startswith("table-") or one.name.endswith("jsonl")]
        if importlib.util.find_spec("onnxscript") is None:  # of the extra `export`
            chosen = [one for one in chosen if not is_exported(one)]
        make_base(folder / "base")
        if any(map(is_exported, chosen)):
            make_base(folder / "base", "exported")
        attacks = [Attack(reader, options.seed, folder) for reader in chosen]
        if options.replay:
            attacks[0].replay(int(index))
        else:
            report(options.out, attacks, options.cases, facts)


if __name__ == "__main__":
    main()
