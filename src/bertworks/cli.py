"""`bertworks VERB ...`: one command, a verb a function. Every import sits inside its verb, so that --help is instant."""

import sys
from collections.abc import Callable

Verb = Callable[[list[str]], None]


def tokenizer_train(argv: list[str]) -> None:
    """Train a vocabulary on text."""
    raise SystemExit("filled in by tokenizer.py's author")


VERBS: dict[str, Verb] = {
    "tokenizer train": tokenizer_train,
}


def main(argv: list[str] | None = None) -> None:
    """Find the verb, run it; bad input prints one message and exits with 1, wrong arguments exit with 2."""
    from .files import InputError

    argv = sys.argv[1:] if argv is None else argv
    for words in (2, 1):
        verb = VERBS.get(" ".join(argv[:words]))
        if verb:
            break
    else:
        print(_help())
        if argv and argv[0] not in ("-h", "--help"):
            print(f"\nunknown verb: {argv[0]}", file=sys.stderr)
            raise SystemExit(2)
        raise SystemExit(0)
    try:
        verb(argv[words:])
    except InputError as error:
        print(f"bertworks: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    lines = [f"  {name:<{width}}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(["usage: bertworks VERB [arguments]   (bertworks VERB --help explains one)", "", *lines])


if __name__ == "__main__":
    main()
