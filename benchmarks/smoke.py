"""One tiny step of every benchmark, offline: does each still run? The numbers mean nothing.

    python benchmarks/smoke.py [NAME ...]

Without names all run, in two processes at once, with one thread each.
"""

import importlib
import os
import subprocess
import sys
import time

GROUPS = (  # of a process each
    ("hostile", "kills", "serving_load", "finetuning_scores"),  # the first two fork, so before any threads start
    ("pretraining", "corpus", "features", "finetuning", "gpu", "inference", "korean_sentences", "serving"),
)


def main(names: list[str]) -> int:
    """Run the named scripts one after the other; returns 0. Without names: all, and 1 if one of them fails."""
    if not names:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        running = [subprocess.Popen([sys.executable, __file__, *group], env=environment) for group in GROUPS]
        return int(any([process.wait() for process in running]))
    for name in names:
        begun = time.perf_counter()
        importlib.import_module(name).main(["--smoke"])
        print(f"{name}: {time.perf_counter() - begun:.1f} seconds", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
