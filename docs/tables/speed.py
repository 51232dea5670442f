"""The tables of docs/results/speed.md that show rates and memory beside other software."""

from collections.abc import Iterable
from typing import Any

from sources import Lines, result, table

Row = tuple[str, ...]
# ends of files of training, and the machine
MACHINES = {"": "EPYC", "-amx": "AMX", "-half-peak": "slower EPYC"}


def speed() -> Lines:
    """Rates of both sides, and how many times as fast ours is."""
    header = ("workload", "unit", "compared with", "ours", "theirs", "times as fast", "each round", "file")
    return table(header, [*_pretraining(), *_corpus(), *_features()], words=3)


def _rounds(ratios: Iterable[float]) -> str:
    return ", ".join(f"{ratio:.1f}" for ratio in ratios)


def _pretraining() -> list[Row]:
    rows: list[Row] = []
    for kind, machine in MACHINES.items():
        file = f"pretraining{kind}"
        found, unit = result(f"benchmarks/{file}"), "tokens/s"
        plain = found["without_dropout"]
        name = f"pre-training, L4 H256, length 128, batch 32, bfloat16, {machine}, dropout 0.1"
        sides = [f"{found[side]['tokens_per_second']:,}" for side in ("ours", "peer")]
        ratio, rounds = f"{found['ratio']:.1f}", _rounds(found["ratio_by_round"])
        rows.append((name, unit, "transformers", *sides, ratio, rounds, f"`{file}.json`"))
        sides, ratio = _counts(plain, "ours", "peer"), f"{plain['ratio']:.1f}"
        rows.append(("the same, dropout 0", unit, "the same", *sides, ratio, "-", "same"))
        if kernels := found.get("kernels"):  # results from before the kernels have none
            rates = _counts(found["ours"] | kernels, "tokens_per_second", "tokens_per_second_without")
            ratio, rounds = f"{kernels['ratio']:.1f}", _rounds(kernels["ratio_by_round"])
            rows.append(("the same, dropout 0.1", unit, "ours without kernels", *rates, ratio, rounds, "same"))
    return rows


def _corpus() -> list[Row]:
    rows = []
    for file, what in (("corpus", "English"), ("corpus-ko", "Korean (multilingual vocabulary)")):
        found = result(f"benchmarks/{file}")
        sides = [f"{found[side]['tokens_per_second']:,}" for side in ("ours", "peer")]
        ratios = (b / a for a, b in zip(found["ours"]["seconds"], found["peer"]["seconds"], strict=True))
        name = f"{found['megabytes']:.0f} MB of {what} to a store, two processes, EPYC"
        peer = "datasets, fast tokenizer, group_texts"
        rows.append((name, "tokens/s", peer, *sides, f"{found['ratio']:.1f}", _rounds(ratios), f"`{file}.json`"))
    return rows


def _features() -> list[Row]:
    found, rows = result("benchmarks/features")["last"], []
    for ours, peer, compared in (
        ("ours", "transformers", "transformers, batches of 32, both float32"),
        ("ours", "transformers, sorted", "the same, sorted by length"),
        ("ours, bfloat16", "transformers, bfloat16", "transformers, both bfloat16"),
        ("ours, bfloat16", "transformers, sorted, bfloat16", "the same, sorted by length"),
        ("ours, bfloat16", "transformers", "transformers in float32, ours in bfloat16"),
    ):
        rates = _counts(found["sentences_a_second"], ours, peer)
        ratio, rounds = (found[key][f"{ours} / {peer}"] for key in ("times_as_fast", "by_round"))
        name = "vectors of 10,000 sentences, all-MiniLM-L6-v2, AMX"
        rows.append((name, "sentences/s", compared, *rates, f"{ratio:.1f}", _rounds(rounds), "`features.json`"))
    return rows


def _counts(found: dict[str, Any], *keys: str) -> list[str]:
    return [f"{found[key]:,.0f}" for key in keys]


def memory() -> Lines:
    """Memory of both sides at its peak."""
    found = result("benchmarks/pretraining")
    rows: list[Row] = [
        ("pre-training, dropout 0.1", *(f"{found[side]['memory'] / 1e9:.2f}" for side in ("ours", "peer")))
    ]
    for file, language in (("corpus", "English"), ("corpus-ko", "Korean")):
        one = result(f"benchmarks/{file}")
        size = f"{one['megabytes']:.0f} MB of {language} to a store"
        rows.append((size, *(f"{one[side]['peak_mb'] / 1e3:.2f}" for side in ("ours", "peer"))))
        rows.append(("three times that text", f"{one['ours_on_3x_the_text']['peak_mb'] / 1e3:.2f}", "-"))
    return table(("memory at its peak", "ours (GB)", "theirs (GB)"), rows)


