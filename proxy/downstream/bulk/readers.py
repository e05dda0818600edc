"""The bulk readers of one group: how they share queues, and which one may move the offsets.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: After this idle time a reader loses its share of the queues.
SEEN_NS = 30_000_000_000
#: For this time after its last ack, no other reader may move the group's offsets.
ACK_HOLD_NS = 60_000_000_000


@dataclass(slots=True)
class BulkReaders:
    """Readers by consumerId, least recently seen first."""

    _seen_ns: dict[str, int] = field(default_factory=dict)
    _acker: str | None = None
    _acked_ns: int = 0

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
