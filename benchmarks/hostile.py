"""Attacks every reader of bertworks with mutated valid input, and counts how the commands end. Needs Linux.

    OMP_NUM_THREADS=1 python benchmarks/hostile.py [--readers NAME ...] [--cases 200] [--jobs 1] [--seed 1]
    OMP_NUM_THREADS=1 python benchmarks/hostile.py --replay READER:INDEX   prints all of one case; keeps its input
    OMP_NUM_THREADS=1 python benchmarks/hostile.py --smoke                 one case a reader

A case is a pure function of (seed, reader, index): a command of the reader, run on files of which one or two are
changed (mutations.py). It runs in a forked child in a folder of its own, with limits on time and memory
(box.py). The command may end well, or refuse its input with one message. Everything else is a finding:

    traceback   an exception that no message stands for        hang      not ended after 25 s
    memory      over 2 GB beyond the start, or refused there   killed    ended by a signal, or with an odd status
    escaped     wrote outside its folders                      changed   wrote to its input
    left        temporaries left behind                        long      a message of more than 2,000 characters
    silent      refused without a word                         nan       NaN or Infinity in its JSON

Results go to --out. --work has a progress file a reader: a rerun on the same commit continues where it stopped.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]  # the inputs are made with helpers of the tests

from bertworks.files import write_json  # noqa: E402
from box import OK, Files, Verdict, call, run_case  # noqa: E402
from common import RESULTS, machine_facts  # noqa: E402
from forks import forked, make_base, prepare  # noqa: E402
from hostile_inputs import READERS, Reader, attacked, files_of, is_exported  # noqa: E402

EXAMPLES = 5  # reproducible cases that a finding names


def run(command: str) -> None:
    """The command, in a child, without what costs time and changes no result."""
    os.fsync = lambda fd: None  # type: ignore[assignment]
    call(command)


@dataclass(frozen=True)
class Attack:
    """What is run: a seed, so many cases a reader, in so many processes; `folder` has valid inputs and progress."""

    seed: int
    cases: int
    jobs: int
    folder: Path

    @property
    def base(self) -> Path:
        """The valid inputs."""
        return self.folder / "base"

    def progress(self, reader: Reader) -> Path:
        """A line for every case that is done."""
        return self.folder / f"{reader.name}-{self.seed}.jsonl"

    def run_index(self, reader: Reader, valid: Files, index: int, box: str) -> tuple[str, Verdict]:
        """The command of a case, and how it ended."""
        rng = random.Random(f"{self.seed}/{reader.name}/{index}")
        command = rng.choice(reader.commands)
        files = attacked(reader, valid, rng)
        return command, run_case(self.folder / box, files, lambda: run(command), may_change=reader.may_change)

    def check_valid(self, reader: Reader) -> None:
        """Leave if a command does not take the reader's files as they are: attacks on them would show nothing."""
        valid = files_of(reader, self.base)
        for command in reader.commands:
            work = functools.partial(run, command)
            verdict = run_case(self.folder / "box-valid", valid, work, may_change=reader.may_change)
            if verdict.kind != "ok":
                raise SystemExit(f"{reader.name}: {command}: {verdict.kind} {verdict.place}\n{verdict.output}")

    def work_through(self, reader: Reader, indices: Sequence[int], box: str) -> None:
        """Run cases and append a line for each."""
        valid = files_of(reader, self.base)
        with open(self.progress(reader), "a", encoding="utf-8") as file:
            for index in indices:
                _, verdict = self.run_index(reader, valid, index, box)
                numbers = {"seconds": round(verdict.seconds, 3), "memory": verdict.memory}
                line = {"index": index, "kind": verdict.kind, **numbers}
                if verdict.kind not in OK:
                    line |= {"place": verdict.place, "message": verdict.message}
                file.write(json.dumps(line, ensure_ascii=True) + "\n")
                file.flush()

    def on(self, reader: Reader) -> dict[int, dict[str, Any]]:
        """Run all cases of a reader that are not done yet; returns all, by index."""
        done = read_progress(self.progress(reader))
        left = [index for index in range(self.cases) if index not in done]
        if left and not done:
            self.check_valid(reader)
        shares = [left[job :: self.jobs] for job in range(self.jobs)]
        children = [
            forked(functools.partial(self.work_through, reader, share, f"box-{job}"))
            for job, share in enumerate(shares)
            if share
        ]
        if any([os.waitpid(pid, 0)[1] for pid in children]):
            raise SystemExit(f"{reader.name}: the program itself failed")
        return {index: case for index, case in read_progress(self.progress(reader)).items() if index < self.cases}

    def replay(self, reader: Reader, index: int) -> None:
        """Run one case again and print everything."""
        command, verdict = self.run_index(reader, files_of(reader, self.base), index, "replayed")
        print(f"cd {self.folder}/replayed/deep/work && bertworks {command}\n{verdict.output}")
        took = f"{verdict.seconds:.1f} s, {verdict.memory / 1e6:.0f} MB"
        print(f"{reader.name}:{index}: {verdict.kind} {verdict.place} ({took})")


