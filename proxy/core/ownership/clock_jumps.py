"""Detection of pauses of the process and of changes of its wall clock. Pure.

Both clocks are checked periodically. A gap in monotonic time means that the process was stopped,
suspended with its machine, or starved of a processor. If the wall clock advanced more or less than
the monotonic one, it was set.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.keys.retry_policy import MS

_KEPT = 16
#: Slewing adjusts clocks by far less than this between two checks.
_MOVED_MS = 1000


class JumpKind(StrEnum):
    """Kind of a jump."""

    STOOD_STILL = "stood_still"
    WALL_CLOCK = "wall_clock"


@dataclass(frozen=True, slots=True)
class ClockJump:
    """``by_ms``: length of the pause, or change of the wall clock, negative if it was set back."""

    kind: JumpKind
    at_ns: int
    by_ms: int


@dataclass(slots=True)
class ClockJumps:
    """The latest jumps of this process, the oldest first. ``longest_ns``: longest time between two
    checks that does not count as a pause.
    """

    longest_ns: int
    seen: deque[ClockJump] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: Sum of the changes of the wall clock since the first check.
    moved_ms: int = 0
    _last: tuple[int, int] | None = None

    def steady_ms(self, wall_ms: int) -> int:
        """Return *wall_ms* as it would be without jumps ahead: nothing is too old because of one.

        A jump counts from the next check on; a proxy that starts trusts its clock.
        """
        return wall_ms - max(0, self.moved_ms)

    def look(self, *, now_ns: int, wall_ms: int) -> list[ClockJump]:
        """Check both clocks; return new jumps."""
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
            self.moved_ms += moved_ms
        self.seen += found
        return found
