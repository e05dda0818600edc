"""A signal that several tasks wait for at once."""

from __future__ import annotations

import asyncio


class Signal:
    """``fire`` wakes everyone who waits now; nothing is remembered for those who come later."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        """Wake all who wait. Cheap if nobody does."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next ``fire``; False if *timeout_s* passed first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return True