def read_progress(path: Path) -> dict[int, dict[str, Any]]:
    """The cases that are done, by index."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # the last line of a killed program
            case = json.loads(line)
            found[case["index"]] = case
    return found


def summary(reader: str, found: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Counts of a reader, and its findings by place."""
    findings: dict[tuple[str, str], dict[str, Any]] = {}
    for index, case in sorted(found.items()):
        if case["kind"] not in OK:
            new = {"kind": case["kind"], "place": case["place"], "message": case["message"], "cases": 0, "ids": []}
            one = findings.setdefault((case["kind"], case["place"]), new)
            one["cases"] += 1
            one["ids"] += [f"{reader}:{index}"] if len(one["ids"]) < EXAMPLES else []
    seconds = sum(case["seconds"] for case in found.values())
    return {
        "cases": len(found),
        "ends": dict(sorted(Counter(case["kind"] for case in found.values()).items())),
        "seconds": round(seconds, 1),
        "most_memory": max((case["memory"] for case in found.values()), default=0),
        "findings": list(findings.values()),
    }


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--readers", nargs="+", default=[], help="names, or their beginnings (default: all)")
    made.add_argument("--cases", type=int, default=200, help="cases a reader (default 200)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    made.add_argument("--replay", metavar="READER:INDEX", help="run one case again, print it, keep its input")
    made.add_argument("--smoke", action="store_true", help="one case a reader; keeps no result")
    work = Path(tempfile.gettempdir()) / "bertworks-hostile"
    made.add_argument("--work", type=Path, default=work, help="folder of inputs and progress, one a commit inside")
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
        attack = Attack(options.seed, options.cases, options.jobs, options.work.resolve() / str(facts["commit"]))
        name, _, index = (options.replay or "").rpartition(":")
        chosen = [one for one in READERS if not options.readers or one.name.startswith(tuple(options.readers))]
        chosen = [one for one in READERS if one.name == name] if options.replay else chosen
        make_base(attack.base)
        if importlib.util.find_spec("onnxscript") is None:  # of the extra `export`
            chosen = [one for one in chosen if not is_exported(one)]
        if any(map(is_exported, chosen)):
            make_base(attack.base, "exported")
        if options.replay:
            attack.replay(chosen[0], int(index))
        else:
            report(options.out, attack, facts, chosen)


def report(out: Path, attack: Attack, facts: dict[str, Any], readers: Sequence[Reader]) -> None:
    """Attack the readers, print and write what was found."""
    start, ends, counts = time.monotonic(), Counter[str](), {}
    for reader in readers:
        one = counts[reader.name] = summary(reader.name, attack.on(reader))
        print(f"{reader.name:24}", *(f"{kind} {count}" for kind, count in one["ends"].items()), flush=True)
        ends.update(one["ends"])
    for one in counts.values():
        for finding in one["findings"]:
            print(f"{finding['kind']:10} {finding['ids'][0]}  {finding['place']}  {finding['message'][:120]}")
    seconds = round(time.monotonic() - start, 1)
    totals = {"cases": sum(ends.values()), "ends": dict(ends), "seconds": seconds, "seed": attack.seed}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, {**totals, "machine": facts, "readers": counts})
    print(f"{out}: {totals['cases']:,} cases in {seconds:,.0f} s; {dict(ends)}")


if __name__ == "__main__":
    main()
