"""Both pages on claims judge the same statements, 1 to 95, each once and with the same verdict."""

import re
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
ENGLISH = ("right", "wrong", "half right", "not testable here")
KOREAN = ("맞음", "틀림", "절반만 맞음", "여기서 확인 불가")


def verdicts(page: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    """Number and verdict of each statement, in the order of the page; the page's own count of verdicts is checked."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| \*\*([^*|]+)\*\*[^|]* \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    counts = Counter(verdict for _, verdict in rows)
    assert ": " + ", ".join(f"{word} {counts[word]}" for word in words) + ".\n" in text, page
    return [(int(number), words.index(verdict)) for number, verdict in rows]


def test_both_pages_judge_every_statement_alike():
    english = verdicts("claims.md", ENGLISH)
    assert [number for number, _ in english] == [*range(1, 96)]
    assert verdicts("ko/claims.md", KOREAN) == english
