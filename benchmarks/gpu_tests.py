"""The tests that need a GPU (`pytest -m gpu`), and their outcome as JSON. Stage `tests` of gpu.sh.

    benchmarks/gpu.sh tests [--out FOLDER] [--smoke]

tests.json has each test with its outcome, its seconds and the message of a failure. The exit status is 1 if a test
fails. With --smoke the tests are collected and not run. pytest has to be installed. With pytest-xdist four tests run at
the same time.
"""

import importlib.util
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import common
import gpu_common

ROOT = Path(__file__).resolve().parents[1]
FILES = ("tests/test_gpu.py",)  # those with the marker: others import packages that a GPU's machine may lack
SMOKE = {"device": "cpu"}


def run(options: Any, report: Path) -> tuple[int, str]:
    """pytest's exit status and the end of its output; it writes `report`, a JUnit file."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["--collect-only"] if options.smoke else []
    command += ["-n", "4"] if importlib.util.find_spec("xdist") and not options.smoke else []
    environment = gpu_common.environment(options.device)
    seconds = None if options.smoke else 60 * options.minutes
    try:
        done = subprocess.run(
            [*command, *FILES], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout if isinstance(late.stdout, str) else (late.stdout or b"").decode(errors="replace")
        return 1, f"{output[-4000:]}\nstopped after {options.minutes:g} minutes"
    return done.returncode, (done.stdout + done.stderr)[-4000:]


def outcomes(report: Path) -> list[dict[str, Any]]:
    """The tests of a JUnit file; none if pytest did not write it."""
    if not report.exists():
        return []
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        one: dict[str, Any] = {"name": name, "outcome": "passed", "seconds": float(case.get("time") or 0.0)}
        for kind in ("failure", "error", "skipped"):
            if (child := case.find(kind)) is not None:
                text = "\n".join(filter(None, (child.get("message"), child.text)))
                one |= {"outcome": kind, "message": text[:2000]}
        found.append(one)
    return found


def main(argv: list[str] | None = None) -> None:
    """Run the tests, write tests.json."""
    made = gpu_common.parser(__doc__, minutes=9.0)
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        device = gpu_common.need_device(options.device)
        result: common.Result = {"machine": gpu_common.facts(device)}
        if result["machine"]["optional"]["pytest"] is None:
            gpu_common.finish(options, "tests", {**result, "missing": "pytest"})
            raise SystemExit(f"found no pytest in {sys.executable}; expected it for this stage; install it there")
        report = Path(work) / "report.xml"
        status, output = run(options, report)
        tests = outcomes(report)
        counts = dict(Counter(one["outcome"] for one in tests))
        result |= {"status": status, "counts": counts, "tests": tests, "output": output}
        gpu_common.finish(options, "tests", result)
        print(output[-1500:] if status else f"tests: {counts or 'collected'}")
        if status:
            raise SystemExit(f"tests: found exit status {status} of pytest; expected 0; see tests.json")


if __name__ == "__main__":
    main()
