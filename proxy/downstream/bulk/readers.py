"""The bulk readers of one group: how they share queues, which one may move the offsets, and in
which lives of their topics they read. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker_core.names import QueueName

#: After this idle time a reader loses its share of the queues.
SEEN_NS = 30_000_000_000
#: For this time after its last ack, no other reader may move the group's offsets.
ACK_HOLD_NS = 60_000_000_000
#: Queues whose lives are remembered, of all readers together.
_MAX_LIVES = 20_000


@dataclass(slots=True)
class BulkReaders:
    """Readers by consumerId, least recently seen first."""

    _seen_ns: dict[str, int] = field(default_factory=dict)
    _acker: str | None = None
    _acked_ns: int = 0
    _lives: dict[str, dict[QueueName, int]] = field(default_factory=dict)
    """Lives of topics at the last read, by reader, the least recent first."""

    @property
    def acker(self) -> str | None:
        """The reader that acked last."""
        return self._acker

    def present(self, consumer_id: str, now_ns: int) -> list[str]:
        """Record that *consumer_id* is active; return all active readers. O(1) apart from their
        number.
        """
        self._seen_ns.pop(consumer_id, None)
        self._seen_ns[consumer_id] = now_ns
        self.count(now_ns)
        return list(self._seen_ns)

    def count(self, now_ns: int) -> int:
        """Return the number of active readers, and forget the others."""
        while (
            self._seen_ns and now_ns - self._seen_ns[first := next(iter(self._seen_ns))] > SEEN_NS
        ):
            del self._seen_ns[first]
        return len(self._seen_ns)

    def may_ack(self, consumer_id: str, now_ns: int) -> bool:
        """Return whether no other reader acked recently; if so, *consumer_id* gets the right to
        ack.
        """
        held = self._acker not in (None, consumer_id) and now_ns - self._acked_ns <= ACK_HOLD_NS
        if not held:
            self._acker, self._acked_ns = consumer_id, now_ns
        return not held

    def read(self, consumer_id: str, lives: Mapping[QueueName, int | None]) -> None:
        """Note the lives in which *consumer_id* read queues; None: unknown."""
        known = self._lives.pop(consumer_id, {})
        known |= {queue: life for queue, life in lives.items() if life is not None}
        self._lives[consumer_id] = known
        while sum(map(len, self._lives.values())) > _MAX_LIVES:
            del self._lives[next(iter(self._lives))]

    def life_read(self, consumer_id: str, queue: QueueName) -> int | None:
        """Return the life in which *consumer_id* last read *queue*; None if unknown."""
        return self._lives.get(consumer_id, {}).get(queue)
