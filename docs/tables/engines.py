"""The tables of docs/results/speed.md and finetuning.md that show engines and servers beside others."""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from sources import Lines, percent, result, table

ENGINES = {  # of benchmarks/inference.py, as the page names them
    "packed, float32": "bertworks, packed, float32",
    "packed, bfloat16": "bertworks, packed, bfloat16",
    "export, float32": "bertworks, ONNX export, float32",
    "export, int8": "bertworks, ONNX export, int8",
    "sentence-transformers, float32": "sentence-transformers, float32",
    "sentence-transformers, bfloat16": "sentence-transformers, bfloat16",
    "onnxruntime, float32": "ONNX Runtime, float32",
    "onnxruntime, int8": "ONNX Runtime, int8",
    "openvino, float32": "OpenVINO, float32",
    "openvino, bfloat16": "OpenVINO, bfloat16",
}

FORMS = {  # of the exports, as the page names them
    "bfloat16": "bfloat16",
    "onnx-float32": "ONNX, float32",
    "onnx-int8": "ONNX, int8",
}
EXPORTED = {  # task: its name on the page, the metric and the metric's name there
    "sst2": ("SST-2", "accuracy", "accuracy"),
    "mrpc": ("MRPC", "accuracy", "accuracy"),
    "conll2003": ("CoNLL-2003", "f1", "F1"),
    "squad1": ("SQuAD 1.1", "f1", "F1"),
}


def engines() -> Lines:
    """Throughput, single texts and exactness of every engine, and its throughput with BERT-BASE and longer texts."""
    found, base = (result(f"benchmarks/{file}")["engines"] for file in ("inference", "inference-base"))
    header = (
        "engine",
        "batch",
        "texts/s",
        "one text, p50 (ms)",
        "p99 (ms)",
        "smallest cosine",
        "STS-B",
        "BERT-BASE, batch",
        "BERT-BASE, texts/s",
        "BERT-BASE, one text, p50 (ms)",
    )
    return table(header, [_engine(title, found[name], base.get(name)) for name, title in ENGINES.items()])


def _engine(name: str, found: dict[str, Any], base: dict[str, Any] | None) -> tuple[str, ...]:
    single = found["single_ms"]
    other = ("-", "-", "-")
    if base:
        other = (str(base["batch"] or "own"), f"{base['texts_a_second']:.1f}", f"{base['single_ms']['p50']:.0f}")
    return (
        name,
        str(found["batch"] or "own"),
        f"{found['texts_a_second']:.0f}",
        f"{single['p50']:.1f}",
        f"{single['p99']:.1f}",
        f"{found['cosine']['smallest']:.4f}",
        f"{found['stsb_spearman']:.3f}",
        *other,
    )


def exports() -> Lines:
    """What bfloat16 and the exports change: scores of fine-tuned folders, size, and speed (benchmarks/inference.py)."""
    header = ("task", "metric", "examples", "float32", *FORMS.values())
    graphs = [result(f"benchmarks/export_scores/sst2-1-{form}")["bytes"] for form in FORMS if form != "bfloat16"]
    size = ("graph of the model of SST-2", "MB", "-", "-", "-", *(f"{one / 1e6:.0f}" for one in graphs))
    found = [result("benchmarks/inference")["engines"][name] for name in list(ENGINES)[:4]]
    rate = ("mixed texts", "texts/s", "-", *(f"{one['texts_a_second']:.0f}" for one in found))
    single = ("one text of 24 tokens", "p50, ms", "-", *(f"{one['single_ms']['p50']:.1f}" for one in found))
    return table(header, [*(_export(*one) for one in EXPORTED.items()), size, rate, single], words=2)


def _export(task: str, shown: tuple[str, str, str]) -> tuple[str, ...]:
    title, metric, label = shown
    found = [result(f"benchmarks/export_scores/{task}-1-{form}") for form in FORMS]
    differences = [one["differences"][metric] for one in found]
    changes = (
        f"{percent(one['difference'], '+')} ({' to '.join(percent(end, '+') for end in one['interval'])})"
        for one in differences
    )
    return (title, label, f"{found[0]['rows']:,}", percent(differences[0]["first"]), *changes)


def servers() -> Lines:
    """The requests/s of each server with a p99 of 100 ms, and with 1, 4 and 16 clients, each in its best setting."""
    header = ("server", "setting at p99", "requests/s at p99 100 ms", "p99 of each round (ms)", "1 client", "4", "16")
    return table(header, [*_servers()], words=2)


def _servers() -> Iterator[tuple[str, ...]]:
    found = result("benchmarks/serving")
    for name, setting in found["settings"].items():
        *_, (rate, last) = takewhile(lambda step: step[1]["held"], found["rates"][name].items())
        rounds = f"{min(last['p99_ms']):.0f} to {max(last['p99_ms']):.0f} at {rate}/s"
        probes = [probe["clients"] for probe in found["probes"] if probe["server"] == name]
        clients = (f"{max(probe[many][0] for probe in probes):.0f}" for many in ("1", "4", "16"))
        yield name, setting, f"{found['requests_per_second'][name]:.0f}", rounds, *clients
