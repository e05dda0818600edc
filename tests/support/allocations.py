"""Memory that code leaves allocated, measured by ``tracemalloc``."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

#: How often to look, and how long other ends may take to notice that connections are closed.
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
        for _ in range(round(_WITHIN_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if (kept := tracemalloc.get_traced_memory()[0] - before) <= limit:
                break
        return kept
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
