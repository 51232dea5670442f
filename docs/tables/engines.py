"""The tables of docs/results/speed.md and finetuning.md that show engines and servers beside others."""

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
    """Throughput, single texts, memory and exactness of every engine."""
    found = result("benchmarks/inference")["engines"]
    header = ("engine", "texts/s", "times", "one text, p50 (ms)", "p99 (ms)", "GB", "smallest cosine", "STS-B")
    return table(header, [_engine(title, found[name]) for name, title in ENGINES.items()])


def _engine(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    single = found["single_ms"]
    return (
        name,
        f"{found['texts_a_second']:.0f}",
        f"{found['times_peer']:.2f}",
        f"{single['p50']:.1f}",
        f"{single['p99']:.1f}",
        f"{found['memory'] / 1e9:.2f}",
        f"{found['cosine']['smallest']:.4f}",
        f"{found['stsb_spearman']:.3f}",
    )


def exports() -> Lines:
    """Scores of fine-tuned folders in float32, and what bfloat16 and the exports change."""
    header = ("task", "metric", "examples", "float32", *FORMS.values())
    return table(header, [_export(*one) for one in EXPORTED.items()], words=2)


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
    """The requests a second that each server answers with a p99 of 100 ms, in its best setting."""
    found = result("benchmarks/serving")
    rates, settings = found["requests_per_second"], found["settings"]
    probes = {(probe["server"], probe["setting"]): probe["clients"] for probe in found["probes"] if "clients" in probe}
    header = ("server", "setting", "requests/s at p99 100 ms", "1 client", "4 clients", "16 clients")
    rows = []
    for name, setting in settings.items():
        clients = probes[name, setting]
        held = "-" if rates[name] is None else f"{rates[name]:.0f}"
        shown = "default" if setting == "as it comes" else setting
        rows.append((name, shown, held, *(f"{clients[many][0]:.0f}" for many in ("1", "4", "16"))))
    return table(header, rows, words=2)


def load() -> Lines:
    """What became of the requests of each level of load, and the server's memory."""
    header = ("load", "seconds", "sent", "answered", "refused", "lost", "p50 (ms)", "p99 (ms)", "growth (MB an hour)")
    levels = [
        level for file in ("serving-load", "serving-load-hour") for level in result(f"benchmarks/{file}")["levels"]
    ]
    return table(header, [_level(level) for level in levels])


def _level(found: dict[str, Any]) -> tuple[str, ...]:
    counts = (f"{found[name]:,}" for name in ("sent", "accepted", "refused", "lost"))
    times = (f"{found[name]:,.0f}" for name in ("p50_ms", "p99_ms"))
    bounds = found["memory"].get("mb_per_hour_interval") if found["seconds"] >= 600 else None
    growth = f"{bounds[0]:.1f} to {bounds[1]:.1f}" if bounds else "-"
    return (f"{found['times_capacity']:g} times the capacity", f"{found['seconds']:,.0f}", *counts, *times, growth)
