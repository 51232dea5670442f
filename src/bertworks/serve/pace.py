"""The predicted seconds of a batch: a + b * tokens, fitted to the batches that were measured.

A batch costs something whatever its size, so tokens a second alone would misjudge a full queue by the small batches
before it. Sums are exponentially forgotten, so the fit follows the machine.
"""

import math

KEEP = 0.97  # the share of each sum that is kept at a new measurement


class Pace:
    """How long batches of one kind take."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0  # weighted sums of 1, tokens, seconds, their products

    def add(self, tokens: int, seconds: float) -> None:
        """A batch was measured."""
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        old = (self._n, self._x, self._y, self._xx, self._xy)
        self._n, self._x, self._y, self._xx, self._xy = (KEEP * a + b for a, b in zip(old, new, strict=True))

    @property
    def line(self) -> tuple[float, float]:
        """(a, b): seconds of any batch, and seconds of each token; neither is negative. (0, 0) before the first."""
        if not self._n:
            return 0.0, 0.0
        mean = self._x / self._n
        spread = self._xx / self._n - mean * mean
        if spread > (0.1 * mean) ** 2:
            b = (self._xy / self._n - mean * self._y / self._n) / spread
            a = self._y / self._n - b * mean
            if a >= 0 and b >= 0:
                return a, b
        return 0.0, self._y / self._x  # through the origin

    def seconds(self, tokens: int, most: int) -> float:
        """Predicted seconds of so many tokens in batches of `most`."""
        a, b = self.line
        return a * math.ceil(tokens / most) + b * tokens

    @property
    def rate(self) -> float:
        """Tokens a second of the batches measured last; 0 before the first."""
        return self._x / self._y if self._y else 0.0
