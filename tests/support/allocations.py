"""Memory that code leaves allocated, measured by ``tracemalloc``."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

#: Until the other ends have noticed that the last connections are closed.
_SETTLES_S = 0.03


def allocated_by(action: Callable[[], object]) -> int:
    """Return the bytes that are still allocated after *action*."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def kept_by(action: Callable[[], Awaitable[object]], *, times: int = 4) -> int:
    """Return the bytes that *times* executions of *action* leave allocated while the garbage
    collector is off: what refers to itself stays.
    """
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(2):  # caches
            await action()
        await asyncio.sleep(_SETTLES_S)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            await action()
        await asyncio.sleep(_SETTLES_S)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
