"""English prose that is on every machine with Python: the docstrings of the standard library and installed packages.

Source files are parsed, never imported. A document is the docstring of a module, or of a top-level function or class
with those of its methods, without markup, code and parameter lists (prose.py). The result depends on the files only:
they are read in the order of a hash of their names, so that a limit on their number takes an even sample, and a
paragraph that occurs several times is retained where it is first read.
"""

import ast
import hashlib
import json
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ...files import atomic_write, to_json
from ...workers.local import Context, cores
from .prose import clean, unmarked

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "__pycache__", "_vendor", "vendored", "node_modules"}
MAX_BYTES = 1_000_000  # larger source files are tables or generated
MIN_CHARACTERS = 200  # shorter documents have no two sentences to predict one from the other
CHUNK = 64  # files per task of a worker

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """A Python file to read."""

    path: Path
    name: str  # relative to the folder in which it was found


class Document(NamedTuple):
    """The prose of one definition."""

    text: str  # one paragraph per line; from `collect` with marks (prose.py)
    name: str  # of the definition, without its module
    source: str  # file and definition


def installed_roots() -> list[Path]:
    """The folders of the standard library and of the installed packages."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys(Path(paths[name]) for name in ("stdlib", "purelib", "platlib")))


def find_sources(roots: Iterable[Path], max_files: int) -> list[Source]:
    """At most `max_files` Python files below the roots, in the order of a hash of their names, without tests."""
    sources = []
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
            paths = [Path(folder, name) for name in files if name.endswith(".py") and not name.startswith("test_")]
            sources += [Source(path, path.relative_to(root).as_posix()) for path in paths]
    return sorted(sources, key=lambda source: (unit_hash(source.name), source.name))[:max_files]


def unit_hash(text: str) -> float:
    """A number in [0, 1) that depends on `text` only."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest()) / 2**48


def collect(sources: Sequence[Source], workers: int = 0) -> Iterator[list[Document]]:
    """The documents of each source file, every paragraph once. workers: 0 for one per core."""
    seen: set[str] = set()
    for documents in _read_all(sources, workers or cores()):
        yield [one for document in documents if len(unmarked((one := _fresh(document, seen)).text)) >= MIN_CHARACTERS]


def _fresh(document: Document, seen: set[str]) -> Document:
    """The document without paragraphs that were seen before, which are added to `seen`."""
    keys = {re.sub(r"\W+", "", unmarked(text)).lower(): text for text in document.text.split("\n")}
    fresh = [text for key, text in keys.items() if key not in seen]
    seen.update(keys)
    return document._replace(text="\n".join(fresh))


def _read_all(sources: Sequence[Source], workers: int) -> Iterator[list[Document]]:
    """`read_source` of each, in order."""
    if workers == 1 or len(sources) < 2 * CHUNK:
        yield from map(read_source, sources)
        return
    pool = ProcessPoolExecutor(workers, Context())
    try:
        yield from pool.map(read_source, sources, chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)


def read_source(source: Source) -> list[Document]:
    """The documents of a file; none if it cannot be read or parsed (templates, files for another Python)."""
    try:
        if source.path.stat().st_size > MAX_BYTES:
            return []
        text = source.path.read_text(encoding="utf-8", errors="replace")
        if '"""' not in text and "'''" not in text:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strings of other packages
            tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    path = Path(source.name)
    module = path.parent.name if path.stem == "__init__" else path.stem
    documents = [Document("\n".join(clean(ast.get_docstring(tree) or "")), module, source.name)]
    for node in _definitions(tree.body):
        paragraphs = [clean(ast.get_docstring(one) or "", _parameters(one)) for one in _with_methods(node)]
        text = "\n".join(paragraph for docstring in paragraphs for paragraph in docstring)
        documents.append(Document(text, node.name.strip("_").lower(), f"{source.name}:{node.name}"))
    return [document for document in documents if document.text]


def _definitions(body: Iterable[ast.AST]) -> Iterator[Definition]:
    """Top-level functions and classes, also those under `if` and `try`."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from _definitions(getattr(node, part, []))


def _with_methods(node: Definition) -> Iterator[Definition]:
    """A definition, then those inside it if it is a class."""
    yield node
    if isinstance(node, ast.ClassDef):
        for inner in _definitions(node.body):
            yield from _with_methods(inner)


def _parameters(node: Definition) -> set[str]:
    """The parameters of a function, or those of a class's __init__."""
    if isinstance(node, ast.ClassDef):
        methods = {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
        return _parameters(methods["__init__"]) if "__init__" in methods else set()
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {one.arg for one in every if one} - {"self", "cls"}


def write_lines(path: Path, rows: Iterable[dict[str, object]]) -> None:
    """Write rows as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def read_lines(path: Path) -> list[dict[str, object]]:
    """The rows of a file that `write_lines` wrote."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
