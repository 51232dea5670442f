"""The predicted seconds of a batch: a + b * tokens, fitted to the batches that were measured.

A batch costs something whatever its size, so tokens a second alone would misjudge a full queue by the small batches
before it. Small batches may come for hours, and must not make the large ones forgotten: each size, a power of two, has
means of its own, in which older batches count ever less, and the line is fitted to these means.
"""

import math

KEEP = 0.9  # the weight of older batches of a size at each new one
APART = 1.2  # how many times the smallest size the largest must be, so that the line has a slope


class Pace:
    """How long batches of one kind take."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[float, float, float]] = {}  # weight, mean tokens and mean seconds by power of two
        self._tokens = self._seconds = 0.0  # of the last batches, whatever their sizes
        self.line = 0.0, 0.0  # (a, b): seconds of any batch, and seconds of each token; neither is negative

    def add(self, tokens: int, seconds: float) -> None:
        """A batch was measured."""
        self._tokens, self._seconds = KEEP * self._tokens + tokens, KEEP * self._seconds + seconds
        weight, x, y = self._sizes.get(tokens.bit_length(), (0.0, 0.0, 0.0))
        weight = KEEP * weight + 1
        self._sizes[tokens.bit_length()] = weight, x + (tokens - x) / weight, y + (seconds - y) / weight
        self.line = self._fit()

    def _fit(self) -> tuple[float, float]:
        """The line by least squares; through the origin if the sizes are alike, or the line would fall or begin below.

        Errors count in seconds, so the largest batches decide: a queue that takes long to compute consists of them.
        """
        n = sx = sy = sxx = sxy = 0.0  # weighted sums of 1, tokens, seconds, their products
        for w, x, y in self._sizes.values():
            n, sx, sy, sxx, sxy = n + w, sx + w * x, sy + w * y, sxx + w * x * x, sxy + w * x * y
        tokens = [x for _, x, _ in self._sizes.values()]
        if max(tokens) > APART * min(tokens):
            b = (n * sxy - sx * sy) / (n * sxx - sx * sx)
            a = (sy - b * sx) / n
            if a >= 0 and b >= 0:
                return a, b
        return 0.0, sxy / sxx

    def seconds(self, tokens: int, most: int) -> float:
        """Predicted seconds of so many tokens in batches of `most`; 0 before the first batch."""
        a, b = self.line
        return a * math.ceil(tokens / most) + b * tokens

    @property
    def rate(self) -> float:
        """Tokens a second of the batches measured last; 0 before the first."""
        return self._tokens / self._seconds if self._seconds else 0.0
