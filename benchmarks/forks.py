"""A process that has imported everything and has one thread, and its forked children: for hostile.py and kills.py."""

import ast
import contextlib
import functools
import gc
import importlib
import inspect
import json
import os
import pkgutil
import shlex
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bertworks.cli import COMMANDS, main

IMPORTED = """
tyro tyro._backends tyro.constructors typeguard rich.table matplotlib.backends.backend_agg pyarrow.parquet scipy.stats
sklearn.metrics sentencex zstandard tokenizers tomli_w gensim.models torch._inductor torch.profiler ctypes.util
encodings.utf_8_sig encodings.latin_1 encodings.utf_16 PIL.PngImagePlugin onnx onnxscript torch.onnx
torch.utils.tensorboard pandas python_calamine datasets
"""  # what commands import inside of functions


@functools.cache
def prepare() -> None:
    """Import all that a command may import, and leave one thread: a fork then costs little and is safe."""
    vars(inspect)["ast"] = SimpleNamespace(**vars(ast) | {"parse": functools.cache(ast.parse)})  # for parsing arguments
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "COLUMNS": "200"}
    import torch

    import bertworks

    modules = (one.name for one in pkgutil.walk_packages(bertworks.__path__, "bertworks."))
    for name in [*(name for name in modules if ".__" not in name), *IMPORTED.split()]:  # one that runs the command line
        with contextlib.suppress(ImportError):  # of an extra
            importlib.import_module(name)
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        for command in COMMANDS:  # what argument parsing keeps for the next time
            with contextlib.suppress(SystemExit):
                main([*command.split(), "--help"])
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


def call(command: str) -> None:
    """Run a line of `bertworks` in this process. Raises SystemExit if it fails."""
    try:
        main(shlex.split(command))
    except SystemExit as error:
        if error.code:
            raise


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a progress file, which may be missing."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):  # the last line of a killed program
            yield json.loads(line)
