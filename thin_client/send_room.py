"""Back-pressure of a pipelining producer: calls wait in their order while too much is under way."""

from __future__ import annotations

import asyncio
from collections import deque

#: Maximum bytes of messages under way; one call may exceed it.
MOST_BYTES = 64_000_000


class SendRoom:
    """Counts messages and bytes under way. Owned by one event loop.

    A call enters once there is room for one more message, so a batch may exceed the limits.
    """

    def __init__(self, messages: int) -> None:
        """*messages*: maximum number of messages under way."""
        self._most = messages
        self._messages = self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()

    async def enter(self, messages: int, size: int) -> None:
        """Wait for room, behind earlier calls, and occupy it."""
        if not self._waiting and self._has_room():
            self._occupy(messages, size)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiter, messages, size))
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # the room was given before the cancellation arrived
                self.leave(messages, size)
            raise

    def leave(self, messages: int, size: int) -> None:
        """Give the room of a call to the calls that wait."""
        self._occupy(-messages, -size)
        while self._waiting and self._has_room():
            waiter, count, bytes_ = self._waiting.popleft()
            if not waiter.done():
                self._occupy(count, bytes_)
                waiter.set_result(None)

    def _has_room(self) -> bool:
        return self._messages < self._most and self._bytes < MOST_BYTES

    def _occupy(self, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
