"""The tables of docs/results/speed.md that show rates and memory beside other software."""

from collections.abc import Iterable
from typing import Any

from sources import Lines, result, table

Row = tuple[str, ...]
# ends of files of training, and the machine
MACHINES = {"": "EPYC", "-amx": "AMX", "-half-peak": "slower EPYC"}
# runs of pre-training: the end of the file, the machine, whether the kernels were used, and what was otherwise
RUNS = (
    ("", "EPYC", "no", ""),
    ("-amx-without-kernels", "AMX", "no", ""),
    ("-half-peak-before", "slower EPYC", "no", ""),
    ("-amx", "AMX", "yes", ""),
    ("-amx-slow-peer", "AMX", "yes", ", transformers slowed down"),
    ("-half-peak", "slower EPYC", "yes", ""),
    ("-half-peak-first", "slower EPYC", "yes", ""),
    ("-half-peak-onednn", "slower EPYC", "yes", ""),
    ("-half-peak-uneven", "slower EPYC", "yes", ""),
    ("-half-peak-noisy", "slower EPYC", "yes", ", other programs"),
)


def summary() -> Lines:
    """The ratios of each workload, over machines or runs."""
    tuned = [result(f"benchmarks/finetuning{kind}")[key] for kind in MACHINES for key in ("mrpc", "sst2")]
    corpora = [f"{result(f'benchmarks/{file}')['ratio']:.1f}" for file in ("corpus", "corpus-ko")]
    vectors = result("benchmarks/features")["last"]["times_as_fast"]
    unsorted, by_length = (vectors[f"ours, bfloat16 / transformers{kind}, bfloat16"] for kind in ("", ", sorted"))
    served = [
        f"{rates['bertworks'] / rates['FastAPI + sentence-transformers']:.1f}"
        for rates in (
            result(f"benchmarks/serving{run}")["requests_per_second"] for run in ("", "-two-at-a-time", "-before")
        )
    ]
    usual = [end for end, _, kernels, other in RUNS if kernels == "yes" and not other]
    kernels = [result(f"benchmarks/pretraining{end}")["ratio"] for end in usual]
    before = result("benchmarks/pretraining")["ratio"]
    rows = [
        (
            "pre-training, 4 layers of width 256",
            "transformers, bfloat16",
            f"{_span(kernels)} on two machines; {before:.1f} on a third, by code without kernels",
        ),
        (
            "fine-tuning all-MiniLM-L6-v2",
            "transformers with dynamic padding, bfloat16",
            _span([one["times_as_fast_as_dynamic_padding"] for one in tuned]) + " on three machines",
        ),
        ("building a corpus store", "datasets", "{} (English), {} (Korean)".format(*corpora)),
        (
            "vectors of sentences",
            "transformers, bfloat16",
            f"{unsorted:.1f}; {by_length:.1f} if it gets the sentences sorted by length",
        ),
        (
            "requests/s at a p99 of 100 ms",
            "FastAPI with sentence-transformers",
            "{} and {}; {} for an earlier build on a busier machine".format(*served),
        ),
    ]
    return table(("workload, two CPU cores", "compared with", "times as fast"), rows, words=3)


def _span(ratios: list[float]) -> str:
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def speed() -> Lines:
    """Rates of both sides, and how many times as fast ours is."""
    header = ("workload", "compared with", "ours", "theirs", "times as fast", "each round", "file, version")
    return table(header, [*_corpus(), *_features()], words=2)


def _rounds(ratios: Iterable[float]) -> str:
    return ", ".join(f"{ratio:.1f}" for ratio in ratios)


def pretraining() -> Lines:
    """Pre-training beside transformers, with dropout 0.1: every run that the page names."""
    rows = []
    for kind, machine, kernels, note in RUNS:
        found = result(f"benchmarks/pretraining{kind}")
        sides = [f"{found[side]['tokens_per_second']:,}" for side in ("ours", "peer")]
        ratios = f"{found['ratio']:.1f}", _rounds(found["ratio_by_round"]), f"{found['without_dropout']['ratio']:.1f}"
        rows.append((machine + note, kernels, *sides, *ratios, f"`pretraining{kind}.json`"))
    header = ("machine", "kernels", "ours, tokens/s", "transformers, tokens/s", "times as fast", "each round")
    return table((*header, "times, dropout 0", "file"), rows, words=2)


def _corpus() -> list[Row]:
    rows = []
    for file, what in (("corpus", "English"), ("corpus-ko", "Korean (multilingual vocabulary)")):
        found = result(f"benchmarks/{file}")
        sides = [f"{found[side]['tokens_per_second']:,}" for side in ("ours", "peer")]
        ratios = (b / a for a, b in zip(found["ours"]["seconds"], found["peer"]["seconds"], strict=True))
        name = f"tokens/s, {found['megabytes']:.0f} MB of {what} to a store, two processes, EPYC"
        peer = "datasets, fast tokenizer, group_texts"
        rows.append((name, peer, *sides, f"{found['ratio']:.1f}", _rounds(ratios), _file(file)))
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
        name = "sentences/s, vectors of 10,000 sentences, all-MiniLM-L6-v2, AMX"
        rows.append((name, compared, *rates, f"{ratio:.1f}", _rounds(rounds), _file("features")))
    return rows


def _file(name: str) -> str:
    """A file of results, and the version that it is of."""
    return f"`{name}.json`, {result(f'benchmarks/{name}')['machine']['bertworks']}"


def _counts(found: dict[str, Any], *keys: str) -> list[str]:
    return [f"{found[key]:,.0f}" for key in keys]


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
            code = "" if kind else ", without kernels"  # measured before they existed
            rows.append((f"{name}, {machine}{code}", f"{one['times_as_fast_as_dynamic_padding']:.2f}", rounds, shown))
    header = ("times as fast, training only", "than dynamic padding", "each round", "than padding to 128")
    return table(header, rows)


def machines() -> Lines:
    """The machines, and how fast they multiply matrices in bfloat16."""
    rows = []
    for kind, name in MACHINES.items():
        found = result(f"benchmarks/pretraining{kind}")
        machine = found["machine"]
        rows.append((name, machine["cpu"], machine["kind"], f"{found['matmul_peak'] / 1e12:.2f}"))
    header = ("name here", "processor, two cores", "instruction set", "matrix products in bfloat16 (TFLOP/s)")
    return table(header, rows, words=3)
