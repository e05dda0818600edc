"""Waits for what becomes true by itself, without a guess how long it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_LOOK_S = 0.005
#: A look that took longer was held up by the machine, and what is waited for as well.
_AT_MOST_S = 0.1


async def eventually(holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Return once ``holds()``; TimeoutError fails the test otherwise. What this process stood still
    counts as a moment: there is another look before the time is up.
    """
    left_s = within_s
    began_s = time.monotonic()
    while not holds():
        if left_s <= 0:
            raise TimeoutError(f"not within {within_s:g} s")
        await asyncio.sleep(_LOOK_S)
        now_s = time.monotonic()
        left_s -= min(now_s - began_s, _AT_MOST_S)
        began_s = now_s


async def until(holds: Callable[[], Awaitable[bool]], *, within_s: float = 30.0) -> None:
    """Return once ``await holds()``; TimeoutError fails the test otherwise."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110  # nothing there to be notified by
            await asyncio.sleep(0.01)
