"""A signal that several tasks wait for at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """``fire`` wakes everyone who waits now; nothing is remembered for those who come later."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool] | None] = {}
        self._soon: asyncio.TimerHandle | None = None

    @property
    def waiters(self) -> int:
        """Tasks that wait now."""
        return len(self._waiting)

    def fire(self) -> None:
        """Wake all who wait, and whose condition is met. Cheap if nobody waits."""
        for future, condition in self._waiting.items():
            if not future.done() and (condition is None or condition()):
                future.set_result(None)

    def fire_soon(self, within_s: float) -> None:
        """``fire`` within that time, once for all who ask for it until then."""
        if self._soon is None and self._waiting:
            self._soon = asyncio.get_running_loop().call_later(within_s, self._fire_now)

    async def wait(self, timeout_s: float, *, until: Callable[[], bool] | None = None) -> bool:
        """Wait for the next ``fire`` at which *until* is true, if there is such a condition; False
        if *timeout_s* passed first.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = until
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

    def _fire_now(self) -> None:
        self._soon = None
        self.fire()
