"""English prose that is on every machine with Python: the documentation strings of what is installed.

Source files are parsed, never imported. A document is the docstring of a module, or of a top-level function or class
with those of its methods. Markup, code, tables and heads of parameters go; what is left is paragraphs of prose.

Everything is a function of the files alone: they are read in the order of a hash of their names, so that a bound on
their number takes an even sample, and a paragraph that comes back (packages copy from each other) stays where it came
first.
"""

import ast
import hashlib
import inspect
import json
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from ..files import InputError, atomic_write, to_json
from ..workers import Context, cores

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

    text: str  # a paragraph a line
    label: str  # package
    name: str  # of the definition, without its module: what a split goes by
    source: str  # file and definition


@dataclass(frozen=True)
class CollectConfig:
    """Which docstrings become documents."""

    max_files: int = 12_000  # largest number of source files to read, sampled evenly
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
            fresh = [p for p in document.text.split("\n") if _first(p, seen)]
            text = "\n".join(fresh)
            if len(text) >= config.min_document_chars and (len(fresh) > 1 or ". " in text):
                size += len(text)
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
        paragraphs = [p for docstring in _docstrings(node) for p in clean(docstring)]
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


def _docstrings(node: Definition) -> Iterator[str]:
    """The docstring of a definition, then those of what a class defines."""
    yield ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        for inner in _definitions(node.body):
            yield from _docstrings(inner)


# ---- from markup to prose

