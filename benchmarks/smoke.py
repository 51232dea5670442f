"""One tiny step of every benchmark, in one process and offline: does each still run? The numbers mean nothing.

python benchmarks/smoke.py [NAME ...]
"""

import importlib
import sys
import time

SCRIPTS = (
    "hostile",  # these first: they fork, and no other benchmark has started threads yet
    "kills",
    "pretraining",
    "continued",
    "corpus",
    "corpus_growth",
    "derived_tasks",
    "embedding_scores",
    "export_scores",
    "features",
    "features_memory",
    "feeding",
    "finetuning",
    "finetuning_scores",
    "gpu_check",
    "gpu_tests",
    "gpu_ceilings",
    "gpu_steps",
    "gpu_traces",
    "gpu_curve",
    "gpu_pretraining",
    "gpu_finetuning",
    "inference",
    "korean_sentences",
    "local_attention",
    "near_duplicates",
    "plateau",
    "predictor_soak",
    "relatives",
    "saving",
    "hostile_server",
    "serving",
    "serving_load",
)


def main(names: list[str]) -> None:
    """Run the named scripts, or all of them."""
    for name in names or SCRIPTS:
        begun = time.perf_counter()
        importlib.import_module(name).main(["--smoke"])
        print(f"{name}: {time.perf_counter() - begun:.1f} seconds", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
