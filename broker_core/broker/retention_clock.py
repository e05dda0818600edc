"""The clock by which messages grow old. Pure.

1. It follows the wall clock, but no faster than time passes: a wall clock that jumps ahead must not
   make messages old. From then on the clock goes by the monotonic one until the wall clock returns,
   or until an administrator confirms the new time.
2. A wall clock that is set back makes messages younger at once.
3. Small differences, as of a clock that is being adjusted, are followed slowly. A difference
   counts as a jump above ``jump_ms``.
4. Over a restart on the same boot of the machine the monotonic clock shows how much time has
   passed. After a boot, or on another machine, nothing does: the broker may have been off for a
   weekend, or the clock may be wrong. Then the new time counts only after ``settle_ms`` in which it
   stays; until then a time service can correct it.

Times are ms since 1970, and monotonic ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MS = 1_000_000
#: Share of the passed time by which the clock may follow a small difference.
_SLEW = 0.02
_SLEW_MS = 1000

SETTLE_MS = 3_600_000


@dataclass(slots=True)
class RetentionClock:
    """The clock; ``look`` regularly.

    ``boot``: name of this boot of the machine, "" if unknown. ``jump_ms``: larger differences are
    jumps. ``steady_ms``: the wall clock as it would be without jumps, at monotonic ``at_ns``.
    ``unknown_since_ns``: time of the start if the time before it is unknown, otherwise None.
    ``confirmed``: who confirmed the last jump, when and why.
    """

    boot: str
    jump_ms: int
    steady_ms: int
    at_ns: int
    wall_ms: int
    settle_ms: int = SETTLE_MS
    unknown_since_ns: int | None = None
    confirmed: dict[str, Any] | None = None

    @classmethod
    def started(
        cls,
        table: dict[str, Any],
        *,
        boot: str,
        jump_ms: int,
        newest_ms: int,
        now_ns: int,
        wall_ms: int,
    ) -> RetentionClock:
        """Return the clock after a start.

        *table*: ``to_table`` of the last run, {} without one. *newest_ms*: store time of the newest
        message, 0 without one; it stands for a missing table. Raises ValueError if *table* is
        something else.
        """
        clock = cls(boot, jump_ms, wall_ms, now_ns, wall_ms)
        if not table:
            if newest_ms and wall_ms - newest_ms > jump_ms:
                clock.steady_ms, clock.unknown_since_ns = newest_ms, now_ns
            return clock
        try:
            steady_ms, at_ns = int(table["steady_ms"]), int(table["at_ns"])
            same_boot = boot != "" and table["boot"] == boot
            unknown = table.get("unknown") is True
            clock.confirmed = table.get("confirmed")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a table of the retention clock: {error!r}") from error
        if same_boot and at_ns <= now_ns:
            clock.steady_ms, clock.at_ns = steady_ms, at_ns
            clock.unknown_since_ns = now_ns if unknown else None
            clock.look(now_ns=now_ns, wall_ms=wall_ms)
        elif abs(wall_ms - steady_ms) > jump_ms:
            clock.steady_ms, clock.unknown_since_ns = steady_ms, now_ns
        return clock

    @property
    def ahead_ms(self) -> int:
        """By how much the wall clock was ahead at the last look; negative if it was behind."""
        return self.wall_ms - self.steady_ms

    @property
    def jumped(self) -> bool:
        """Whether the wall clock is ahead by a jump that neither ended nor was confirmed."""
        return self.ahead_ms > self.jump_ms

    def look(self, *, now_ns: int, wall_ms: int) -> int:
        """Read both clocks; return the time by which messages are old."""
        passed_ms = max(0, now_ns - self.at_ns) // _MS
        self.at_ns += passed_ms * _MS
        self.steady_ms += passed_ms
        self.wall_ms = wall_ms
        difference_ms = wall_ms - self.steady_ms
        if abs(difference_ms) <= self.jump_ms:
            slew_ms = max(_SLEW_MS, int(passed_ms * _SLEW))
            self.steady_ms += max(-slew_ms, min(slew_ms, difference_ms))
            self.unknown_since_ns = None
        elif (
            self.unknown_since_ns is not None
            and now_ns - self.unknown_since_ns >= self.settle_ms * _MS
        ):
            self.steady_ms, self.unknown_since_ns = wall_ms, None
        return min(self.steady_ms, wall_ms)

    def confirm(self, *, now_ns: int, wall_ms: int, by: str, reason: str) -> int:
        """Adopt the wall clock; return by how many ms it was ahead. *by* and *reason* are kept."""
        self.look(now_ns=now_ns, wall_ms=wall_ms)
        ahead_ms = self.ahead_ms
        self.steady_ms, self.unknown_since_ns = wall_ms, None
        self.confirmed = {"at_ms": wall_ms, "ahead_ms": ahead_ms, "by": by, "reason": reason}
        return ahead_ms

    def to_table(self) -> dict[str, Any]:
        """Return the state for the next start."""
        return {
            "boot": self.boot,
            "steady_ms": self.steady_ms,
            "at_ns": self.at_ns,
            "unknown": self.unknown_since_ns is not None,
            "confirmed": self.confirmed,
        }
