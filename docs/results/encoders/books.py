"""Books in Markdown as plain text: without headings and rules; emphasis and links are reduced to their words.

    python docs/results/encoders/books.py books books-plain

writes a .txt for every .md, in folders of the same names. A text that is there is replaced.
"""

import re
import sys
from pathlib import Path

LEFT_OUT = re.compile(r"#|[-*_]{3,}\s*$")  # beginnings of headings; rules
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
EMPHASIS = re.compile(r"(?<!\w)([*_]{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)")
QUOTE = re.compile(r"^>\s?", re.MULTILINE)
ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!-])")


def plain_text(markdown: str) -> str:
    """The words of a book. Emphasis ends in the line where it begins."""
    text = "\n".join(line for line in markdown.splitlines() if not LEFT_OUT.match(line))
    text = EMPHASIS.sub(r"\2", LINK.sub(r"\1", text))
    return ESCAPE.sub(r"\1", QUOTE.sub("", text))


def main(source: Path, target: Path) -> None:
    """Write every book of `source` below `target`."""
    for path in sorted(source.rglob("*.md")):
        out = target / path.relative_to(source).with_suffix(".txt")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(plain_text(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
