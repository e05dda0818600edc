"""Whether a process stood still, or its wall clock was moved. Pure.

Both clocks are looked at again and again. Monotonic time that went by without a look: the process
was stopped, suspended with its machine, or starved of a processor. A wall clock that went further,
or less far, than the monotonic one: somebody set it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.keys.retry_policy import MS

_KEPT = 16
#: Clocks that are kept right by slewing stay far below this between two looks.
_MOVED_MS = 1000


class JumpKind(StrEnum):
    """What jumped."""

    STOOD_STILL = "stood_still"
    WALL_CLOCK = "wall_clock"


@dataclass(frozen=True, slots=True)
class ClockJump:
    """``by_ms``: for how long the process stood still, or how far the wall clock was moved,
    negative: back.
    """

    kind: JumpKind
    at_ns: int
    by_ms: int


@dataclass(slots=True)
class ClockJumps:
    """The latest jumps of this process, the oldest first. ``longest_ns``: looks further apart than
    that mean that it stood still.
    """

    longest_ns: int
    seen: deque[ClockJump] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _last: tuple[int, int] | None = None

    def look(self, *, now_ns: int, wall_ms: int) -> list[ClockJump]:
        """Both clocks are so far now; what is new."""
        before, self._last = self._last, (now_ns, wall_ms)
        if before is None:
            return []
        gone_ns = now_ns - before[0]
        moved_ms = wall_ms - before[1] - gone_ns // MS
        found = []
        if gone_ns > self.longest_ns:
            found.append(ClockJump(JumpKind.STOOD_STILL, now_ns, gone_ns // MS))
        if abs(moved_ms) > _MOVED_MS:
            found.append(ClockJump(JumpKind.WALL_CLOCK, now_ns, moved_ms))
        self.seen += found
        return found
