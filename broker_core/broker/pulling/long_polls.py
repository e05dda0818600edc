"""Held pulls: each waits for a message of its queue, or for its timeout."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from broker_core.names import Topic


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    woken: asyncio.Future[bool]
    tag_hashes: frozenset[int] | None  # None: any message wakes it


class LongPolls:
    """The held pulls of one broker. One event loop only."""

    def __init__(self) -> None:
        # Dicts keep the order of arrival.
        self._held: defaultdict[tuple[Topic, int], dict[_Held, None]] = defaultdict(dict)
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    async def wait(
        self, topic: Topic, queue_id: int, *, tag_hashes: frozenset[int] | None, timeout_s: float
    ) -> bool:
        """Wait for a message with one of *tag_hashes*; return False after *timeout_s*.

        Look for messages and call this without an await in between, or one may be missed.
        """
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        held = _Held(loop.create_future(), tag_hashes)
        self._held[topic, queue_id][held] = None
        timer = loop.call_later(timeout_s, _wake, held, False)
        try:
            return await held.woken
        finally:
            timer.cancel()
            waiting = self._held[topic, queue_id]
            waiting.pop(held, None)
            if not waiting:
                del self._held[topic, queue_id]

    def arrived(self, topic: Topic, queue_id: int, tag_hashes: frozenset[int]) -> None:
        """Wake the pulls that wait for messages with these hashes in that queue."""
        for held in self._held.get((topic, queue_id), ()):
            if held.tag_hashes is None or not held.tag_hashes.isdisjoint(tag_hashes):
                _wake(held, True)

    def end(self, topic: Topic) -> None:
        """End the waits for messages of *topic*, as if timed out."""
        for (name, _), waiting in self._held.items():
            if name == topic:
                for held in waiting:
                    _wake(held, False)

    def close(self) -> None:
        """End all waits, and all later ones, as if timed out."""
        self._closed = True
        for waiting in self._held.values():
            for held in waiting:
                _wake(held, False)


def _wake(held: _Held, by_message: bool) -> None:
    if not held.woken.done():
        held.woken.set_result(by_message)
