"""When this process, whose proxies clients talk to, did not get its turn."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

_LOOK_S = 0.02
#: Clients of the cases wait no less than twice this for anything.
LATE_S = 0.15


@dataclass(slots=True)
class Standstills:
    """Notes how late the event loop was, and when."""

    _late: list[tuple[float, float]] = field(default_factory=list)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            due = time.monotonic() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            self.note(time.monotonic(), time.monotonic() - due)

    def note(self, now_s: float, late_s: float) -> None:
        """The loop came *late*, now."""
        if late_s >= LATE_S:
            self._late.append((now_s, late_s))

    def longest_since(self, began_s: float) -> float:
        """Seconds; 0 if it was never late enough to matter."""
        return max((late for when, late in self._late if when >= began_s), default=0.0)
