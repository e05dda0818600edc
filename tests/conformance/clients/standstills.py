"""Detect when this process, which runs the proxies, was not scheduled in time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

_LOOK_S = 0.02
#: Clients in cases wait at least twice this for anything.
LATE_S = 0.15


@dataclass(slots=True)
class Standstills:
    """Records delays of the event loop, and their times."""

    _late: list[tuple[float, float]] = field(default_factory=list)

    async def watch(self) -> None:
        """Watch until cancelled."""
        while True:
            due = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.note(time.monotonic(), time.monotonic() - due)

    def note(self, now_s: float, late_s: float) -> None:
        """Record a delay of the loop that ends now."""
        if late_s >= LATE_S:
            self._late.append((now_s, late_s))

    def longest_since(self, began_s: float) -> float:
        """Return the longest delay in seconds; 0 if none was relevant."""
        return max((late for when, late in self._late if when >= began_s), default=0.0)
