"""Waits for what becomes true by itself, without a guess how long it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """Return once ``holds()``; TimeoutError fails the test otherwise."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  # nothing there to be notified by
            await asyncio.sleep(0.005)
