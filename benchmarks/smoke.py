"""One tiny step of every benchmark, offline: does each still run? The numbers mean nothing.

    python benchmarks/smoke.py [NAME ...]

Without names all run, in two processes at once: those that start processes of their own mostly wait for them.
"""

import importlib
import subprocess
import sys
import time

STARTERS = ("hostile", "kills", "serving_load")  # the first two fork, so before any threads start
SCRIPTS = (
    *STARTERS,
    "pretraining",
    "corpus",
    "features",
    "finetuning",
    "finetuning_scores",
    "gpu",
    "inference",
    "korean_sentences",
    "serving",
)


def main(names: list[str]) -> int:
    """Run the named scripts one after the other; returns 0. Without names: all, and 1 if one of them fails."""
    if not names:
        halves = STARTERS, [name for name in SCRIPTS if name not in STARTERS]
        running = [subprocess.Popen([sys.executable, __file__, *half]) for half in halves]
        return int(any([process.wait() for process in running]))
    for name in names:
        begun = time.perf_counter()
        importlib.import_module(name).main(["--smoke"])
        print(f"{name}: {time.perf_counter() - begun:.1f} seconds", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
