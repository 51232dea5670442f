"""Building a corpus store, side by side with the `datasets` route: load text, map the fast tokenizer, group in chunks.

    python benchmarks/corpus.py [--input enwiki.tar.zst] [--vocab bert-base-uncased.txt] [--megabytes 60] [--out FILE]

Both sides read the same text file (one paragraph a line) and use the same vocabulary and number of processes; ours also
finds sentences and duplicates. They take turns, each in a process of its own. Tokens are those of the text, without
special ones, on both sides. Memory is the sum over a side's processes of their resident memory, sampled ten times a
second (what processes share counts more than once). Needs `pip install -e '.[bench]'` and Linux.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.files import write_json
from bertworks.tokenizer import Tokenizer

DATA = Path("../shared/data")


def ours(text: Path, tokenizer: Path, work: Path, workers: int) -> dict[str, Any]:
    """Build a store; seconds and tokens."""
    config = BuildConfig(input=InputOptions(format="text", documents="blank-line"), workers=workers)
    loaded = Tokenizer.load(tokenizer)
    begun = time.perf_counter()
    manifest = build([text], loaded, work / "store", config, progress=False)
    seconds = time.perf_counter() - begun
    tokens = sum(manifest["counts"][split]["tokens"] for split in ("train", "validation"))
    return {"seconds": seconds, "tokens": tokens, "tokenizers": metadata.version("tokenizers")}


def peer(text: Path, tokenizer: Path, work: Path, workers: int) -> dict[str, Any]:
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


def write_slice(source: Path, megabytes: float, target: Path) -> None:
    """The first `megabytes` of the source's text, blank lines between documents."""
    size = 0
    with open(target, "w", encoding="utf-8") as file:
        for document in read_documents([source]):
            size += file.write(document.text + "\n\n")
            if size > megabytes * 1e6:
                return
    print(f"note: the source holds {size / 1e6:.0f} MB only", file=sys.stderr)


class Memory:
    """The peak of the resident memory of a process and all its descendants, in MB, while the block runs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak, self.done = pid, 0.0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.1):
            self.peak = max(self.peak, self._resident())

    def _resident(self) -> float:
        family, total = {self.pid}, 0.0
        for folder in sorted((p for p in Path("/proc").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # ended meanwhile
                continue
            if int(folder.name) == self.pid or int(fields[1]) in family:
                family.add(int(folder.name))
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        return total


def measure(side: str, text: Path, tokenizer: Path, workers: int) -> dict[str, Any]:
    """One run of one side in a fresh process and folder."""
    with tempfile.TemporaryDirectory(dir=text.parent) as work:
        arguments = [side, str(text), str(tokenizer), work, str(workers)]
        command = [sys.executable, __file__, "--side", *arguments]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": work, "TOKENIZERS_PARALLELISM": "false"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        with Memory(process.pid) as memory:
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{side}: failed with exit status {process.returncode}")
        return {**json.loads(output.splitlines()[-1]), "peak_mb": round(memory.peak)}


def summary(runs: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    """Medians of one side's runs."""
    seconds = statistics.median(run["seconds"] for run in runs)
    return {
        "tokens_per_second": round(tokens / seconds),
        "seconds": [round(run["seconds"], 2) for run in runs],
        "peak_mb": max(run["peak_mb"] for run in runs),
        **{key: value for key, value in runs[0].items() if isinstance(value, str)},
    }


def machine() -> dict[str, Any]:
    """CPU, cores, Python, commit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "commit": git.stdout.strip(),
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """All runs, interleaved, and their comparison."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        tokenizer, text, larger = Path(work) / "tokenizer", Path(work) / "text.txt", Path(work) / "larger.txt"
        Tokenizer.load(options.vocab, lowercase=True).save(tokenizer)
        write_slice(options.input, options.megabytes, text)
        write_slice(options.input, 3 * options.megabytes, larger)
        runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
        for _ in range(options.repeats):
            for side, done in runs.items():
                done.append(measure(side, text, tokenizer, options.workers))
                print(f"{side}: {done[-1]}", file=sys.stderr, flush=True)
        big = measure("ours", larger, tokenizer, options.workers)
    tokens = runs["ours"][0]["tokens"]
    result = {side: summary(done, tokens) for side, done in runs.items()}
    ratio = result["ours"]["tokens_per_second"] / result["peer"]["tokens_per_second"]
    return {
        "what": "tokens a second from a text file to a corpus store, against datasets + fast tokenizer + group_texts",
        **result,
        "ratio": round(ratio, 2),
        "ours_on_3x_the_text": summary([big], big["tokens"]),
        "megabytes": options.megabytes,
        "tokens": tokens,
        "workers": options.workers,
        "machine": machine(),
    }


def main() -> None:
    """Parse the arguments, compare, write the JSON."""
    if sys.argv[1:2] == ["--side"]:
        side, text, tokenizer, work, workers = sys.argv[2:]
        run = {"ours": ours, "peer": peer}[side]
        print(json.dumps(run(Path(text), Path(tokenizer), Path(work), int(workers))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, default=DATA / "text" / "enwiki.tar.zst")
    parser.add_argument("--vocab", type=Path, default=DATA / "vocab" / "bert-base-uncased.txt")
    parser.add_argument("--megabytes", type=float, default=60, help="of text; ours also on three times as much")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, default=None, help="folder for temporary files (the system's)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "corpus.json")
    options = parser.parse_args()
    for path in (options.input, options.vocab):
        if not path.exists():
            raise SystemExit(f"{path}: not there; name another with --input (any text) or --vocab (a vocab.txt)")
    result = compare(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
