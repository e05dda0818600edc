"""One timer for many needs: it rings at the earliest of the times that it was set for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker_core.clock import now_ns


@dataclass(slots=True, eq=False)
class EarliestTimer:
    """``ring`` is called once for each time that it was set for, or for several at once: whoever is
    called looks at what is due, and sets it anew. Times are those of ``now_ns``.
    """

    ring: Callable[[], None]
    _handle: asyncio.TimerHandle | None = None
    _due_ns: int = 0

    @property
    def is_set(self) -> bool:
        """True while it is going to ring."""
        return self._handle is not None

    def set(self, due_ns: int) -> None:
        """Ring no later than at *due_ns*; at once if that is over."""
        if self._handle is not None:
            if self._due_ns <= due_ns:
                return
            self._handle.cancel()
        self._due_ns = due_ns
        delay_s = max(0, due_ns - now_ns()) / 1e9
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def stop(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self.ring()
