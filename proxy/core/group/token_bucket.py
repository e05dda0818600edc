"""A token bucket: a rate per second with a limited reserve. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000
#: Tolerance for a whole token: sums of fractions fall short by less.
_NEARLY = 1e-6
#: Longer waits, of some 70 years, count as endless: rates may be as low as a float.
_ENDLESS_NS = 1 << 61


@dataclass(slots=True)
class TokenBucket:
    """Gains ``rate`` tokens per second, up to ``capacity``. Times never go back.

    ``tokens`` may become negative: tokens on credit.
    """

    rate: float = 0.0
    capacity: float = 0.0
    tokens: float = 0.0
    _at_ns: int = 0

    def fill(self, now_ns: int) -> None:
        """Add the tokens gained until *now*."""
        if now_ns > self._at_ns:
            grown = self.tokens + self.rate * (now_ns - self._at_ns) / SECOND
            self.tokens = min(grown, self.capacity)
            self._at_ns = now_ns

    def take(self, tokens: float) -> None:
        """Take *tokens*, on credit if necessary; a negative number returns some."""
        self.tokens -= tokens

    def fill_up(self) -> None:
        """Fill the bucket."""
        self.tokens = self.capacity

    def change(self, *, rate: float, capacity: float, now_ns: int) -> None:
        """Change rate and capacity from *now* on. Saved tokens stay, up to the new capacity; none
        are added.
        """
        self.fill(now_ns)
        self.rate, self.capacity = rate, capacity
        self.tokens = min(self.tokens, capacity)

    @property
    def whole(self) -> int:
        """Number of whole tokens; 0 on credit."""
        return max(0, int(self.tokens + _NEARLY))

    def wait_ns(self, tokens: float) -> int | None:
        """Return how long after the last ``fill`` it holds *tokens*; None for never."""
        missing = tokens - _NEARLY - self.tokens
        if missing <= 0:
            return 0
        if self.rate <= 0 or tokens > self.capacity + _NEARLY:
            return None
        wait_ns = missing * SECOND / self.rate
        return int(wait_ns) + 1 if wait_ns < _ENDLESS_NS else None
