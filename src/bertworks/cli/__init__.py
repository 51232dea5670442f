"""The command line, `bertworks VERB ...`: the table of verbs, and how a verb is found and called.

A verb is a module of its name, and a function of its last word: `compare` is compare.compare, `fill-mask` is
fill_mask.fill_mask, `tokenizer train` is tokenizer.train. A new verb needs that function and a line in `GROUPS`.
Modules are imported when their verb is called, so that `--help` is instant. In reading order: this file; ending.py
(exit statuses, errors, Ctrl-C); arguments.py (parsing, what several verbs share); the verbs.
"""

import difflib
import importlib
import io
import sys
import textwrap
from collections.abc import Callable
from typing import NoReturn

from .._version import __version__
from .ending import DONE, EXIT_STATUSES, WRONG_ARGUMENTS, explained_failures

GROUPS = {
    "the whole road": {
        "demo": "Train a small BERT on this machine's text and measure it.",
    },
    "text": {
        "tokenizer train": "Train a vocabulary on text.",
        "tokenizer check": "Check whether a vocabulary fits a text.",
        "tokenizer extend": "Add words to a WordPiece vocabulary and to its model.",
        "corpus build": "Tokenize text into a corpus store.",
        "corpus show": "Show what a corpus store contains.",
    },
    "pre-training": {
        "pretrain": "Pre-train an encoder on a corpus store.",
        "distill": "Distil a pre-trained encoder into a smaller one.",
        "static": "Train or read static word vectors, a baseline.",
        "concat": "Join a left-to-right and a right-to-left encoder.",
        "convert": "Convert a Hugging Face or TensorFlow checkpoint.",
    },
    "fine-tuning": {
        "finetune": "Fine-tune on a known task or on your own table.",
        "evaluate": "Evaluate a fine-tuned model on development rows.",
        "compare": "Compare two fine-tuned models on the same rows.",
        "study": "Run variants of a recipe side by side.",
        "study report": "Print and write the tables of finished studies.",
        "submit": "Write the submission for GLUE's leaderboard.",
    },
    "using a model": {
        "export": "Export a model to ONNX, or compare engines.",
        "predict": "Predict labels, tags or answers for a file.",
        "fill-mask": "Predict the tokens at [MASK].",
        "next-sentence": "Compute whether one text follows another.",
        "features": "Write the vectors of texts to a file.",
        "serve": "Serve trained folders over HTTP.",
        "explain": "Show how a model processes a text, as an HTML page.",
        "probe word": "Compare a word's vectors in several sentences, by layer.",
        "probe neighbours": "Find the nearest contexts of a word in a corpus.",
        "probe particles": "Measure what Korean nouns and particles account for.",
        "probe attention": "Write the attention weights of every head, as numbers or as a page.",
        "probe heads": "Measure each attention head by switching it off.",
        "probe layers": "Measure each layer by linear classifiers.",
    },
    "looking up": {
        "doctor": "Examine a run, store, model, table or machine.",
        "tasks": "List the tasks that fine-tuning knows.",
        "recipes": "List the recipes that come with bertworks, or print one.",
        "schema": "Print the JSON Schema of recipes, results or predictions.",
        "plot": "Draw the curves of runs, or the figure of a study.",
        "track": "Write the logs of runs for TensorBoard, MLflow or W&B.",
    },
}
VERBS = {verb: line for group in GROUPS.values() for verb, line in group.items()}
FAMILIES = {verb.split()[0] for verb in VERBS if " " in verb} - {*VERBS}  # no verb alone: tokenizer, corpus, probe

# These verbs make nothing but output: they end when its reader closes it. The other verbs finish their work.
PRINTERS = {
    "tokenizer check",
    "corpus show",
    "tasks",
    "recipes",
    "schema",
    "fill-mask",
    "next-sentence",
    "predict",
    "doctor",
}


def function_of(verb: str) -> Callable[[list[str]], None]:
    """Import the verb's module and return its function, which takes the arguments behind the verb."""
    words = verb.replace("-", "_").split()
    found: Callable[[list[str]], None] = getattr(importlib.import_module(f".{words[0]}", __name__), words[-1])
    return found


def main(argv: list[str] | None = None) -> None:
    """Find the verb and run it. ending.py lists the exit statuses."""
    argv = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be UTF-8
    words = next((words for words in (2, 1) if " ".join(argv[:words]) in VERBS), 0)
    verb = " ".join(argv[:words])
    with explained_failures(verb in PRINTERS or argv == ["--version"]):
        if argv == ["--version"]:
            return _print_version()
        _call(verb, argv[words:]) if words else _explain(argv)


def _call(verb: str, argv: list[str]) -> None:
    """Run the verb. Raises InputError for a flag that is given twice."""
    from .arguments import refuse_repeated

    refuse_repeated(argv, verb)
    function_of(verb)(argv)


def _print_version() -> None:
    """Print the version, and the commit if this is a checkout."""
    from ..reporting.run_files import commit

    found = commit()
    print(f"bertworks {__version__}" + (f" (commit {found})" if found else ""))


def _explain(argv: list[str]) -> NoReturn:
    """Print the help of all verbs or of those that begin with one word; for an unknown verb the nearest ones."""
    first = argv[0] if argv else "--help"
    if first in ("-h", "--help"):
        print(_help())
        raise SystemExit(DONE)
    subverbs = {verb: line for verb, line in VERBS.items() if verb.startswith(f"{first} ")}
    if subverbs and any(word in ("-h", "--help") for word in argv[1:]):
        usage = [f"usage: bertworks {first} VERB [arguments]", "", f"`bertworks {first} VERB --help` explains one:", ""]
        print("\n".join(usage + _listed(subverbs)))
        raise SystemExit(DONE)
    asked = " ".join(argv[:2]) if subverbs else first  # `probe` alone is no verb either
    words = {verb.removeprefix(f"{first} "): verb for verb in subverbs or VERBS}
    near = difflib.get_close_matches(asked.split()[-1], words, 1) if asked not in FAMILIES else []
    other = "expected one of" if subverbs else "`bertworks --help` lists the verbs"
    hint = f"did you mean {words[near[0]]}?" if near else other
    print(f"unknown verb: {asked}; {hint}", *_listed(subverbs), sep="\n", file=sys.stderr)
    raise SystemExit(WRONG_ARGUMENTS)


def _listed(verbs: dict[str, str]) -> list[str]:
    """Return a line for each verb, with its line of help."""
    width = max(map(len, VERBS)) + 2
    return [f"  {verb:<{width}}{line}" for verb, line in verbs.items()]


def _help() -> str:
    """Return the text of `bertworks --help`, at most 80 columns wide."""
    lines = ["usage: bertworks VERB [arguments]", "", "`bertworks VERB --help` explains one verb. The verbs:"]
    for heading, verbs in GROUPS.items():
        lines += ["", heading, *_listed(verbs)]
    lines += ["", "exit status"]
    for status, meaning in EXIT_STATUSES.items():
        lines += textwrap.wrap(meaning, 80, initial_indent=f"  {status:<5}", subsequent_indent=" " * 7)
    return "\n".join(lines)
