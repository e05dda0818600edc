"""How often the names of queues are looked at, as a measure of work."""

from __future__ import annotations

import pytest

from broker_core.names import QueueName
from proxy.core.group.known_queue import KnownQueue


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[QueueName]:
    """Return a list that gets the name of a known queue each time that it is read."""
    looks: list[QueueName] = []
    slot = KnownQueue.queue

    def counted(known: KnownQueue) -> QueueName:
        queue: QueueName = slot.__get__(known)  # type: ignore[attr-defined]
        looks.append(queue)
        return queue

    monkeypatch.setattr(KnownQueue, "queue", property(counted, slot.__set__))  # type: ignore[attr-defined]
    return looks
