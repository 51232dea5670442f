"""Building a corpus store, side by side with the `datasets` route: load text, map the fast tokenizer, group in chunks.

    python benchmarks/corpus.py [--data ../shared/data] [--megabytes 60] [--out FILE] [--smoke]

Both sides read the same text file (one paragraph a line) and use the same vocabulary and number of processes; ours also
finds sentences and duplicates. They take turns, each in a fresh process. Neither side counts special tokens. Memory is
the sum over a side's processes of their resident memory, sampled ten times a second (pages that processes share count
more than once).
`--language ko` measures Korean text with the multilingual vocabulary. Needs `pip install -e '.[bench]'`.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import common
from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine

TEXTS = {  # by language: text, vocabulary
    "en": (common.TEXT, common.VOCAB),
    "ko": (Path("text", "kowiki.tar.zst"), Path("vocab", "bert-base-multilingual-cased.txt")),
}
SMOKE = {"language": "en", "megabytes": 0.005, "repeats": 1, "workers": 1, "work": None}


def one_side(side: str, text: str, tokenizer: str, work: str, workers: int) -> common.Result:
    """One build in this process and an empty folder."""
    run = {"ours": ours, "peer": peer}[side]
    with tempfile.TemporaryDirectory(dir=work) as folder:
        return run(Path(text), Path(tokenizer), Path(folder), workers)


def ours(text: Path, tokenizer: Path, work: Path, workers: int) -> common.Result:
    """Build a store; seconds and tokens."""
    config = BuildConfig(input=InputOptions(format="text", documents="blank-line"), workers=workers)
    loaded = Tokenizer.load(tokenizer / "vocab.txt", lowercase=is_uncased(tokenizer))
    begun = time.perf_counter()
    manifest = build([text], loaded, work / "store", config, progress=False)
    seconds = time.perf_counter() - begun
    tokens = sum(manifest["counts"][split]["tokens"] for split in ("train", "validation"))
    versions = {"tokenizers": metadata.version("tokenizers"), "commit": str(machine.facts()["commit"])}
    return {"seconds": seconds, "tokens": tokens, **versions}


def write_vocabulary(vocabulary: Path, folder: Path) -> None:
    """Write the files of a stock BERT tokenizer into `folder`: each side then applies its own rules."""
    folder.mkdir()
    shutil.copy(vocabulary, folder / "vocab.txt")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": "uncased" in vocabulary.name}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def is_uncased(folder: Path) -> bool:
    """Whether the stock tokenizer in `folder` lowers letters."""
    return bool(json.loads((folder / "tokenizer_config.json").read_text())["do_lower_case"])


def peer(text: Path, tokenizer: Path, work: Path, workers: int) -> common.Result:
    """What run_mlm.py of transformers does without line_by_line: tokenize lines, join all, cut into chunks of 128."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    fast = transformers.AutoTokenizer.from_pretrained(tokenizer)
    length = 128

    def tokenize(examples: dict[str, Any]) -> Any:
        return fast(examples["text"], return_special_tokens_mask=True)

    def group_texts(examples: dict[str, Any]) -> dict[str, Any]:
        joined = {key: [item for row in rows for item in row] for key, rows in examples.items()}
        total = len(next(iter(joined.values()))) // length * length
        return {key: [row[i : i + length] for i in range(0, total, length)] for key, row in joined.items()}

    begun = time.perf_counter()
    lines = datasets.load_dataset("text", data_files=str(text), split="train", cache_dir=str(work / "cache"))
    tokenized = lines.map(tokenize, batched=True, num_proc=workers, remove_columns=["text"])
    chunks = tokenized.map(group_texts, batched=True, num_proc=workers)
    seconds = time.perf_counter() - begun
    versions = {name: metadata.version(name) for name in ("datasets", "transformers", "tokenizers")}
    return {"seconds": seconds, "chunks": len(chunks), **versions}


def summary(runs: list[common.Result], tokens: int) -> common.Result:
    """Medians of one side's runs."""
    seconds = statistics.median(run["seconds"] for run in runs)
    return {
        "tokens_per_second": round(tokens / seconds),
        "seconds": [round(run["seconds"], 2) for run in runs],
        "peak_mb": max(run["tree_mb"] for run in runs),
        **{key: value for key, value in runs[0].items() if isinstance(value, str)},
    }


def compare(options: Any) -> common.Result:
    """All runs, interleaved, and their comparison."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        tokenizer, text, larger = (Path(work) / name for name in ("tokenizer", "text.txt", "larger.txt"))
        source, vocabulary = (options.data / path for path in TEXTS[options.language])
        write_vocabulary(vocabulary, tokenizer)
        common.write_slice(source, options.megabytes, text)
        common.write_slice(source, 3 * options.megabytes, larger)

        def measure(side: str, text: Path) -> common.Result:
            given = {"side": side, "text": text, "tokenizer": tokenizer, "work": work, "workers": options.workers}
            return common.fresh(one_side, given, options.smoke, {"HF_HOME": work})

        runs: dict[str, list[common.Result]] = {"ours": [], "peer": []}
        for _ in range(options.repeats):
            for side, done in runs.items():
                done.append(measure(side, text))
        big = measure("ours", larger)
    tokens = runs["ours"][0]["tokens"]
    result = {side: summary(done, tokens) for side, done in runs.items()}
    return {
        "what": "tokens a second from a text file to a corpus store, against datasets + fast tokenizer + group_texts",
        **result,
        "ratio": round(result["ours"]["tokens_per_second"] / result["peer"]["tokens_per_second"], 2),
        "ours_on_3x_the_text": summary([big], big["tokens"]),
        "language": options.language,
        "megabytes": options.megabytes,
        "tokens": tokens,
        "workers": options.workers,
        "machine": common.machine_facts(),
    }


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "corpus.json")
    parser.add_argument("--megabytes", type=float, default=60, help="of text; ours also on three times as much")
    parser.add_argument("--language", choices=TEXTS, default="en", help="of the text")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--work", type=Path, default=None, help="folder for temporary files (default: the system's)")
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(*(options.data / path for path in TEXTS[options.language]))
        common.finish(options, compare(options))


if __name__ == "__main__":
    main(sys.argv[1:])
