"""A signal that wakes several waiting tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """``fire`` wakes all waiting tasks; tasks that wait later are not affected."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool] | None] = {}
        self._soon: asyncio.TimerHandle | None = None

    @property
    def waiters(self) -> int:
        """Number of waiting tasks."""
        return len(self._waiting)

    def fire(self) -> None:
        """Wake all waiting tasks whose condition holds. Cheap without waiting tasks.

        A task whose condition fails gets the error: its caller and the others have no part in it.
        """
        for future, condition in self._waiting.items():
            if future.done():
                continue
            try:
                holds = condition is None or condition()
            except Exception as error:
                future.set_exception(error)
            else:
                if holds:
                    future.set_result(None)

    def fire_soon(self, within_s: float) -> None:
        """Call ``fire`` within *within_s*; calls until then have no further effect."""
        if self._soon is None and self._waiting:
            self._soon = asyncio.get_running_loop().call_later(within_s, self._fire_now)

    async def wait(self, timeout_s: float, *, until: Callable[[], bool] | None = None) -> bool:
        """Wait for the next ``fire`` at which *until* (if given) is true. Return False after
        *timeout_s*. Raises the error of *until*.
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
