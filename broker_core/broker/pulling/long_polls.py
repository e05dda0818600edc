"""Held reads: each waits for a message of its queue, or for its timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker_core.names import Topic

#: Longest time, in ms, for which a read is held: one of a vanished client uses memory.
MAX_SUSPEND_MS = 600_000


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """Callbacks for what happens in a queue.

    ``wake`` receives True when a message with one of ``tag_hashes`` (None: any) arrived, False when
    its topic or the broker ends; ``passed_over`` is called when only messages with other tags did.
    """

    wake: Callable[[bool], None]
    tag_hashes: frozenset[int] | None
    passed_over: Callable[[], None] | None = None


class LongPolls:
    """The held reads of one broker. One event loop only."""

    def __init__(self) -> None:
        # By topic and queue id. Dicts keep the order of arrival.
        self._watched: dict[Topic, dict[int, dict[Watch, None]]] = {}
        #: True once the broker ends.
        self.closed = False

    def __len__(self) -> int:
        return sum(len(each) for queues in self._watched.values() for each in queues.values())

    def watch(self, topic: Topic, queue_id: int, watch: Watch) -> None:
        """Call *watch* for that queue until ``unwatch``.

        Look for messages and call this without an await in between, or one may be missed.
        """
        self._watched.setdefault(topic, {}).setdefault(queue_id, {})[watch] = None

    def unwatch(self, topic: Topic, queue_id: int, watch: Watch) -> None:
        """Stop calling *watch*."""
        queues = self._watched[topic]
        watching = queues[queue_id]
        watching.pop(watch, None)
        if not watching:
            del queues[queue_id]
        if not queues:
            del self._watched[topic]

    async def wait(
        self, topic: Topic, queue_id: int, *, tag_hashes: frozenset[int] | None, timeout_s: float
    ) -> bool:
        """Wait for a message with one of *tag_hashes*; return False after *timeout_s*.

        Look for messages and call this without an await in between, or one may be missed.
        """
        if self.closed:
            return False
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()

        def wake(by_message: bool) -> None:
            if not woken.done():
                woken.set_result(by_message)

        watch = Watch(wake, tag_hashes)
        self.watch(topic, queue_id, watch)
        timer = loop.call_later(timeout_s, wake, False)
        try:
            return await woken
        finally:
            timer.cancel()
            self.unwatch(topic, queue_id, watch)

    def arrived(self, topic: Topic, queue_id: int, tag_hashes: frozenset[int]) -> None:
        """Wake the reads that wait for messages with these hashes in that queue."""
        for watch in self._watched.get(topic, {}).get(queue_id, ()):
            if watch.tag_hashes is None or not watch.tag_hashes.isdisjoint(tag_hashes):
                watch.wake(True)
            elif watch.passed_over is not None:
                watch.passed_over()

    def end(self, topic: Topic) -> None:
        """End the waits for messages of *topic*, as if timed out."""
        for watching in self._watched.get(topic, {}).values():
            for watch in watching:
                watch.wake(False)

    def close(self) -> None:
        """End all waits, and all later ones, as if timed out."""
        self.closed = True
        for queues in self._watched.values():
            for watching in queues.values():
                for watch in watching:
                    watch.wake(False)
