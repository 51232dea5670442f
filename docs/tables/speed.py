"""The tables of docs/results/speed.md that show rates and memory beside other software."""

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from sources import Lines, result, table

# ends of files of training, and the machine
MACHINES = {"": "EPYC", "-amx": "AMX", "-half-peak": "slower EPYC"}
# runs of pre-training of each machine: ends of the files
RUNS = {
    "AMX": ("-amx", "-amx-second", "-amx-slow-peer"),
    "EPYC": ("",),
    "slower EPYC": tuple(
        f"-half-peak{run}" for run in ("", "-first", "-onednn", "-uneven", "-noisy", "-masked", "-masked-second")
    ),
}


def summary() -> Lines:
    """The ratios of each workload, over machines or runs."""
    tuned = [result(f"benchmarks/finetuning{kind}")[key] for kind in MACHINES for key in ("mrpc", "sst2")]
    corpora = [f"{result(f'benchmarks/{file}')['ratio']:.1f}" for file in ("corpus", "corpus-ko")]
    vectors = result("benchmarks/features")["last"]["times_as_fast"]
    unsorted, by_length = (vectors[f"ours, bfloat16 / transformers{kind}, bfloat16"] for kind in ("", ", sorted"))
    served = result("benchmarks/serving")["requests_per_second"]
    rates = result("benchmarks/inference")["engines"]
    many = {name: one["texts_a_second"] for name, one in rates.items()}
    rivals = ("sentence-transformers, bfloat16", "openvino, bfloat16", "onnxruntime, int8")
    mixed = (f"{many['packed, bfloat16'] / many[rival]:.1f}" for rival in rivals)
    base = {name: one["texts_a_second"] for name, one in result("benchmarks/inference-base")["engines"].items()}
    longer = (f"{base['packed, bfloat16'] / base[rival]:.1f}" for rival in rivals)
    single = {
        name: rates[name]["single_ms"]["p50"] for name in ("onnxruntime, int8", "packed, bfloat16", "export, int8")
    }
    alone, int8 = (single["onnxruntime, int8"] / single[name] for name in ("packed, bfloat16", "export, int8"))
    rows = [
        (
            "pre-training, 4 layers of width 256",
            "transformers, output layer at masked positions alone (two runs)",
            _range(_masked("slower EPYC"), ".1f"),
            "slower EPYC",
        ),
        (
            "pre-training, 4 layers of width 256",
            "transformers as it is: output layer at every position",
            _range((one["ratio"] for machine in RUNS for one in _pretraining(machine)), ".1f"),
            "AMX, both EPYCs",
        ),
        (
            "fine-tuning all-MiniLM-L6-v2",
            "transformers with dynamic padding, bfloat16",
            _span([one["times_as_fast_as_dynamic_padding"] for one in tuned]),
            "AMX, both EPYCs",
        ),
        ("building a corpus store", "datasets", "{} (English), {} (Korean)".format(*corpora), "EPYC"),
        (
            "vectors of 200 texts of 100 tokens",
            "sentence-transformers and OpenVINO in bfloat16, ONNX Runtime in int8",
            ", ".join(mixed),
            "slower EPYC",
        ),
        (
            "vectors of 10 texts of 410 tokens, BERT-BASE",
            "sentence-transformers and OpenVINO in bfloat16, ONNX Runtime in int8",
            ", ".join(longer),
            "slower EPYC",
        ),
        (
            "vectors of the tokens of 4,000 sentences",
            "transformers, bfloat16, sorted by length; in the order of the file",
            f"{by_length:.1f}; {unsorted:.1f}",
            "AMX",
        ),
        (
            "one text of 24 tokens",
            "ONNX Runtime, int8",
            f"our bfloat16 {alone:.1f}, our int8 export {int8:.1f}",
            "slower EPYC",
        ),
        *(
            (
                "requests/s at a p99 of 100 ms",
                rival,
                f"default {served['bertworks'] / rate:.1f}, int8 export {served['bertworks, int8 export'] / rate:.1f}",
                "EPYC",
            )
            for rival, rate in served.items()
            if not rival.startswith("bertworks")
        ),
    ]
    return table(("workload, two CPU cores", "compared with", "times as fast", "machine"), rows, words=4)


