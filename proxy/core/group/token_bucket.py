"""A token bucket: so many a second, some of them saved up. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000
#: What counts as a whole token: sums of fractions fall short of it by less.
_NEARLY = 1e-6


@dataclass(slots=True)
class TokenBucket:
    """``rate`` tokens a second come in, ``capacity`` are kept at most. Times never go back.

    ``tokens`` may be taken on credit: below zero.
    """

    rate: float = 0.0
    capacity: float = 0.0
    tokens: float = 0.0
    _at_ns: int = 0

    def fill(self, now_ns: int) -> None:
        """Let in what came until *now*."""
        if now_ns > self._at_ns:
            grown = self.tokens + self.rate * (now_ns - self._at_ns) / SECOND
            self.tokens = min(grown, self.capacity)
            self._at_ns = now_ns

    def take(self, tokens: float) -> None:
        """Take *tokens*, on credit if need be; with a negative number give some back."""
        self.tokens -= tokens

    def fill_up(self) -> None:
        """Make it full."""
        self.tokens = self.capacity

    def change(self, *, rate: float, capacity: float, now_ns: int) -> None:
        """From *now* on it is filled so, and holds so much. What was saved up stays, as far as it
        still fits; nothing is added to it.
        """
        self.fill(now_ns)
        self.rate, self.capacity = rate, capacity
        self.tokens = min(self.tokens, capacity)

    @property
    def whole(self) -> int:
        """Whole tokens in it; 0 on credit."""
        return max(0, int(self.tokens + _NEARLY))

    def wait_ns(self, tokens: float) -> int | None:
        """How long after the last ``fill`` it holds *tokens*; None for never."""
        missing = tokens - _NEARLY - self.tokens
        if missing <= 0:
            return 0
        if self.rate <= 0 or tokens > self.capacity + _NEARLY:
            return None
        return int(missing * SECOND / self.rate) + 1
