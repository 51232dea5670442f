"""Features of 10,000 sentences, side by side with transformers: vectors of every token, from raw text to arrays.

    python benchmarks/features.py [--data ../shared/data] [--rounds 3] [--sentences 10000] [--out FILE] [--smoke]

The first sentences of the English Wikipedia text, in its order, 1 to some 200 tokens each, through all-MiniLM-L6-v2 (6
layers of width 384), evaluation mode, as many threads as OMP_NUM_THREADS allows. The sides, each in a fresh process, in
turns: ours in float32 and with products in bfloat16; transformers in its usual way, batches of 32 in the order of the
input, padded to the longest of the batch; and transformers as a careful user would call it, all sentences sorted by
length first; both in float32 and with the whole model in bfloat16. Tokenizing and cutting the vectors of each text out
of its batch are in the times, loading the model is not; 64 sentences warm each side up. The sides' vectors are compared
with ours in float32. Needs `pip install -e '.[test,bench]'`.
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

import common
from bertworks.data.corpus import read_documents
from bertworks.data.sentences import split_sentences
from bertworks.inference.config import FeatureConfig
from bertworks.inference.features import Extractor
from bertworks.model.comparators import LayerChoice
from bertworks.training import machine

HALVED = ", bfloat16"
FULL = ("ours", "transformers", "transformers, sorted")
SIDES = FULL + tuple(side + HALVED for side in FULL)
OURS, PEERS = SIDES[::3], SIDES[1:3] + SIDES[4:]
PAIRS = tuple((ours, other) for ours in OURS for other in PEERS)
BATCH, WARM = 32, 64
SMOKE = {"rounds": 1, "sentences": 40, "layers": ["last"]}
Vectors = NDArray[np.float32]
Precision = Literal["float32", "bfloat16"]


def sentences(data: Path, count: int) -> list[str]:
    """The first sentences of the Wikipedia text."""
    documents = read_documents([data / common.TEXT])
    found = list(itertools.islice((one for doc in documents for one in split_sentences(doc.text)), count))
    if len(found) < count:
        raise SystemExit(f"{data}: {len(found)} sentences; expected {count}; give fewer --sentences")
    return found


def ours(model: Path, layers: str, precision: Precision) -> Any:
    """The function from texts to one array a text."""
    extractor = Extractor.load(model, FeatureConfig(layers=layers, precision=precision))
    return lambda texts: (features.vectors for features in extractor.stream(texts))


def theirs(model_folder: Path, layers: str, precision: Precision, in_order_of_length: bool) -> Any:
    """The same with transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    kind = getattr(torch, precision)
    model = transformers.AutoModel.from_pretrained(model_folder, add_pooling_layer=False, dtype=kind).eval()
    choice = LayerChoice.parse(layers, model.config.num_hidden_layers)

    @torch.inference_mode()
    def batch_of(texts: list[str]) -> list[Vectors]:
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        if layers == "last":
            states = model(**batch).last_hidden_state
        else:
            states = choice.combine(model(**batch, output_hidden_states=True).hidden_states)
        lengths = batch["attention_mask"].sum(1).tolist()
        return [one[1 : length - 1].float().numpy().copy() for one, length in zip(states, lengths, strict=True)]

    def run(texts: Sequence[str]) -> Iterator[Vectors]:
        lengths = [len(text) if in_order_of_length else 0 for text in texts]
        return iter(common.by_length(lambda rows: batch_of([texts[row] for row in rows]), lengths, BATCH))

    return run


def one_side(side: str, layers: str, model: str, data: str, count: int, vectors: str) -> common.Result:
    """One pass in this process: its seconds, memory; the vectors are written to the file `vectors`."""
    texts = sentences(Path(data), count)
    precision: Precision = "bfloat16" if side.endswith(HALVED) else "float32"
    folder = Path(model)
    run = ours(folder, layers, precision) if "ours" in side else theirs(folder, layers, precision, "sorted" in side)
    list(run(texts[:WARM]))
    start = time.perf_counter()
    found = list(run(texts))
    seconds = time.perf_counter() - start
    memory = machine.peak_memory(torch.device("cpu"))
    np.save(vectors, np.concatenate(found))
    return {"seconds": seconds, "vectors": sum(map(len, found)), "memory": memory, "threads": torch.get_num_threads()}


def compare(layers: str, options: Any, folder: Path) -> common.Result:
    """All sides in turns, medians, and how far the vectors are apart."""
    runs: dict[str, list[common.Result]] = {side: [] for side in SIDES}
    files = {side: folder / f"{number}.npy" for number, side in enumerate(SIDES)}
    shared = {"layers": layers, "model": options.model, "data": options.data, "count": options.sentences}
    for _ in range(options.rounds):
        for side in SIDES:
            given = {"side": side, **shared, "vectors": files[side]}
            runs[side].append(common.fresh(one_side, given, options.smoke))
    arrays = {side: np.load(file) for side, file in files.items()}
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


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "features.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the encoder")
    parser.add_argument("--layers", nargs="+", default=["last", "concat-last-4"])
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.model, options.data / common.TEXT)
        result: common.Result = {"what": (__doc__ or "").splitlines()[0]}
        result |= {"sentences": options.sentences, "batch": BATCH}
        for layers in options.layers:
            with tempfile.TemporaryDirectory() as folder:
                result[layers] = compare(layers, options, Path(folder))
        common.finish(options, {**result, "machine": common.machine_facts()})


if __name__ == "__main__":
    main(sys.argv[1:])