def fine_tuning() -> Lines:
    """Times of training beside transformers."""
    rows = []
    for kind, machine in MACHINES.items():
        file = f"finetuning{kind}"
        for name, key in (("an epoch of MRPC", "mrpc"), ("200 steps of SST-2", "sst2")):
            one = result(f"benchmarks/{file}")[key]
            rounds = ", ".join(f"{ratio:.2f}" for ratio in one["by_round"])
            padded = one["times_as_fast_as_padded_to_128"]
            shown = "-" if padded is None else f"{padded:.1f}"
            rows.append((f"{name}, {machine}", f"{one['times_as_fast_as_dynamic_padding']:.2f}", rounds, shown))
    header = ("times as fast, training only", "than dynamic padding", "each round", "than padding to 128")
    return table(header, rows)


def feeding() -> Lines:
    """How fast batches are made, by the training process alone and ahead of it."""
    found = result("benchmarks/feeding")
    cases = {(c["length"], c["whole_word"], c["workers"]): c for c in found["cases"]}
    rows = []
    for length, whole in dict.fromkeys((length, whole) for length, whole, _ in cases):
        each = [cases[length, whole, workers] for workers in (0, 1, 2)]
        rates = (f"{one['tokens_per_second'] / 1e6:.1f}" for one in each)
        name = f"length {length}, {'whole words' if whole else 'single tokens'}"
        rows.append((name, *rates, f"{each[2]['consumer']:.0%}"))
    header = ("million tokens/s, updates of 256 instances", "no worker", "one", "two", "of the training process, two")
    return table(header, rows)


def saving() -> Lines:
    """What saving a state costs training."""
    found = result("benchmarks/saving")
    cases = (("the loop waits for the copy", "stall"), ("training loses altogether", "lost"))
    rows = []
    for name, key in cases:
        low, high = min(found[key]), max(found[key])
        rows.append((name, f"{found[f'median_{key}']:.2f}", f"{low:.2f} to {high:.2f}", f"{found['share'][key]:.2%}"))
    header = (f"a state of {found['state_gb']:.1f} GB", "seconds per save, median", "range", "of ten minutes")
    return table(header, rows)


def corpus_growth() -> Lines:
    """Time and memory of building a store as the text grows."""
    rows = []
    names = {
        "pool": "two processes",
        "scheduler": "dask, two workers",
        "near-duplicates": "two processes, `--near-duplicates 0.8`",
    }
    for file, kind in (("corpus-growth", "EPYC"), ("corpus-growth-20gb-amx", "AMX")):
        sizes = result(f"benchmarks/{file}")["sizes"]
        for side, name in names.items():
            for one in (size for size in sizes if side in size):
                cost = one[side]
                rate = f"{1000 * one['gigabytes'] / cost['seconds']:.1f}"
                memory = (f"{cost[key] / 1000:.2f}" for key in ("parent_mb", "worker_mb"))
                rows.append((f"{name}, {kind}", f"{one['gigabytes']:g}", f"{cost['seconds']:,.0f}", rate, *memory))
    return table(("built by", "GB of text", "seconds", "MB/s", "GB, the command", "GB, one worker"), rows)


def busy() -> Lines:
    """Idle and busy cores: the default setting of OpenMP's threads, PyTorch's own and the best of all tried."""
    rows = []
    for file in ("busy-serving", "busy-serving-idle", "busy-training"):
        for found in result(f"benchmarks/{file}")["rows"]:
            if (
                file == "busy-serving" and not found["neighbours"]
            ):  # busy-serving-idle has these with nothing else running
                continue
            times = [f"{1000 * found['seconds'][name]:,.0f}" for name in ("default", "fixed")]
            ratios = [f"{found[name]:.2f}" for name in ("default_to_fixed", "default_to_best")]
            rows.append((found["part"], str(found["neighbours"]), *times, *ratios, f"`{file}.json`"))
    header = ("workload", "busy processes", "default, ms", "fixed, ms", "default / fixed", "default / best", "file")
    return table(header, rows)


def machines() -> Lines:
    """The machines, and how fast they multiply matrices in bfloat16."""
    rows = []
    for kind, name in MACHINES.items():
        found = result(f"benchmarks/pretraining{kind}")
        rows.append((name, found["machine"]["cpu"], f"{found['matmul_peak'] / 1e12:.2f}"))
    return table(("name here", "processor, two cores", "products in bfloat16 (TFLOP/s)"), rows, words=2)
