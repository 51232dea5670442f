"""Vectors of texts by every engine, side by side: throughput, the time of a single text, memory, distance from float32.

    python benchmarks/inference.py [--data ../shared/data] [--rounds 3] [--texts 1200] [--engines NAME ...] [--smoke]

all-MiniLM-L6-v2 (6 layers of width 384) on a CPU, from raw texts to vectors of length 1, with as many threads as
OMP_NUM_THREADS allows. The texts are 1, 1, 2, 4 or 8 consecutive sentences of the English Wikipedia text. Every engine
has a process of its own, which is loaded and warmed up before the first round; loading and compiling are not in the
times. In each round every engine in its turn embeds all texts at once, then single texts of 24 tokens one by one.
Memory is the peak of the whole process. Cosines are with bertworks' own vectors in float32; the correlation with human
judgements is that of the cosines of STS-B's development pairs (Spearman); both on a third of the texts and pairs.

The engines: bertworks (packed and compiled); sentence-transformers as it comes, in float32 and with the whole model in
bfloat16; ONNX Runtime and OpenVINO on the graph that torch.onnx makes of the model, texts sorted by length, 32 a batch.
An engine whose package is missing is left out, and the result says so. Needs `pip install -e '.[test,bench,export]'`.
"""

import importlib.util
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import common
from bertworks.checkpoint.folder import load_model
from bertworks.inference.engines import can_compile
from bertworks.inference.predictor import Predictor
from bertworks.model.rectangular import STATES, Rectangular
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import read_rows
from bertworks.tasks.metrics import spearman
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine
from features import sentences

OURS = ("packed, float32", "packed, bfloat16", "compiled, float32", "compiled, bfloat16")
THEIRS = (
    "sentence-transformers, float32",
    "sentence-transformers, bfloat16",
    "onnxruntime, float32",
    "onnxruntime, int8",
    "openvino, float32",
    "openvino, bfloat16",
)
SIDES, EXACT = OURS + THEIRS, OURS[0]
PACKAGES = {"sentence-transformers": "sentence_transformers", "onnxruntime": "onnxruntime", "openvino": "openvino"}
GROUPS = (1, 1, 2, 4, 8)  # sentences of a text
BATCH, WARM, SINGLE = 32, 64, 24
SMOKE = {"rounds": 1, "texts": 8, "singles": 2, "engines": [*OURS[:2], THEIRS[0], THEIRS[2]]}
Vectors = NDArray[np.float32]
Embed = Callable[[list[str]], Vectors]


# ---- texts


def mixed_texts(data: Path, count: int) -> list[str]:
    """Consecutive sentences, in groups of GROUPS in turn."""
    numbers = [GROUPS[i % len(GROUPS)] for i in range(count)]
    found = iter(sentences(data, sum(numbers)))
    return [" ".join(next(found) for _ in range(number)) for number in numbers]


def single_texts(model: Path, texts: Sequence[str], count: int) -> list[str]:
    """Texts of SINGLE tokens, special ones included: the beginnings of longer texts."""
    tokenizer, found = Tokenizer.load(model), []
    for text in texts:
        encoding = tokenizer.encode(text)
        if len(encoding.ids) >= SINGLE:
            found.append(text[: encoding.offsets[SINGLE - 2][1]])
    return [found[i % len(found)] for i in range(count)] if found else list(texts[:count])


# ---- engines


def ours(folder: Path, kind: str, precision: Any) -> Embed:
    predictor = Predictor(folder, device="cpu", precision=precision, engine=kind)  # type: ignore[arg-type]
    return lambda texts: predictor.embed(texts, "mean", normalize=True)


def sentence_transformers(folder: Path, precision: str) -> Embed:
    from sentence_transformers import SentenceTransformer

    kind = getattr(torch, precision)
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": kind})
    return lambda texts: np.asarray(model.encode(texts, normalize_embeddings=True), np.float32)


