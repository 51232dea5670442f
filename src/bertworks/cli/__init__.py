"""`bertworks VERB ...`: one command, a verb a function. Each verb imports what it needs, so that --help is instant."""

import contextlib
import difflib
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from .. import __version__
from .bridges import convert, tokenizer_extend
from .inside import features, probe_attention, probe_heads, probe_layers, probe_neighbours, probe_word
from .streams import lasting_output, to_nowhere
from .studies import study
from .tasks import recipes, submit, tasks
from .texts import corpus_build, corpus_show, tokenizer_check, tokenizer_train
from .training import compare, concat, distill, evaluate, finetune, pretrain, static
from .using import demo, fill_mask, plot, predict

Verb = Callable[[list[str]], None]

VERBS: dict[str, Verb] = {
    "demo": demo,
    "tokenizer train": tokenizer_train,
    "tokenizer check": tokenizer_check,
    "tokenizer extend": tokenizer_extend,
    "corpus build": corpus_build,
    "corpus show": corpus_show,
    "pretrain": pretrain,
    "distill": distill,
    "concat": concat,
    "static": static,
    "finetune": finetune,
    "evaluate": evaluate,
    "compare": compare,
    "study": study,
    "tasks": tasks,
    "recipes": recipes,
    "submit": submit,
    "fill-mask": fill_mask,
    "predict": predict,
    "plot": plot,
    "features": features,
    "convert": convert,
    "probe word": probe_word,
    "probe neighbours": probe_neighbours,
    "probe attention": probe_attention,
    "probe heads": probe_heads,
    "probe layers": probe_layers,
}


# verbs that make nothing but what they print: they end when its reader has seen enough; all others finish their work
PRINTERS = {"tokenizer check", "corpus show", "tasks", "recipes", "fill-mask", "predict"}

EXITS = """\
exit status: 0  done
             1  bad input, or a run that failed; one message says which
             2  wrong arguments
             3  a run was stopped (Ctrl-C, SIGTERM) and saved, or other processes still work on it; rerun the command
           130  Ctrl-C ended any other command; whatever it had finished is kept"""


def main(argv: list[str] | None = None) -> None:
    """Find the verb and run it. Exit statuses: EXITS."""
    from ..files import InputError

    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    if argv == ["--version"]:
        from ..reporting.run_files import commit

        found = commit()
        print(f"bertworks {__version__}" + (f" (commit {found})" if found else ""))
        return
    words = next((words for words in (2, 1) if " ".join(argv[:words]) in VERBS), 0)
    name = " ".join(argv[:words])
    with lasting_output(stdout=name not in PRINTERS), _noted_interrupt() as noted:
        try:
            try:
                VERBS[name](argv[words:]) if words else _explain(argv)
            finally:
                sys.stdout.flush()  # here, where a reader that went away is understood
        except InputError as error:
            print(f"bertworks: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        except OSError as error:  # a full disk, a folder that may not be written: nothing half-written is left in place
            if isinstance(error, BrokenPipeError) and name in PRINTERS:  # `head`, say, has seen enough
                to_nowhere(sys.stdout)
                raise SystemExit(0) from None
            print(f"bertworks: {error.filename or 'standard output'}: {error.strerror or error}", file=sys.stderr)
            raise SystemExit(1) from None
        except (KeyboardInterrupt, Exception) as error:
            if not noted and not isinstance(error, KeyboardInterrupt):
                raise
            print("\nstopped", file=sys.stderr)
            raise SystemExit(130) from None


@contextlib.contextmanager
def _noted_interrupt() -> Iterator[list[int]]:
    """A list that has an item once Ctrl-C was typed: a library may turn it into another error while it is imported."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _explain(argv: list[str]) -> NoReturn:
    """Print the help; of an unknown verb also the nearest one."""
    print(_help())
    if not argv or argv[0] in ("-h", "--help"):
        raise SystemExit(0)
    several = any(verb.startswith(f"{argv[0]} ") for verb in VERBS)  # `probe` alone is none either
    asked = " ".join(argv[: 1 + several])
    begun = [verb for verb in VERBS if verb.startswith(f"{asked} ")]
    near = begun or difflib.get_close_matches(asked, VERBS, 1)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    print(f"\nunknown verb: {asked}{hint}", file=sys.stderr)
    raise SystemExit(2)


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:<{width}}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    usage = "usage: bertworks VERB [arguments]   (bertworks VERB --help explains one)"
    return "\n".join([usage, "", *lines, "", *EXITS.splitlines()])
