"""Offsets of tokens in the caller's text: whole letters, no spaces."""

import re
import unicodedata

Offsets = list[tuple[int, int]]
_SPACES = frozenset(" \t")  # a line break is a token of its own, or separates words
_CONTINUES = re.compile("[^\\w\\s\\x00-\\x7f]|[\u1160-\u11ff\ud7b0-\ud7fb]")  # some of these continue a letter


def continues_letter(char: str) -> bool:
    """Whether a character is part of the letter before it: a combining mark, a vowel or final consonant of Hangul.

    The library gives no token to marks that it strips, nor to letters that it composes (Hangul from jamo).
    """
    return unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"


def with_whole_letters(text: str, offsets: Offsets) -> Offsets:
    """Offsets whose ends include all that continues a token's last letter, up to the next token."""
    if not offsets or not _CONTINUES.search(text):
        return offsets
    out = []
    for (start, end), limit in zip(offsets, [*(start for start, _ in offsets[1:]), len(text)], strict=True):
        while end < limit and continues_letter(text[end]):
            end += 1
        out.append((start, end))
    return out


def without_spaces(text: str, offsets: Offsets) -> Offsets:
    """Offsets without the spaces that tokens begin or end with; those of a token of spaces alone are empty."""
    out = []
    for start, end in offsets:
        while start < end and text[start] in _SPACES:
            start += 1
        while start < end and text[end - 1] in _SPACES:
            end -= 1
        out.append((start, end))
    return out
