"""English prose that is on every machine with Python: the documentation strings of what is installed.

Source files are parsed, never imported. A document is the docstring of a module, or of a top-level function or class
with those of its methods. Markup, code, tables and heads of parameters go; what is left is paragraphs of prose.

Everything is a function of the files alone: they are read in the order of a hash of their names, so that a bound on
their number takes an even sample, and a paragraph that comes back (packages copy from each other) stays where it came
first.
"""

import ast
import hashlib
import json
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...files import atomic_write, to_json
from ...workers import Context, cores
from .prose import clean, unmarked

STDLIB = "stdlib"  # label of the standard library
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "__pycache__", "_vendor", "vendored", "node_modules"}
LARGEST = 1_000_000  # bytes: larger source files are tables or generated
CHUNK = 64  # files a worker is given at a time

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """A Python file to read."""

    path: Path
    label: str  # the package that it belongs to
    where: str  # its name inside the root


class Document(NamedTuple):
    """The prose of one definition."""

    text: str  # a paragraph a line; from `collect` with marks (prose.py)
    label: str  # package
    name: str  # of the definition, without its module: what a split goes by
    source: str  # file and definition


@dataclass(frozen=True)
class CollectConfig:
    """Which docstrings become documents."""

    max_files: int = 9_000  # largest number of source files to read, sampled evenly
    max_chars: int = 60_000_000  # characters of prose to keep at most
    min_document_chars: int = 200  # shorter documents have no two sentences to predict one from the other


def installed_roots() -> list[tuple[Path, str]]:
    """Where the interpreter's library and the installed packages lie, with the label ("" = the first folder's name)."""
    paths = sysconfig.get_paths()
    roots = [(Path(paths["stdlib"]), STDLIB), (Path(paths["purelib"]), ""), (Path(paths["platlib"]), "")]
    return [root for i, root in enumerate(roots) if root[0] not in [before for before, _ in roots[:i]]]


def find_sources(roots: Iterable[tuple[Path, str]], most: int) -> list[Source]:
    """At most `most` Python files below the roots, in the order of a hash of their names; tests and copies left out."""
    found = []
    for root, label in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
            for name in files:
                where = Path(folder, name).relative_to(root).as_posix()
                if name.endswith(".py") and not name.startswith("test_"):
                    found.append(Source(Path(folder, name), label or where.split("/")[0].removesuffix(".py"), where))
    return sorted(found, key=lambda s: (unit_hash(f"{s.label} {s.where}"), s.where))[:most]


def unit_hash(text: str) -> float:
    """A number in [0, 1) that depends on `text` alone: the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest()) / 2**48


def collect(
    sources: list[Source],
    config: CollectConfig,
    workers: int = 0,
    at: Callable[[int], bool | None] = lambda done: None,
) -> Iterator[Document]:
    """The documents of all sources, each paragraph once. `workers`: 0 for one a core.

    `at` is handed the number of files that are read, after each; when it returns True, no more are.
    """
    seen: set[bytes] = set()
    size = 0
    for done, documents in enumerate(_read_all(sources, workers), 1):
        for document in documents:
            fresh = [p for p in document.text.split("\n") if _first(unmarked(p), seen)]
            text = "\n".join(fresh)
            length = len(unmarked(text))
            if length >= config.min_document_chars and (len(fresh) > 1 or ". " in text):
                size += length
                yield document._replace(text=text)
        if at(done) or size > config.max_chars:
            return


def _first(paragraph: str, seen: set[bytes]) -> bool:
    key = hashlib.blake2b(re.sub(r"\W+", "", paragraph).lower().encode("utf-8", "replace"), digest_size=8).digest()
    if key in seen:
        return False
    seen.add(key)
    return True


def _read_all(sources: list[Source], workers: int) -> Iterator[list[Document]]:
    """`read_source` of each, in order."""
    workers = workers or cores()
    if workers == 1 or len(sources) < 2 * CHUNK:
        yield from map(read_source, sources)
        return
    pool = ProcessPoolExecutor(workers, Context())
    try:
        yield from pool.map(read_source, sources, chunksize=CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)


def read_source(source: Source) -> list[Document]:
    """The documents of one file; none if it cannot be read or parsed (templates, files for another Python)."""
    try:
        if source.path.stat().st_size > LARGEST:
            return []
        text = source.path.read_text(encoding="utf-8", errors="replace")
        if '"""' not in text and "'''" not in text:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in other people's strings
            tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    path = Path(source.where)
    module = path.parent.name if path.stem == "__init__" else path.stem
    documents = [Document("\n".join(clean(ast.get_docstring(tree) or "")), source.label, module, source.where)]
    for node in _definitions(tree.body):
        paragraphs = [p for docstring, parameters in _docstrings(node) for p in clean(docstring, parameters)]
        documents.append(
            Document("\n".join(paragraphs), source.label, node.name.strip("_").lower(), f"{source.where}:{node.name}")
        )
    return [document for document in documents if document.text]


def _definitions(body: Iterable[ast.AST]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Top-level functions and classes, also those under `if` and `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from _definitions(getattr(node, part, []))


def _docstrings(node: Definition) -> Iterator[tuple[str, set[str]]]:
    """The docstring of a definition with the names of its parameters, then those of what a class defines."""
    yield ast.get_docstring(node) or "", _parameters(node)
    if isinstance(node, ast.ClassDef):
        for inner in _definitions(node.body):
            yield from _docstrings(inner)


def _parameters(node: ast.AST) -> set[str]:
    """The parameters of a function; of a class those of its __init__."""
    if isinstance(node, ast.ClassDef):
        begin = (inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name == "__init__")
        return _parameters(next(begin, ast.Pass()))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {one.arg for one in every if one} - {"self", "cls"}


# ---- files


def write_rows(path: Path, documents: Iterable[Document]) -> None:
    """Documents as JSON lines: text, label, name, source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as file:
        for document in documents:
            file.write(to_json(document._asdict()) + "\n")


def read_rows(path: Path) -> list[Document]:
    """What `write_rows` wrote."""
    with open(path, encoding="utf-8") as file:
        return [Document(**json.loads(line)) for line in file]
