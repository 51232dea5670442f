"""Both pages on claims judge the same statements, 1 to 95, each once and with the same verdict."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
ENGLISH = ("right", "wrong", "half right", "not testable here")
KOREAN = ("맞음", "틀림", "절반만 맞음", "여기서 확인 불가")


def judged(page: str, words: tuple[str, ...]) -> list[list[int]]:
    """The statements in each verdict's section, in headings or table rows; the page's own count is checked."""
    text = (DOCS / page).read_text(encoding="utf-8")
    sections = {section.partition("\n")[0].lower(): section for section in re.split(r"^## ", text, flags=re.MULTILINE)}
    found = [re.findall(r"^(?:### ([\d, ]+)\. |\| (\d+) \|)", sections[word], re.MULTILINE) for word in words]
    numbers = [sorted(int(number) for pair in pairs for number in "".join(pair).split(",")) for pairs in found]
    counts = ", ".join(f"{word} {len(some)}" for word, some in zip(words, numbers, strict=True))
    assert f": {counts}." in " ".join(text.split()), page
    return numbers


def test_both_pages_judge_every_statement_alike():
    english = judged("claims.md", ENGLISH)
    assert sorted(n for some in english for n in some) == [*range(1, 96)] and english == judged("ko/claims.md", KOREAN)