def _span(ratios: list[float]) -> str:
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def _rounds(ratios: Iterable[float]) -> str:
    return ", ".join(f"{ratio:.1f}" for ratio in ratios)


def _pretraining(machine: str) -> list[dict[str, Any]]:
    return [result(f"benchmarks/pretraining{end}") for end in RUNS[machine]]


def _masked(machine: str) -> list[float]:
    """The ratios to transformers with its output layer at masked positions alone, of the runs that have it."""
    return [one["masked_positions"]["ratio"] for one in _pretraining(machine) if "masked_positions" in one]


def _range(values: Iterable[float], digits: str) -> str:
    """The smallest and the largest value, or the only one."""
    ends = sorted(values)
    return " to ".join(format(end, digits) for end in dict.fromkeys((ends[0], ends[-1])))


def pretraining() -> Lines:
    """Pre-training beside transformers with dropout 0.1: the ranges of the runs of each machine."""
    rows = []
    for machine, files in RUNS.items():
        found = _pretraining(machine)
        sides = [_range((one[side]["tokens_per_second"] for one in found), ",") for side in ("ours", "peer")]
        ratios = _range((one["ratio"] for one in found), ".1f")
        without = _range((one["without_dropout"]["ratio"] for one in found), ".1f")
        masked = _range(_masked(machine), ".1f") if _masked(machine) else "-"
        rows.append((machine, str(len(files)), *sides, ratios, without, masked))
    header = ("machine", "runs", "ours, tokens/s", "transformers, tokens/s", "times as fast")
    return table((*header, "dropout 0", "masked positions"), rows)


def speed() -> Lines:
    """Rates of building a corpus store and of vectors of sentences, beside other software."""
    header = ("workload", "compared with", "ours", "theirs", "times as fast", "each round")
    return table(header, [*_corpus(), *_features()], words=2)


def _corpus() -> Iterator[tuple[str, ...]]:
    for file, what in (("corpus", "English"), ("corpus-ko", "Korean")):
        found = result(f"benchmarks/{file}")
        sides = [f"{found[side]['tokens_per_second']:,}" for side in ("ours", "peer")]
        ratios = (b / a for a, b in zip(found["ours"]["seconds"], found["peer"]["seconds"], strict=True))
        name = f"{found['megabytes']:.0f} MB of {what} to a store, tokens/s"
        yield name, "datasets", *sides, f"{found['ratio']:.1f}", _rounds(ratios)


def _features() -> Iterator[tuple[str, ...]]:
    found = result("benchmarks/features")["last"]
    for kind in ("float32", "bfloat16"):
        ours, end = ("ours", "") if kind == "float32" else ("ours, bfloat16", ", bfloat16")
        for order, peer in (("in the order of the file", "transformers"), ("sorted by length", "transformers, sorted")):
            rates = _counts(found["sentences_a_second"], ours, peer + end)
            ratio, rounds = (found[key][f"{ours} / {peer}{end}"] for key in ("times_as_fast", "by_round"))
            name = f"token vectors, both in {kind}, sentences/s"
            yield name, f"transformers, {order}", *rates, f"{ratio:.1f}", _rounds(rounds)


def _counts(found: dict[str, Any], *keys: str) -> list[str]:
    return [f"{found[key]:,.0f}" for key in keys]


def fine_tuning() -> Lines:
    """Times of training beside transformers."""
    rows = []
    for kind, machine in MACHINES.items():
        for name, key in (("an epoch of MRPC", "mrpc"), ("200 steps of SST-2", "sst2")):
            one = result(f"benchmarks/finetuning{kind}")[key]
            ours, theirs = (statistics.median(one["seconds"][side]) for side in ("ours", "dynamic padding"))
            rounds = ", ".join(f"{ratio:.2f}" for ratio in one["by_round"])
            padded = one["times_as_fast_as_padded_to_128"]
            ratios = (
                f"{one['times_as_fast_as_dynamic_padding']:.2f}",
                rounds,
                "-" if padded is None else f"{padded:.1f}",
            )
            rows.append((f"{name}, {machine}", f"{ours:.1f}", f"{theirs:.1f}", *ratios))
    header = ("training", "ours (s)", "dynamic padding (s)", "times as fast", "each round", "times, padded to 128")
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
