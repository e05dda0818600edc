"""Sleep with microsecond precision.

Event loops wait in whole milliseconds, too coarse for handlers of a few milliseconds, so a kernel
timer wakes the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import struct
from collections.abc import Callable
from itertools import count

from broker_core.clock import now_ns

_MONOTONIC = 1
_SPEC = struct.Struct("@qqqq")  # no interval; seconds and nanoseconds
_LIBC = ctypes.CDLL(None, use_errno=True)


class ExactSleep:
    """A sleeper for one event loop: ``await sleep(seconds)``. Needs Linux."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create the kernel timer. Raises OSError."""
        self._loop = loop
        self._timer = _LIBC.timerfd_create(_MONOTONIC, os.O_NONBLOCK)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._sleeping: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        loop.add_reader(self._timer, self._ring)

    async def __call__(self, seconds: float) -> None:
        """Return after *seconds*."""
        done = self._loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        entry = (now_ns() + int(seconds * 1e9), next(self._numbers), wake)
        heapq.heappush(self._sleeping, entry)
        if self._sleeping[0] is entry:
            self._arm()
        await done

    def close(self) -> None:
        """Release the timer; no coroutine may be sleeping."""
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _ring(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return  # it was armed again meanwhile
        while self._sleeping and self._sleeping[0][0] <= now_ns():
            heapq.heappop(self._sleeping)[2]()
        if self._sleeping:
            self._arm()

    def _arm(self) -> None:
        left = max(1, self._sleeping[0][0] - now_ns())
        spec = _SPEC.pack(0, 0, left // 1_000_000_000, left % 1_000_000_000)
        _LIBC.timerfd_settime(self._timer, 0, spec, None)