RULE = re.compile(r"([=\-~^*+#\"'.:])\1{2,}$")  # underlines a heading
SKIP_BLOCK = re.compile(r"\.\. (?!note|warning|important|tip|seealso|hint|caution|deprecated|version)|@\w+\(|.*::$")
DIRECTIVE = re.compile(r"\.\. \w+::\s*(?:v?\d[\d.]*)?\s*")
FIELD = re.compile(r":\w+[^:`]*:\s+|@\w+ \w+:?\s+")  # :param x: text
NUMPY_HEAD = re.compile(r"[\w*`][\w*`.,\s/-]{0,60}\s:(\s.{0,90})?$")  # x : array_like, optional
GOOGLE_HEAD = re.compile(r"[-*]?\s*[`*]{0,2}[A-Za-z_][\w.`*]*(\s*\([^)]*\))?\s*:\s+")  # x (int, optional): text
HEADING = re.compile(r"[A-Z]\w*( \w+)?:{1,2}$")  # Returns:
BULLET = re.compile(r"([-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
INLINE = [
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # Markdown links
    (re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^>]*>)?`"), r"\1"),  # :func:`~a.b`
    (re.compile(r"`+([^`]*?)`+_*"), r"\1"),
    (re.compile(r"(?<!\w)\*{1,2}(\w[^*]*)\*{1,2}(?!\w)"), r"\1"),
    (re.compile(r"<?https?://\S+|\[\d+\]_?|</?\w+[^>]*>"), ""),
    (re.compile(r"\s+"), " "),
]


def clean(docstring: str) -> list[str]:
    """The paragraphs of prose in a docstring; empty if there is none."""
    out: list[str] = []
    open_lines: list[str] = []
    depth, skipping, doctest = 0, -1, False

    def flush() -> None:
        text = plain(" ".join(open_lines))
        if is_prose(text):
            out.append(text)
        open_lines.clear()

    for raw in inspect.cleandoc(docstring).splitlines():
        line, indent = raw.strip(), len(raw) - len(raw.lstrip())
        doctest = bool(line) and (doctest or line.startswith((">>>", "In [", "```", "$ ")))
        if not line or doctest or (skipping >= 0 and indent > skipping):
            flush()
            continue
        skipping = indent if SKIP_BLOCK.match(line) else -1
        if RULE.match(line):
            open_lines.clear()  # the heading above it
            continue
        if indent != depth or starts_anew(line):
            flush()
        depth = indent
        if not is_furniture(line):
            open_lines.append(text_of(line))
    flush()
    return out


def starts_anew(line: str) -> bool:
    """Whether a paragraph ends before this line though no blank line says so."""
    return any(pattern.match(line) for pattern in (BULLET, FIELD, DIRECTIVE, NUMPY_HEAD, HEADING, GOOGLE_HEAD))


def is_furniture(line: str) -> bool:
    """Whether a line is no text: tables, headings, heads of parameters, directives with a block of their own."""
    if line.startswith(("|", "+-", "+=", "..", "@")):
        return not DIRECTIVE.match(line) or bool(SKIP_BLOCK.match(line))
    return bool(HEADING.match(line) or (NUMPY_HEAD.match(line) and not line.endswith(".")))


def text_of(line: str) -> str:
    """The line without the mark that it begins with (bullet, field, parameter name)."""
    for pattern in (DIRECTIVE, FIELD, BULLET, GOOGLE_HEAD):
        line = pattern.sub("", line, count=1) if pattern.match(line) else line
    return line


def plain(text: str) -> str:
    """Text without inline markup and addresses."""
    for pattern, replacement in INLINE:
        text = pattern.sub(replacement, text)
    return text.strip().replace("::", ":")


def is_prose(text: str) -> bool:
    """Whether a paragraph reads as English: five words or more, nearly all letters, no formulas or code."""
    if text.count(" ") < 4 or any(mark in text for mark in ("\\", "{", "}", "$", "|", "->", "==", "\ufffd")):
        return False
    letters = sum(character.isalpha() or character == " " for character in text)
    return letters > 0.88 * len(text) and text.isascii() and text.isprintable() and text[0].isalpha()


# ---- files, the split and the task

# What these packages are called besides by their names.
ALIASES = ("np", "plt", "mpl", "pd", "nx", "cpython", "scikit", "sklearn", "aten")


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


def split_by_name(documents: Iterable[Document], held_out: float) -> tuple[list[Document], list[Document]]:
    """(to train on, held out). All documents of one name (`median` of three packages, say) fall on the same side."""
    sides: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        sides[unit_hash(f"held out {document.name}") < held_out].append(document)
    return sides


def make_task(documents: Sequence[Document], wanted: dict[str, int], labels: int) -> dict[str, list[Document]]:
    """Rows for telling the `labels` commonest packages apart; `wanted`: how many {train, dev, test} over all labels.

    Each label has equally many, no name is on two sides, what gives a package away is removed. Of too few documents
    train gets its number and dev a third of the rest at most. Raises InputError if fewer than two packages have enough.
    """
    needed = max(1, 2 * wanted["train"] // labels)
    common = {label: n for label, n in Counter(d.label for d in documents).most_common(labels) if n >= needed}
    if len(common) < 2:
        raise InputError(
            f"{len(common)} packages with {needed} held-out documents or more; expected two: install more packages, or "
            "lower --train-examples"
        )
    train, dev, test = (wanted[side] // len(common) for side in ("train", "dev", "test"))
    left = min(common.values()) - train
    quota = {"train": train, "dev": min(dev, left // 3), "test": min(test, left - min(dev, left // 3))}
    rows: dict[str, list[Document]] = {side: [] for side in quota}
    taken: Counter[tuple[str, str]] = Counter()
    side_of: dict[str, str] = {}
    hidden = give_aways(common)
    for document in sorted(documents, key=lambda d: unit_hash(f"task {d.name}")):
        free = [side for side in quota if taken[side, document.label] < quota[side]]
        if document.label in common and free and (side := side_of.setdefault(document.name, free[0])) in free:
            taken[side, document.label] += 1
            rows[side].append(document._replace(text=" ".join(hidden.sub(" ", document.text).split())))
    return rows


def give_aways(labels: Iterable[str]) -> re.Pattern[str]:
    """Matches the packages' names, as import and as distribution, with all that dots and hyphens join to them."""
    distributions = metadata.packages_distributions()
    names = {name.lower() for label in labels for name in (label, *distributions.get(label, ()))}
    inside = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    return re.compile(
        rf"(?:\w+[.-])*\w*(?:{inside})\w*(?:[.-]\w+)*|\b(?:{'|'.join(ALIASES)})\b(?:\.\w+)*", re.IGNORECASE
    )
