"""The command line, `bertworks COMMAND ...`: the table of commands, and how a command is found and called.

A command is a function of the module of its first word, with the name of its last word: `compare` is compare.compare,
`tokenizer train` is tokenizer.train, `predict fill-mask` is predict.fill_mask. A new command needs that function and a
line in `COMMANDS`. Modules are imported when their command is called, so that `--help` is instant. In reading order:
this file; exit_status.py (exit statuses, errors, Ctrl-C); arguments.py (parsing, shared arguments); the commands.
"""

import difflib
import importlib
import io
import sys
from collections.abc import Callable
from typing import NoReturn

from .._version import __version__
from .exit_status import DONE, WRONG_ARGUMENTS, explained_failures

COMMANDS = {
    "demo": "Try an encoder on this machine's text and pre-train one.",
    "doctor": "Examine a run, corpus, model, table or this machine.",
    "models": "List the downloaded and bundled models.",
    "recipes": "List the recipes that come with bertworks, or print one.",
    "recipes tasks": "List the tasks that fine-tuning supports.",
    "tokenizer train": "Train a vocabulary on text.",
    "tokenizer check": "Check whether a vocabulary fits a text.",
    "corpus build": "Tokenize text into a corpus store.",
    "corpus show": "Show what a corpus store contains.",
    "pretrain": "Pre-train an encoder on a corpus store.",
    "distill": "Distil a pre-trained encoder into a smaller one.",
    "convert": "Convert a Hugging Face or TensorFlow checkpoint.",
    "finetune": "Fine-tune on a built-in task or on your own table.",
    "evaluate": "Evaluate a fine-tuned model on development examples.",
    "compare": "Compare two fine-tuned models on the same examples.",
    "study run": "Train the variants of an experiment, and compare them.",
    "study sweep": "Fine-tune with every setting of a grid.",
    "study baseline": "Score a linear model on the same examples.",
    "study report": "Print and write the tables of finished studies.",
    "study plot": "Draw the curves of runs.",
    "predict": "Predict labels, tags or answers for a file.",
    "predict fill-mask": "Predict the tokens at [MASK].",
    "predict next-sentence": "Compute whether one text follows another.",
    "features": "Compute the vectors of texts.",
    "probe explain": "Show how a model processes a text, as an HTML page.",
    "probe word": "Compare a word's vectors in several sentences, by layer.",
    "probe neighbours": "Find the nearest contexts of a word in a corpus.",
    "probe heads": "Measure each attention head by switching it off.",
    "probe layers": "Measure each layer by linear classifiers.",
    "export": "Export a model to ONNX, or compare inference engines.",
    "serve": "Serve models over HTTP, with a web page.",
}
FAMILIES = {  # first words that are no command alone
    "tokenizer": "Train or check a vocabulary.",
    "corpus": "Tokenize text into a corpus store, or show one.",
    "study": "Run an experiment of many runs, and compare them.",
    "probe": "Inspect a model: attention, words, layers, heads.",
}
GROUPS = {
    "first steps": ("demo", "doctor", "models", "recipes"),
    "text and pre-training": ("tokenizer", "corpus", "pretrain", "distill", "convert"),
    "fine-tuning": ("finetune", "evaluate", "compare", "study"),
    "using a model": ("predict", "features", "probe", "export", "serve"),
}


def function_of(command: str) -> Callable[[list[str]], None]:
    """Import the command's module and return its function, which takes the arguments behind the command."""
    words = command.replace("-", "_").split()
    function: Callable[[list[str]], None] = getattr(importlib.import_module(f".{words[0]}", __name__), words[-1])
    return function


def main(argv: list[str] | None = None) -> None:
    """Find the command and run it. exit_status.py lists the exit statuses."""
    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be UTF-8
    words = next((words for words in (2, 1) if " ".join(argv[:words]) in COMMANDS), 0)
    command = " ".join(argv[:words])
    with explained_failures():
        if argv == ["--version"]:
            return print(f"bertworks {__version__}")
        function_of(command)(argv[words:]) if words else _explain(argv)


def subcommands(first: str) -> dict[str, str]:
    """The commands of two words that begin with this one."""
    return {command: line for command, line in COMMANDS.items() if command.startswith(f"{first} ")}


def _explain(argv: list[str]) -> NoReturn:
    """Print the help of all commands or of one family; for an unknown command the nearest one."""
    first = argv[0] if argv else "--help"
    if first in ("-h", "--help"):
        print(_help())
        raise SystemExit(DONE)
    if first in FAMILIES and (len(argv) == 1 or {"-h", "--help"} & {*argv}):
        print(f"usage: bertworks {first} COMMAND [arguments]\n\n{FAMILIES[first]}\n")
        print("\n".join(_listed(subcommands(first))), f"`bertworks {first} COMMAND --help` explains one.", sep="\n\n")
        raise SystemExit(DONE)
    words = " ".join(argv[: 2 if first in FAMILIES else 1])
    near = difflib.get_close_matches(words, [*COMMANDS, *FAMILIES], 1, 0.75)
    hint = f"did you mean `bertworks {near[0]}`?" if near else "`bertworks --help` lists the commands"
    print(f"no command {words}; {hint}", file=sys.stderr)
    raise SystemExit(WRONG_ARGUMENTS)


def _listed(commands: dict[str, str]) -> list[str]:
    """Return a line for each command, with its line of help."""
    width = max(map(len, commands)) + 2
    return [f"  {command:<{width}}{line}" for command, line in commands.items()]


def _help() -> str:
    """Return the text of `bertworks --help`: at most 23 lines of 80 columns, a screen with its prompt."""
    lines = ["usage: bertworks COMMAND [arguments]   (COMMAND --help explains one)"]
    for heading, names in GROUPS.items():
        lines += [f"{heading}:", *_listed({f"{name:<9}": FAMILIES.get(name) or COMMANDS[name] for name in names})]
    return "\n".join(lines)
