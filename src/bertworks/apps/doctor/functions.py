"""Runs from Python, examined when they end: `bertworks.finetune` and `bertworks.pretrain`.

They are the functions of `finetuning/functions.py` and `pretraining/functions.py`, whose rooms do not know this one.
After a finished run they print what the command line prints, and return it with the results.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

from ...finetuning.functions import finetune as run_finetuning
from ...pretraining.functions import pretrain as run_pretraining
from ...reporting.arguments import with_argument_names
from ...reporting.results import RunResults
from .examination import Report, of_finetuning, of_pretraining
from .listing import print_warnings

P = ParamSpec("P")
Examine = Callable[[Path, Mapping[str, Any]], Report]  # of a run folder and the arguments of the call


def _examined(run: Callable[P, RunResults], examine: Examine) -> Callable[P, RunResults]:
    """`run`, followed by the examination of the run that it has finished."""
    signature = inspect.signature(run)

    @functools.wraps(run)
    def function(*given: P.args, **named: P.kwargs) -> RunResults:
        results = run(*given, **named)
        if not results.finished:
            return results
        arguments = signature.bind(*given, **named).arguments
        lines = print_warnings(lambda: examine(results.folder, arguments), quiet=bool(arguments.get("quiet")))
        return replace(results, findings=tuple(map(with_argument_names, lines)))

    return function


finetune = _examined(run_finetuning, lambda folder, _: of_finetuning(folder))
pretrain = _examined(run_pretraining, lambda folder, given: of_pretraining(folder, Path(given["corpus"])))
