"""When a failed job is offered again, and when it is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MS = 1_000_000  # nanoseconds


class OnExhausted(Enum):
    """What happens to a job whose ``max_deliveries`` hand-outs are used up."""

    PARK = "park"
    DEAD_LETTER = "dead_letter"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``intervals_ms`` after the first, second, … failure; the last repeats."""

    intervals_ms: tuple[int, ...] = (100, 150, 300, 1000, 5000, 30000)
    max_deliveries: int = 16
    on_exhausted: OnExhausted = OnExhausted.PARK

    def delay_ns(self, attempts: int) -> int:
        """How long a job waits after the failure of hand-out number *attempts* (from 1)."""
        index = min(max(attempts, 1), len(self.intervals_ms)) - 1
        return self.intervals_ms[index] * MS

    def gives_up(self, attempts: int) -> bool:
        """True if *attempts* hand-outs are all that the group allows."""
        return self.on_exhausted is not OnExhausted.BLOCK and attempts >= self.max_deliveries
