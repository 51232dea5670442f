"""Fonts of pictures: every letter is drawn in an installed font that has it, and every text literally.

matplotlib draws a box for a letter that its font lacks, even if another installed font has it, and reads text between
two dollar signs as a formula. Names of runs, words and labels need neither.
"""

import contextlib
import unicodedata
import warnings
from collections.abc import Iterator
from functools import cache

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

# Fonts with many of the letters of East Asia, in the order of choice: sans serif, of regular weight. Others come after.
NOTO = ("Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans KR", "Source Han Sans KR")
KOREAN = ("Pretendard", "NanumGothic", "NanumBarunGothic", "Malgun Gothic", "Apple SD Gothic Neo", "AppleGothic")
OTHERS = ("UnDotum", "WenQuanYi Zen Hei", "Hiragino Sans", "Yu Gothic", "Microsoft YaHei", "Arial Unicode MS")
PREFERRED = (*NOTO, *KOREAN, *OTHERS)
PLACEHOLDERS = "Last Resort"  # a font that has a box for every letter


@contextlib.contextmanager
def plain_texts(figure: Figure) -> Iterator[None]:
    """Inside the block a figure draws texts literally, each letter in a font that has it, without warnings."""
    texts: list[Text] = figure.findobj(Text)  # type: ignore[assignment]
    families = ["sans-serif", *fallbacks(frozenset("".join(text.get_text() for text in texts)))]
    for text in texts:
        text.set_parse_math(False)
        text.set_fontfamily(families)
    with matplotlib.rc_context({"font.family": families, "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # of a letter that no installed font has
        yield


def fallbacks(letters: frozenset[str]) -> list[str]:
    """Names of installed fonts for the letters that matplotlib's own font lacks; [] if it lacks none."""
    default = font_manager.findfont(font_manager.FontProperties(family=["sans-serif"]))
    missing = {ord(letter) for letter in letters if letter.isprintable()} - _letters(str(default))
    chosen = []
    for name, path in _candidates() if missing else ():
        if found := missing & _letters(path):
            chosen.append(name)
            missing -= found
        if not missing:
            break
    return chosen


def text_width(text: str) -> int:
    """Width of a text in columns, roughly: East Asian letters are twice as wide as Latin ones."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _candidates() -> list[tuple[str, str]]:
    """(name, file) of upright fonts of regular weight, the preferred ones first."""
    _add_new()
    fonts = {
        entry.name: entry.fname
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and entry.weight in (400, "normal", "regular") and PLACEHOLDERS not in entry.name
    }
    rank = {name: number for number, name in enumerate(PREFERRED)}
    return sorted(fonts.items(), key=lambda font: (rank.get(font[0], len(rank)), font[0]))


@cache
def _add_new() -> None:
    """Tell matplotlib of fonts that were installed after it made its list."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:
            with contextlib.suppress(Exception):  # a damaged font is no concern of a picture
                font_manager.fontManager.addfont(path)


@cache
def _letters(path: str) -> frozenset[int]:
    """The code points that a font has."""
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
