"""A curve in text: Braille dots, two by four in a character."""

from collections.abc import Sequence

BLANK = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a character
BARS = "▁▂▃▄▅▆▇█"


def curve(points: Sequence[tuple[float, float]], width: int, height: int, last: float) -> list[str]:
    """The lines of text that draw (x, y) points, x from 0 to `last`, y from the lowest to the highest of them."""
    values = [y for _, y in points]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    columns: dict[int, list[float]] = {}
    for x, y in points:
        columns.setdefault(min(2 * width - 1, int(2 * width * x / last)), []).append(y)
    cells = [[BLANK] * width for _ in range(height)]
    before = None
    for column in range(2 * width):
        if column not in columns:
            continue
        found = columns[column]
        row = round((high - sum(found) / len(found)) / span * (4 * height - 1))
        start = row if before is None else before + (row > before) - (row < before)
        for dot in range(min(start, row), max(start, row) + 1):
            cells[dot // 4][column // 2] |= DOTS[dot % 4][column % 2]
        before = row
    return ["".join(map(chr, line)) for line in cells]


def sparkline(values: Sequence[float], width: int) -> str:
    """Block characters as high as the values, at most `width` of them."""
    size = max(1, -(-len(values) // width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    return "".join(BARS[int((value - low) / ((high - low) or 1.0) * 7.999)] for value in means)


def bar(share: float, width: int) -> str:
    """A bar of eighths of a character for a share of 0 to 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
