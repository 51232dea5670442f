"""Hard-wrapped text: how it is recognised, and how its lines are joined.

Widths are in columns: a Hangul syllable or an ideograph fills two.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

FULL, LONGEST = 40, 100  # columns of a line that may be full; characters of a line that is a whole paragraph
RAGGED = 16  # columns by which the lines of wrapped text differ
HEAD, HEAD_CHARS = 1_000, 1 << 20  # lines and characters that are looked at before lines are joined
ENDS = ".,?!)]}…。」』》〉"  # after which a word begins
_HANGUL = re.compile("[가-힣]")


def columns(text: str) -> int:
    """The width of a text."""
    return len(text) + sum(unicodedata.east_asian_width(char) in "WF" for char in text)


def looks_wrapped(lines: Sequence[str]) -> bool:
    """Whether these lines, without white space at their ends, have nearly one width and stop in mid-sentence."""
    widths = {line: columns(line) for line in lines}
    full = [line for line in lines if widths[line] > FULL]
    wrapped = [line for line in full if len(line) < LONGEST and (line[-1].isalpha() or line[-1] == ",")]
    if len(full) < 20 or len(wrapped) <= 0.6 * len(full):
        return False
    usual = sorted(widths[line] for line in wrapped)[len(wrapped) * 9 // 10]
    return sum(abs(widths[line] - usual) <= RAGGED for line in wrapped) > 0.6 * len(wrapped)


def joined_paragraphs(lines: Iterable[str], longest: int) -> Iterator[str]:
    """The paragraphs of hard-wrapped text, which blank lines separate, each as one line.

    Lines are joined by a space; Korean lines that were filled to their last column without one if the cut is inside a
    word. If no line begins with white space, the width does not always say it; then words that the text
    has inside lines decide. A paragraph of more than `longest` characters is cut, but remains longer than that.
    """
    lines, head, size = iter(lines), list[str](), 0
    for line in itertools.islice(lines, HEAD):
        head.append(line)
        size += len(line)
        if size > HEAD_CHARS:
            break
    measure, width = _filled(head)
    stripped = not any(line[:1].isspace() for line in head if line.strip())
    words = {word for line in head for word in line.split()[1:-1]} if width and stripped else None
    for blank, group in itertools.groupby(itertools.chain(head, lines), key=lambda line: not line.strip()):
        if not blank:
            yield _joined([*itertools.islice(group, longest + 1)], measure, width, words)


def _filled(lines: Iterable[str]) -> tuple[Callable[[str], int], int]:
    """How lines are measured, and the size to which Korean ones are filled; 0 if they are wrapped between words."""
    full: list[str] = []
    for blank, group in itertools.groupby(lines, key=lambda line: not line.strip()):
        full += [] if blank else [*group][:-1]
    if len(full) < 5 or 2 * sum(bool(_HANGUL.search(line[-1:])) for line in full) < len(full):
        return len, 0
    for measure in (len, columns):
        sizes = [measure(line) for line in full]
        counts = Counter(sizes)
        near = 2 if measure is len else 3  # sizes of full lines: without a blank at the end, or half a wide character
        filled = {size: sum(counts[size - i] for i in range(near)) for size in counts}
        width = max(filled, key=lambda size: (filled[size], size))  # a line may be longer: a URL
        if filled[width] >= 0.9 * len(sizes):
            return measure, width
    return len, 0


def _joined(lines: Sequence[str], measure: Callable[[str], int], width: int, words: Set[str] | None) -> str:
    """words: those inside lines; None if white space at the beginnings of lines was not stripped."""
    parts = [lines[0].strip()] if lines else []
    blank = 0  # of the line's beginning, stripped
    for i, (line, following) in enumerate(itertools.pairwise(lines)):
        missing = width - measure(line) - blank
        full = missing == 0 or (missing == 1 and measure is columns and columns(following[0]) == 2)
        spaced = line[-1].isspace() or following[0].isspace()
        inside_word = bool(width) and not spaced and full
        if words is not None and width and not spaced:
            free = width - measure(following) if i + 2 < len(lines) else 1
            blanks = range(free + 1) if measure is columns else range(max(0, free - 1), free + 1)
            inside_word = _is_cut(line, following, words, full, blanks) or (
                0 <= missing <= 2 and line.split()[-1] + following.split()[0] in words
            )
        blank = int(full and not inside_word and not spaced)
        parts += ["" if inside_word else " ", following.strip()]
    return "".join(parts)


def _is_cut(line: str, following: str, words: Set[str], full: bool, blanks: range) -> bool:
    """Whether stripped lines cut a word. blanks: how many may have been stripped from the beginning of the second."""
    if not full or line[-1] in ENDS or 0 not in blanks:
        return False
    end, beginning = line.split()[-1], following.split()[0]
    parts = {part for part in (end, beginning) if part in words}
    return 1 not in blanks or not ({end, beginning} <= parts or any(len(part) > 1 for part in parts))
