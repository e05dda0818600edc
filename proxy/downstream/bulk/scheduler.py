"""Schedules the reads of all bulk readers, first come, first served, at the pace of the bulk
lane.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from broker_core.clock import now_ns
from broker_core.names import Group
from proxy.core.bulk.pace import BESIDE_NS, BulkPace

#: Interval for checking the pace again: thin clients may have come or gone.
_LOOK_NS = 250_000_000
#: Interval of the timers that measure the delays of the event loop.
_MEASURE_NS = 5_000_000


@dataclass(slots=True)
class BulkCounts:
    """Bytes read, time delayed, and messages by the readers' reports, for one group."""

    read_bytes: int = 0
    held_back_ns: int = 0
    lost: int = 0
    skipped: int = 0
    repeated: int = 0

    def add(self, *, lost: int, skipped: int, repeated: int) -> None:
        """Count messages that a reader reports."""
        self.lost += lost
        self.skipped += skipped
        self.repeated += repeated


@dataclass(slots=True)
class ReadPermit:
    """Permission to read ``max_bytes``; 0 if time is up. The reader reports the bytes read."""

    max_bytes: int
    read_bytes: int = 0

    def refuse(self) -> None:
        """Allow no bytes."""
        self.max_bytes = 0

    def read(self, size: int) -> None:
        """Report *size* bytes read."""
        self.read_bytes = size


class BulkScheduler:
    """Reads of all groups, first come, first served. ``counts`` by group.

    While bulk readers read beside thin clients, timers measure how late the event loop is, from
    which the pace adapts.
    """

    def __init__(self, pace: BulkPace, served_ns: Callable[[], int | None]) -> None:
        """*served_ns* returns the time of the last delivery to a thin client."""
        self._pace = pace
        self._served_ns = served_ns
        self._lock = asyncio.Lock()
        self._took_ns = 0  # when a reader last took its turn beside thin clients
        self._measuring = False
        self.counts: defaultdict[Group, BulkCounts] = defaultdict(BulkCounts)

    @asynccontextmanager
    async def permit(
        self, group: Group, wanted_bytes: int, *, until_ns: int
    ) -> AsyncIterator[ReadPermit]:
        """Wait until *until_ns* for permission to read up to *wanted_bytes*."""
        counts = self.counts[group]
        began_ns = now_ns()
        try:
            async with asyncio.timeout((until_ns - began_ns) / 1e9):
                taken = await self._take(wanted_bytes)
        except TimeoutError:
            taken = 0
        finally:
            counts.held_back_ns += now_ns() - began_ns
        permit = ReadPermit(taken)
        try:
            yield permit
        finally:
            self._pace.settle(taken, permit.read_bytes)
            counts.read_bytes += permit.read_bytes

    def read_later(self, group: Group, read_bytes: int) -> None:
        """Count bytes that arrived after the permit ended."""
        self._pace.settle(0, read_bytes)
        self.counts[group].read_bytes += read_bytes

    async def _take(self, wanted_bytes: int) -> int:
        async with self._lock:
            while True:
                now, served_ns = now_ns(), self._served_ns()
                if taken := self._pace.take(wanted_bytes, now, served_ns=served_ns):
                    if served_ns is not None and now - served_ns < BESIDE_NS:
                        self._measure(now)
                    return taken
                wait_ns = self._pace.wait_ns(now, served_ns=served_ns)
                await asyncio.sleep(min(wait_ns, _LOOK_NS) / 1e9)

    def _measure(self, now: int) -> None:
        """Measure delays from *now* on, until no reader has taken a turn for a second."""
        self._took_ns = now
        if self._pace.adapts and not self._measuring:
            self._measuring = True
            self._look_later()

    def _look_later(self) -> None:
        due_ns = now_ns() + _MEASURE_NS
        asyncio.get_running_loop().call_later(_MEASURE_NS / 1e9, self._look, due_ns)

    def _look(self, due_ns: int) -> None:
        now = now_ns()
        self._pace.delayed(max(0, now - due_ns), now)
        self._measuring = now - self._took_ns < BESIDE_NS
        if self._measuring:
            self._look_later()
