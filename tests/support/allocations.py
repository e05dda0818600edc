"""Memory that code leaves allocated, measured by ``tracemalloc``."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

from testkit.eventually import eventually

#: Interval of looks at memory that other ends may still free, and how long these ends may take to
#: notice that their connections are closed. Sockets have no virtual time.
_LOOK_S = 0.03
_WITHIN_S = 10.0


def allocated_by(action: Callable[[], object]) -> int:
    """Return the bytes that are still allocated after *action*."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def kept_by(action: Callable[[], Awaitable[object]], *, limit: int, times: int = 4) -> int:
    """Return the bytes that *times* executions of *action* leave allocated while the garbage
    collector is off: what refers to itself stays.

    What is more than *limit* bytes may still be in use by an end that has not noticed yet that
    its connection is closed, so it counts only if it stays.
    """
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(2):  # caches
            await action()
        before = await _settled()
        for _ in range(times):
            await action()

        def kept() -> int:
            return tracemalloc.get_traced_memory()[0] - before

        with suppress(TimeoutError):
            await eventually(lambda: kept() <= limit, within_s=_WITHIN_S)
        return kept()
    finally:
        tracemalloc.stop()
        gc.enable()


async def _settled() -> int:
    """Return the allocated bytes once three looks in a row found no fewer."""
    least, same = tracemalloc.get_traced_memory()[0], 0
    while same < 3:
        await asyncio.sleep(_LOOK_S)
        allocated = tracemalloc.get_traced_memory()[0]
        same = 0 if allocated < least else same + 1
        least = min(least, allocated)
    return least
