"""Until when the orderly lock of a queue is trusted. Pure; times are monotonic ns.

The proxy's clock alone decides: a lock is trusted for some time from *before* it was asked for, and
the broker gives it away later than that. Where trust had lapsed, or the connection to the broker
was lost, somebody else may have owned the queue since: then the next grant says nothing before the
ownership records were looked at.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Trust:
    """That of one ownership period."""

    #: The lock is trusted until then.
    until_ns: int
    #: Someone else may have had the lock since it was granted; no grant came since.
    doubtful: bool = False

    def holds(self, now_ns: int) -> bool:
        """True if nobody else can have the lock at *now_ns*."""
        return not self.doubtful and now_ns < self.until_ns

    def granted(self, until_ns: int, *, now_ns: int) -> None:
        """The broker granted the lock again; see ``doubtful`` for whether to look at the records
        before anything is handed out, and ``cleared`` then.
        """
        self.doubtful |= self.until_ns <= now_ns
        self.until_ns = max(self.until_ns, until_ns)

    def connection_lost(self) -> None:
        """The broker may have restarted without our lock."""
        self.doubtful = True

    def cleared(self) -> None:
        """It is granted again, and the records are looked at: they will say who had it."""
        self.doubtful = False
