"""Time until which the orderly lock of a queue is trusted. Pure; times are monotonic ns.

Only the proxy's clock decides: a lock is trusted for some time from *before* the request, and the
broker gives it away later than that. If trust had lapsed, or the connection to the broker was lost,
another proxy may have owned the queue since: then the next grant is not sufficient before the
ownership records are read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Trust:
    """Trust in the lock during one ownership period."""

    #: End of the trust in the lock.
    until_ns: int
    #: True if another proxy may have had the lock since it was last granted.
    doubtful: bool = False
    #: True if the connection to the broker was lost since then.
    cut: bool = False

    def holds(self, now_ns: int) -> bool:
        """Return True if no other proxy can have the lock at *now_ns*."""
        return not self.doubtful and now_ns < self.until_ns

    def granted(self, until_ns: int, *, now_ns: int) -> None:
        """Note that the broker granted the lock again. If ``doubtful``, read the records before any
        delivery, and then call ``cleared``.
        """
        self.doubtful |= self.until_ns <= now_ns
        self.cut = False
        self.until_ns = max(self.until_ns, until_ns)

    def extend(self, until_ns: int) -> None:
        """Extend a trust that is in no doubt and has not ended."""
        self.until_ns = max(self.until_ns, until_ns)

    def connection_lost(self) -> None:
        """Doubt the lock, because the broker may have restarted without it."""
        self.doubtful = self.cut = True

    def cleared(self) -> None:
        """End the doubt: the lock is granted again, and the records show its owners."""
        self.doubtful = False
