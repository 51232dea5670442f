"""Fonts of pictures: matplotlib's font fallback with fonts of East Asia, and texts that are never read as formulas."""

import contextlib
import warnings
from collections.abc import Iterator
from functools import cache

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

# Fonts with the letters that DejaVu Sans lacks, in order of preference.
NOTO = ("Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans KR", "Source Han Sans KR")
KOREAN = ("Pretendard", "NanumGothic", "NanumBarunGothic", "Malgun Gothic", "Apple SD Gothic Neo", "AppleGothic")
OTHERS = ("UnDotum", "WenQuanYi Zen Hei", "Hiragino Sans", "Yu Gothic", "Microsoft YaHei", "Arial Unicode MS")
FALLBACKS = (*NOTO, *KOREAN, *OTHERS)


@contextlib.contextmanager
def plain_texts(figure: Figure) -> Iterator[None]:
    """Inside the block a figure draws texts literally, letters that its font lacks in a fallback, without warnings."""
    families = ["sans-serif", *fallbacks()]
    texts: list[Text] = figure.findobj(Text)  # type: ignore[assignment]
    for text in texts:
        text.set_parse_math(False)
        text.set_fontfamily(families)
    with matplotlib.rc_context({"font.family": families, "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # of a letter that no fallback has
        yield


@cache
def fallbacks() -> list[str]:
    """The installed fonts of FALLBACKS."""
    if not any(name in FALLBACKS for name in font_manager.get_font_names()):
        for path in font_manager.findSystemFonts():  # installed after matplotlib made its list
            with contextlib.suppress(Exception):  # a damaged font
                font_manager.fontManager.addfont(path)
    installed = font_manager.get_font_names()
    return [name for name in FALLBACKS if name in installed]