def onnxruntime(folder: Path, graph: Path) -> Embed:
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(str(graph), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return sorted_by_length(folder, lambda arrays: session.run([STATES], {name: arrays[name] for name in names})[0])


def openvino(folder: Path, graph: Path, precision: str) -> Embed:
    import openvino as vino

    hints: dict[str, Any] = {"INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision]}
    hints |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    network = vino.Core().compile_model(str(graph), "CPU", hints)
    names = [port.get_any_name() for port in network.inputs]
    return sorted_by_length(folder, lambda arrays: network({name: arrays[name] for name in names})[STATES])


def sorted_by_length(folder: Path, run: Callable[[dict[str, NDArray[np.int64]]], Vectors]) -> Embed:
    """Tokenizing and mean pooling around a function from a batch's arrays to (B, L, D)."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    limit = min(tokenizer.model_max_length, 512)

    def embed(texts: list[str]) -> Vectors:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        found: list[Any] = [None] * len(texts)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = [texts[row] for row in rows]
            arrays = dict(tokenizer(batch, padding=True, truncation=True, max_length=limit, return_tensors="np"))
            mask = arrays["attention_mask"][:, :, None].astype(np.float32)
            means = (run(arrays) * mask).sum(1) / mask.sum(1)
            for row, vector in zip(rows, means / np.linalg.norm(means, axis=1, keepdims=True), strict=True):
                found[row] = vector
        return np.stack(found)

    return embed


def write_graphs(folder: Path, work: Path, int8: bool) -> None:
    """The ONNX graph of the encoder, and one with int8 matrices."""
    model = Rectangular(load_model(folder), [STATES])
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in range(3))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = tuple({0: torch.export.Dim("B"), 1: torch.export.Dim("L", max=model.model.config.max_length)} for _ in names)
    torch.onnx.export(
        model,
        example,
        work / "model.onnx",
        input_names=names,
        output_names=[STATES],
        dynamic_shapes=axes,
        dynamo=True,
        verbose=False,
    )
    if int8:
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(work / "model.onnx", work / "int8.onnx")


def build(side: str, folder: Path, work: Path) -> Embed:
    """The function from texts to vectors of one side."""
    kind, precision = side.split(", ")
    if kind == "onnxruntime":
        return onnxruntime(folder, work / ("int8.onnx" if precision == "int8" else "model.onnx"))
    if kind == "openvino":
        return openvino(folder, work / "model.onnx", precision)
    return (
        sentence_transformers(folder, precision) if kind == "sentence-transformers" else ours(folder, kind, precision)
    )


def missing(side: str) -> str:
    """Why a side cannot run here; "" if it can."""
    package = PACKAGES.get(side.split(", ")[0])
    if package and importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    return "no C++ compiler" if side.startswith("compiled") and not can_compile() else ""


# ---- a process a side


def answers(side: str, folder: Path, work: Path) -> Callable[[str, list[str]], Any]:
    """What a side's process does when it is asked."""
    embed = build(side, folder, work)

    def seconds(texts: list[str]) -> float:
        start = time.perf_counter()
        embed(texts)
        return time.perf_counter() - start

    def answer(what: str, texts: list[str]) -> Any:
        if what == "vectors":
            return embed(texts)
        if what == "memory":
            return peak_memory()
        return seconds(texts) if what == "all" else [seconds([text]) for text in texts]

    return answer


def peak_memory() -> int:
    """The most memory in bytes that this process has used; the usual counter begins with that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return machine.peak_memory(torch.device("cpu"))
    return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))


def serve(connection: Connection, side: str, folder: Path, work: Path) -> None:
    """Answer until there is nothing more to do."""
    answer = answers(side, folder, work)
    while True:
        what, texts = connection.recv()
        if what == "end":
            return
        connection.send(answer(what, texts))


class Side:
    """A side in a process of its own, or with `here` in this one."""

    def __init__(self, name: str, folder: Path, work: Path, here: bool):
        self.answer = answers(name, folder, work) if here else None
        if not here:
            context = multiprocessing.get_context("spawn")
            self.connection, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other, name, folder, work), daemon=True)
            self.process.start()

    def ask(self, what: str, texts: Sequence[str] = ()) -> Any:
        """What the side answers. Raises EOFError if its process has ended."""
        if self.answer:
            return self.answer(what, list(texts))
        self.connection.send((what, list(texts)))
        while not self.connection.poll(1):
            if not self.process.is_alive():
                raise EOFError(f"the process ended with exit status {self.process.exitcode}")
        return self.connection.recv()

    def end(self) -> None:
        """Let the process end."""
        if not self.answer:
            self.connection.send(("end", []))
            self.process.join()


# ---- the measurement


def started(options: Any, work: Path, warm: Sequence[str], single: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each engine with its side, warmed up, or with the reason why it is left out."""
    names = options.engines
    if any(name.startswith(("onnx", "openvino")) and not missing(name) for name in names):
        write_graphs(options.model, work, "onnxruntime, int8" in names)
    for name in names:
        if reason := missing(name):
            print(f"{name}: left out, {reason}", file=sys.stderr)
            yield name, reason
            continue
        begun, side = time.perf_counter(), Side(name, options.model, work, options.smoke)
        for _ in range(2):
            side.ask("all", warm)
            side.ask("single", single[:5])
        print(f"{name}: ready in {time.perf_counter() - begun:.1f} seconds", file=sys.stderr, flush=True)
        yield name, side


def measure(options: Any, work: Path) -> common.Result:
    """All engines in turns; medians, percentiles, memory, and how far their vectors are apart."""
    texts = mixed_texts(options.data, options.texts)
    single = single_texts(options.model, texts, options.singles)
    ready = dict(started(options, work, texts[:: max(1, len(texts) // WARM)], single))
    sides = {name: side for name, side in ready.items() if isinstance(side, Side)}
    passes: dict[str, list[float]] = {name: [] for name in sides}
    singles: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, side in sides.items():
            passes[name].append(side.ask("all", texts))
            singles[name] += side.ask("single", single)
            print(f"{name}: {passes[name][-1]:.2f} seconds", file=sys.stderr, flush=True)
    pairs = read_rows(TASKS["stsb"], options.data / "glue" / "STS-B" / "dev.tsv")
    pairs, some = pairs[:: options.compared], texts[:: options.compared]
    vectors = {name: side.ask("vectors", some) for name, side in sides.items()}
    result = {
        name: {
            "seconds": passes[name],
            "texts_a_second": len(texts) / statistics.median(passes[name]),
            "single_ms": {f"p{q}": 1e3 * float(np.percentile(singles[name], q)) for q in (50, 99)},
            "cosine": cosines(vectors[EXACT], vectors[name]),
            "stsb_spearman": judged(side, pairs),
            "memory": side.ask("memory"),
        }
        for name, side in sides.items()
    }
    for side in sides.values():
        side.end()
    left_out = {name: reason for name, reason in ready.items() if isinstance(reason, str)}
    tokens = sum(len(encoding.ids) for encoding in Tokenizer.load(options.model).encode_batch(texts))
    return {"texts": len(texts), "pairs": len(pairs), "tokens": tokens, "left_out": left_out, "engines": result}


def cosines(exact: Vectors, found: Vectors) -> common.Result:
    """Mean and smallest cosine of vectors of length 1 with the exact ones."""
    values = (exact * found).sum(1)
    return {"mean": float(values.mean()), "smallest": float(values.min())}


def judged(side: Side, pairs: Sequence[Any]) -> float:
    """Spearman's correlation of the cosines with the labels."""
    first, second = (side.ask("vectors", texts) for texts in ([row.text for row in pairs], [row.pair for row in pairs]))
    return spearman(np.array([float(row.label) for row in pairs]), (first * second).sum(1))


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, measure, write the JSON."""
    parser = common.parser(__doc__, "inference.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the encoder")
    parser.add_argument("--engines", nargs="+", choices=SIDES, default=list(SIDES), metavar="NAME", help=str(SIDES))
    parser.add_argument("--texts", type=int, default=1200)
    parser.add_argument("--singles", type=int, default=100, help="single texts a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--compared", type=int, default=3, help="vectors are compared on every so-many-th text and pair"
    )
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as folder:
        common.need(options.model, options.data / common.TEXT, options.data / "glue" / "STS-B")
        options.engines = list(dict.fromkeys([EXACT, *options.engines]))
        result = measure(options, Path(folder))
        what = {"what": (__doc__ or "").splitlines()[0], "threads": torch.get_num_threads()}
        common.finish(options, {**what, **result, "machine": common.machine_facts()})


if __name__ == "__main__":
    main(sys.argv[1:])
