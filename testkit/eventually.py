"""Waits for conditions without fixed sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_LOOK_S = 0.005
#: A longer check means that the machine stood still, and the observed process with it.
_AT_MOST_S = 0.1


async def eventually(holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Return once ``holds()``; raise TimeoutError after the limit.

    A standstill of this process counts as a moment, so that the condition is checked again before
    the limit.
    """
    left_s = within_s
    began_s = time.monotonic()
    while not holds():
        if left_s <= 0:
            raise TimeoutError(f"the condition did not hold within {within_s:g} s")
        await asyncio.sleep(_LOOK_S)
        now_s = time.monotonic()
        left_s -= min(now_s - began_s, _AT_MOST_S)
        began_s = now_s


async def until(holds: Callable[[], Awaitable[bool]], *, within_s: float = 30.0) -> None:
    """Return once ``await holds()``; raise TimeoutError after the limit."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110  # nothing there to be notified by
            await asyncio.sleep(0.01)
