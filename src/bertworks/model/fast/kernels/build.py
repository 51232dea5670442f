"""Compile the kernels on the machine that uses them.

The compiler's output is kept in the user's cache ($XDG_CACHE_HOME, else ~/.cache), under a name that changes with the
source, the compiler and the processor.
"""

import contextlib
import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ....workers.openmp import library
from .functions import AttentionShape, Dropout, Kernels
from .signatures import functions

HERE = Path(__file__).parent
SOURCES = [HERE / "rows.c", HERE / "attention.c", HERE / "linear.c"]
HEADERS = [HERE / "kernels.h", HERE / "products.h"]
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
SECONDS = 60  # after which a compiler is given up
# of a compiler, a folder or a library; RuntimeError: no home folder
UNUSABLE = (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError)


@cache
def load() -> Kernels | None:
    """The kernels, compiled unless this machine has done so before; None where that is not possible.

    They need Linux, gcc ($CC, else gcc or cc), and a processor with AVX-512 and bfloat16.
    """
    openmp = library() if sys.platform == "linux" else None
    for command in (os.environ.get("CC", ""), "gcc", "cc"):
        compiler = shutil.which(command)
        with contextlib.suppress(*UNUSABLE):
            if compiler and openmp:
                return _load(compiler, openmp)
    return None


def _load(compiler: str, openmp: str) -> Kernels:
    """Those that this compiler makes, from the cache or else from a temporary folder."""
    name = f"kernels-{_fingerprint(compiler)}-{hashlib.blake2b(openmp.encode(), digest_size=4).hexdigest()}.so"
    with contextlib.suppress(*UNUSABLE):
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return opened(compiled(Path(cache) / "bertworks" / name, compiler, openmp))
    with tempfile.TemporaryDirectory(prefix="bertworks-") as folder:  # the system keeps what is loaded
        return opened(compiled(Path(folder) / name, compiler, openmp))


def opened(library: Path) -> Kernels:
    """The functions of a library. Raises OSError if the processor's tiles are kept from this process, or if somebody
    else could have written the library."""
    for path in (library, library.parent):
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(f"{path} belongs to another user, or others may write it")
    code = ctypes.CDLL(str(library))
    if code.prepare() != 0:
        raise OSError("the system does not let this process use the processor's tiles")
    name = library.stem.rpartition("-")[0]  # wherever torch is
    return Kernels(functions(code, SOURCES, {"Dropout": Dropout, "AttentionShape": AttentionShape}), name, load)


def compiled(library: Path, compiler: str, openmp: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """The library, compiled unless it is there. openmp: the library of threads that torch has loaded."""
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=f"{library.stem}-", dir=library.parent) as work:
            objects = [f"{source.stem}.o" for source in SOURCES]
            for command in (
                [compiler, *flags, "-fopenmp", "-c", *map(str, SOURCES)],
                [compiler, "-shared", *objects, openmp, "-lm", "-o", library.name],
            ):
                subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=SECONDS)
            os.chmod(Path(work) / library.name, 0o700)
            os.replace(Path(work) / library.name, library)
    return library


def _fingerprint(compiler: str) -> str:
    """What the code that computes depends on: source, flags, compiler, processor."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=SECONDS).stdout
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        processor = sorted({line for line in info if line.startswith(("model name", "flags"))})
    source = [path.read_bytes() for path in (*SOURCES, *HEADERS)]
    return hashlib.blake2b(repr((source, FLAGS, version, processor)).encode(), digest_size=8).hexdigest()
