"""Whether clients of a group wait in vain: then its queues are read on past stuck jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: A client that had to wait counts for so long: clients pull again and again.
_LATELY_NS = 1_000_000_000
#: A queue with so many ready jobs is read on for nobody.
READ_AHEAD = 512


@dataclass(slots=True)
class Starvation:
    """When a client of one group waited last with nothing ready for it."""

    _last_ns: int | None = None

    def note(self, now_ns: int) -> bool:
        """A client waits with nothing ready; True if none did lately."""
        before = self.lately(now_ns)
        self._last_ns = now_ns
        return not before

    def lately(self, now_ns: int) -> bool:
        """True if a client waited a moment ago."""
        return self._last_ns is not None and now_ns - self._last_ns < _LATELY_NS
