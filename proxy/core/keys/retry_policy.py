"""When a failed job is offered again, and when the proxy gives it up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MS = 1_000_000  # nanoseconds


class OnExhausted(Enum):
    """Policy for a job that has used up its ``max_deliveries``."""

    PARK = "park"
    DEAD_LETTER = "dead_letter"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry intervals and limits. ``intervals_ms`` apply after the first, second, … failure; the
    last one repeats.
    """

    intervals_ms: tuple[int, ...] = (100, 150, 300, 1000, 5000, 30000)
    max_deliveries: int = 16
    on_exhausted: OnExhausted = OnExhausted.PARK

    def delay_ns(self, attempts: int) -> int:
        """Return the delay after the failure of delivery number *attempts* (from 1)."""
        index = min(max(attempts, 1), len(self.intervals_ms)) - 1
        return self.intervals_ms[index] * MS

    def gives_up(self, attempts: int) -> bool:
        """Return True if *attempts* deliveries are the most that the group allows."""
        return self.on_exhausted is not OnExhausted.BLOCK and attempts >= self.max_deliveries
