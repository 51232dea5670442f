"""A process that has imported everything and has one thread, and its forked children: for hostile.py and kills.py."""

import contextlib
import gc
import importlib
import os
import pkgutil
import traceback
from collections.abc import Callable
from pathlib import Path

from bertworks.cli import COMMANDS, main

IMPORTED = [
    "tyro",
    "tyro._backends",
    "tyro.constructors",
    "typeguard",
    "rich.table",
    "matplotlib.backends.backend_agg",
    "pyarrow.parquet",
    "scipy.stats",
    "sklearn.metrics",
    "sentencex",
    "zstandard",
    "tokenizers",
    "tomli_w",
    "gensim.models",
    "torch._inductor",
    "torch.profiler",
    "ctypes.util",
    "encodings.utf_8_sig",
    "encodings.latin_1",
    "encodings.utf_16",
    "PIL.PngImagePlugin",
    "onnx",
    "onnxscript",
    "torch.onnx",
    "torch.utils.tensorboard",
    "pandas",
    "python_calamine",
    "datasets",
]


def prepare() -> None:
    """Import all that a command may import, and leave one thread: a fork then costs little and is safe."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "COLUMNS": "200"}
    import torch

    import bertworks

    for module in pkgutil.walk_packages(bertworks.__path__, "bertworks."):
        if ".__" not in module.name:  # one that runs the command line
            with contextlib.suppress(ImportError):  # of an extra
                importlib.import_module(module.name)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for verb in COMMANDS:  # what argument parsing keeps for the next time
            with contextlib.suppress(SystemExit):
                main([*verb.split(), "--help"])
    gc.freeze()


def forked(work: Callable[[], None]) -> int:
    """Call `work` in a child; returns its process id. What fails there is printed, and its exit status is 1."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def make_base(folder: Path, part: str = "whole") -> Path:
    """The valid inputs, or the exported folder, made in a child, so that this process stays with one thread."""

    def quietly() -> None:
        from hostile_base import make, make_export

        with open(os.devnull, "w") as no, contextlib.redirect_stdout(no), contextlib.redirect_stderr(no):
            (make if part == "whole" else make_export)(folder)

    if not (folder / part).exists() and os.waitpid(forked(quietly), 0)[1]:
        raise SystemExit(f"{folder}: the valid inputs could not be made")
    return folder
