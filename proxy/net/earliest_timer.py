"""A timer with many deadlines that fires at the earliest of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker_core.clock import now_ns

#: Later than any deadline.
NEVER_NS = 1 << 63


@dataclass(slots=True, eq=False)
class EarliestTimer:
    """Calls ``ring`` at the earliest deadline set. One call may cover several deadlines: the
    callback handles everything due and sets the next deadline. Times are those of ``now_ns``.
    """

    ring: Callable[[], None]
    #: The deadline, also during the call; NEVER_NS without one. Long past only if the process stood
    #: still. Read-only for others.
    due_ns: int = NEVER_NS
    _handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether a call is scheduled."""
        return self._handle is not None

    def set(self, due_ns: int) -> None:
        """Fire no later than at *due_ns*; immediately if that is in the past."""
        if self._handle is not None:
            if self.due_ns <= due_ns:
                return
            self._handle.cancel()
        self.due_ns = due_ns
        delay_s = max(0, due_ns - now_ns()) / 1e9
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def stop(self) -> None:
        """Cancel the scheduled call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.due_ns = NEVER_NS

    def _ring(self) -> None:
        self._handle = None
        self.ring()
        if self._handle is None:
            self.due_ns = NEVER_NS
