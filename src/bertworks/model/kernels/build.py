"""Compile the kernels on the machine that uses them.

The compiler's output is kept in the user's cache ($XDG_CACHE_HOME, else ~/.cache), under a name that changes with the
source, the compiler and the processor.
"""

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from .functions import Kernels

HERE = Path(__file__).parent
SOURCES = [HERE / "rows.c", HERE / "attention.c"]
HEADERS = [HERE / "kernels.h", HERE / "products.h"]
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
SECONDS = 60  # after which a compiler is given up
UNUSABLE = (OSError, subprocess.SubprocessError)  # of a compiler, a folder or a library


@cache
def load() -> Kernels | None:
    """The kernels, compiled unless this machine has done so before; None where that is not possible.

    They need Linux, a C compiler (gcc), and a processor with AVX-512 and bfloat16.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "gcc"), "gcc", "cc"))), None)
    openmp = _openmp_of_torch()
    if sys.platform != "linux" or compiler is None or openmp is None:
        return None
    with contextlib.suppress(*UNUSABLE):
        name = f"kernels-{_fingerprint(compiler, openmp)}.so"
        with contextlib.suppress(*UNUSABLE):
            return opened(compiled(_cache() / name, compiler, openmp))
        with tempfile.TemporaryDirectory(prefix="bertworks-") as folder:  # the system keeps what is loaded
            return opened(compiled(Path(folder) / name, compiler, openmp))
    return None


def opened(library: Path) -> Kernels | None:
    """The functions of a library; None if the system does not let this process use the processor's tiles."""
    functions = ctypes.CDLL(str(library))
    return Kernels(functions, load) if functions.prepare() == 0 else None


def compiled(library: Path, compiler: str, openmp: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """The library, compiled unless it is there. openmp: the library of threads that torch has loaded."""
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=f"{library.stem}-", dir=library.parent) as work:
            objects = [f"{source.stem}.o" for source in SOURCES]
            for command in (
                [compiler, *flags, "-fopenmp", "-c", *map(str, SOURCES)],
                [compiler, "-shared", *objects, openmp, "-lm", "-o", library.name],
            ):
                subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=SECONDS)
            os.replace(Path(work) / library.name, library)
    return library


def _cache() -> Path:
    cached = os.environ.get("XDG_CACHE_HOME")
    return (Path(cached) if cached else Path.home() / ".cache") / "bertworks"


def _openmp_of_torch() -> str | None:
    """GNU's library of OpenMP threads that torch has loaded: a second one would have threads of its own."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        paths = (line.split(maxsplit=5)[-1].strip() for line in maps)
        return next((path for path in paths if "gomp" in Path(path).name), None)
    return None


def _fingerprint(compiler: str, openmp: str) -> str:
    """What the machine code depends on: source, flags, compiler, processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=SECONDS).stdout
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        processor = sorted({line for line in info if line.startswith(("model name", "flags"))})
    source = [path.read_bytes() for path in (*SOURCES, *HEADERS)]
    return hashlib.blake2b(repr((source, FLAGS, version, processor, openmp)).encode(), digest_size=8).hexdigest()
